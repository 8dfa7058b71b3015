// SPDX-License-Identifier: Apache-2.0

// Package idle estimates, from calls alone, how long streams were idle and what Python
// did meanwhile, that is, what the GPU waited for.
//
// When a wait for a stream returns, all work submitted to the stream before the wait
// began is done. If nothing was submitted since, the stream is idle at least from then
// until the next submission. This is a lower bound of its idle time: the work may have
// been done long before the wait, and work that no thread waits for is unknown. Another
// stream may have been busy meanwhile.
//
// A copy that returns when it is done is both: work, and a wait for its stream.
//
// A wait for an event does not count: more work may have been submitted after the event.
// Failed calls submit nothing.
package idle

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/gpu-gadgets/gpu-gadgets/internal/timeline/weave"
)

const (
	maxStreams = 4096
	maxPlaces  = 10_000
	// maxSamples bounds the stacks that are kept per process.
	maxSamples = 4096
	// maxSampled bounds the processes that have some.
	maxSampled = 1024
	// maxRecent is the number of a stream's newest gaps that a late call may still
	// shorten.
	maxRecent = 256
)

// Gaps adds up gaps. It takes events in the order in which they ended (weave.Merge),
// and is for one goroutine.
type Gaps struct {
	streams map[streamKey]*stream
	samples map[uint64][]sample // by process, the oldest first
	places  map[string]*Place
	total   uint64
	first   uint64 // start of the first submission
	last    uint64 // end of the last one
	unknown uint64 // streams that were forgotten
}

type streamKey struct {
	process, stream uint64
	device          weave.Device // of streams without a handle
	tid             uint32       // of weave.ThreadsOwnStream
}

type stream struct {
	device    weave.Device
	submitted uint64 // end of the newest submission
	since     uint64 // idle since; 0: not known to be idle
	recent    []gap  // that a late call may still shorten, the oldest first
}

// gap is an idle time, and where the program was.
type gap struct {
	since, until uint64
	at           []string // equal parts, sorted
}

type sample struct {
	at  uint64
	tid uint32
	in  string
}

// Place is where a program was while a stream was idle.
type Place struct {
	// At is the innermost Python frame of samples taken meanwhile; without samples,
	// "before" and the frame of the call that ended the gap.
	At      string
	Idle    time.Duration
	Gaps    int
	Longest time.Duration
}

// New returns an empty sum.
func New() *Gaps {
	return &Gaps{streams: map[streamKey]*stream{}, samples: map[uint64][]sample{}, places: map[string]*Place{}}
}

// Call adds a call of the driver.
func (g *Gaps) Call(c *weave.Call) {
	key := streamKey{process: c.Process, stream: c.Stream}
	if c.Stream <= weave.ThreadsOwnStream {
		key.device = c.Device
	}
	if c.Stream == weave.ThreadsOwnStream {
		key.tid = c.TID
	}
	switch {
	case c.Error != "":
	case c.Kind == weave.Launch || c.Kind == weave.Copy || c.Kind == weave.Set:
		if c.Stream == weave.NoStream {
			// It is unknown which one: any of them may have work now.
			for k, s := range g.streams {
				if k.process == c.Process {
					s.submitted, s.since = max(s.submitted, c.End), 0
				}
			}
			return
		}
		g.submit(key, c)
	case c.Kind == weave.Wait && c.WaitsForEvent():
	case c.Kind == weave.Wait && c.Stream == weave.NoStream:
		for k, s := range g.streams {
			if k.process == c.Process && c.Concerns(s.device) {
				s.done(c)
			}
		}
	case c.Kind == weave.Wait:
		if s := g.streams[key]; s != nil {
			s.done(c)
		}
	}
}

// done: the wait has returned. Work submitted after it had begun may not be done.
func (s *stream) done(c *weave.Call) {
	if s.since == 0 && s.submitted <= c.Start {
		s.since = c.End
	}
}

func (g *Gaps) submit(key streamKey, c *weave.Call) {
	s := g.streams[key]
	if s == nil {
		if len(g.streams) >= maxStreams {
			g.End()
			g.unknown += uint64(len(g.streams))
			clear(g.streams)
		}
		s = &stream{}
		g.streams[key] = s
	}
	if s.device == 0 || c.Kind == weave.Launch && c.Device != 0 {
		s.device = c.Device // only a launch must be made in the stream's own context
	}
	if g.first == 0 || c.Start < g.first {
		g.first = c.Start
	}
	g.last = max(g.last, c.End)
	// Calls are passed when they have ended. One that began in a gap was in progress
	// then, whichever call ended the gap since.
	for n := len(s.recent) - 1; n >= 0 && s.recent[n].until > c.Start; n-- {
		s.recent[n].until = max(s.recent[n].since, c.Start)
	}
	if s.since != 0 && c.Start > s.since {
		if len(s.recent) == maxRecent {
			for _, old := range s.recent[:maxRecent/2] {
				g.count(old)
			}
			s.recent = append(s.recent[:0], s.recent[maxRecent/2:]...)
		}
		s.recent = append(s.recent, gap{s.since, c.Start, g.meanwhile(s.since, c)})
	}
	before := s.submitted
	s.since, s.submitted = 0, max(before, c.End)
	if c.IsDone() && before <= c.Start {
		s.since = c.End
	}
}

// meanwhile returns where a thread was from a time to its call.
func (g *Gaps) meanwhile(since uint64, c *weave.Call) []string {
	var met []string
	for _, s := range g.samples[c.Process] {
		if s.tid == c.TID && s.at > since && s.at < c.Start {
			met = append(met, s.in)
		}
	}
	if len(met) == 0 {
		if at := c.Stack.At(); at != "" {
			return []string{"before " + at}
		}
		return []string{"[no Python]"}
	}
	slices.Sort(met)
	return met
}

// count adds a gap's time to its places.
func (g *Gaps) count(p gap) {
	length := p.until - p.since
	if length == 0 {
		return
	}
	g.total += length
	rest := length
	for n := 0; n < len(p.at); {
		end := n
		for end < len(p.at) && p.at[end] == p.at[n] {
			end++
		}
		part := length / uint64(len(p.at)) * uint64(end-n)
		if end == len(p.at) {
			part = rest
		}
		rest -= part
		g.add(p.at[n], part)
		n = end
	}
}

// End counts the gaps that could still have changed. No more events may be added.
func (g *Gaps) End() {
	for _, s := range g.streams {
		for _, p := range s.recent {
			g.count(p)
		}
		s.recent = nil
	}
}

func (g *Gaps) add(at string, ns uint64) {
	p := g.places[at]
	if p == nil {
		if len(g.places) >= maxPlaces {
			at = "[others]"
		}
		if p = g.places[at]; p == nil {
			p = &Place{At: at}
			g.places[at] = p
		}
	}
	p.Idle += time.Duration(ns)
	p.Gaps++
	p.Longest = max(p.Longest, time.Duration(ns))
}

// Sample adds a thread's Python stack at one moment.
func (g *Gaps) Sample(h *weave.Host) {
	if h.Stack == nil {
		return
	}
	all := g.samples[h.Process]
	if all == nil && len(g.samples) >= maxSampled {
		// The one that was sampled least recently has probably ended.
		delete(g.samples, slices.MinFunc(slices.Collect(maps.Keys(g.samples)), func(a, b uint64) int {
			return cmp.Compare(g.samples[a][len(g.samples[a])-1].at, g.samples[b][len(g.samples[b])-1].at)
		}))
	}
	if len(all) >= maxSamples {
		all = append(all[:0], all[maxSamples/2:]...)
	}
	g.samples[h.Process] = append(all, sample{h.Start, h.TID, h.Stack.At()})
}

// Total is the time of all gaps of all streams; Of the time between their first and last
// submissions.
func (g *Gaps) Total() (idle, of time.Duration) {
	return time.Duration(g.total), time.Duration(g.last - g.first)
}

// Top returns the places with the most time, at most n.
func (g *Gaps) Top(n int) []Place {
	all := slices.SortedFunc(maps.Values(g.places), func(a, b *Place) int {
		return cmp.Or(cmp.Compare(b.Idle, a.Idle), cmp.Compare(a.At, b.At))
	})
	var out []Place
	for _, p := range all[:min(n, len(all))] {
		out = append(out, *p)
	}
	return out
}

// Lines returns the table of the n largest, with an explanation.
func (g *Gaps) Lines(n int) []string {
	idle, of := g.Total()
	lines := []string{fmt.Sprintf("what the GPU waited for, an estimate: streams had nothing to do for at least %s together, in %s",
		short(idle), short(of))}
	if idle == 0 {
		lines[0] = fmt.Sprintf("what the GPU waited for, an estimate: no time was found in which streams had nothing to do, in %s", short(of))
	}
	if g.unknown > 0 {
		lines = append(lines, fmt.Sprintf("without %d streams: more than %d", g.unknown, maxStreams))
	}
	if len(g.places) > 0 {
		lines = append(lines, fmt.Sprintf("%10s %8s %10s  %s", "IDLE", "GAPS", "LONGEST", "WHERE PYTHON WAS"))
	}
	for _, p := range g.Top(n) {
		lines = append(lines, fmt.Sprintf("%10s %8d %10s  %s", short(p.Idle), p.Gaps, short(p.Longest), p.At))
	}
	return lines
}

// short is a duration with three or four digits.
func short(d time.Duration) string {
	for _, unit := range []time.Duration{time.Second, time.Millisecond, time.Microsecond} {
		if d >= unit {
			return d.Round(unit / 100).String()
		}
	}
	return d.String()
}
