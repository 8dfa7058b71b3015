// SPDX-License-Identifier: Apache-2.0

// Package weave makes a timeline of calls and of activities on the host.
//
// A thread's own track has its Python functions, and in them its calls. A function is
// known only by the stacks of calls and samples: its slice reaches from the first to the
// last of them that were within it, without another function between. So two consecutive
// calls of a function are one slice, and a function without a call or a sample is not
// shown. The thread's CPU and its system calls have their own tracks below. Each stream
// has a track with the work submitted to it, at the time of the call: the time on the
// device is unknown here. If two threads use a stream at the same time, it has two
// tracks.
//
// Rates are counters of a process that hold for a tenth of a second each.
package weave

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/gpu-gadgets/gpu-gadgets/internal/timeline/track"
)

const (
	// gapNS without a call or a sample ends a Python function's slice.
	gapNS = 1_000_000_000

	laneCPU      = 1
	laneSyscalls = 2

	// maxThreads and maxStreams bound memory; the least recently used are evicted,
	// and start again when they are used again.
	maxThreads   = 8192
	maxStreams   = 4096
	maxProcesses = 4096
	maxStacks    = 65536
	maxPairs     = 65536
)

// Weaver makes tracks. Events must be in the order of their end (Merge). It is for one
// goroutine.
type Weaver struct {
	out track.Sink

	processes map[uint64]*process
	threads   map[threadKey]*thread
	streams   map[streamKey]*stream
	stacks    map[uint64]uint64 // id in the kernel → number in the file
	clock     uint64            // counts events, for what is least recently used
	pairs     map[pairKey]end   // without a counterpart yet
	arrowed   map[launchKey]bool
	free      uint32 // tracks of streams so far
	arrows    uint64
	order     int
	args      [11]track.Arg
}

type process struct {
	pid    uint32
	rates  map[string]*rate
	levels map[string]uint64
	used   uint64
}

type threadKey struct {
	process uint64
	tid     uint32
}

type thread struct {
	track track.Track
	order int
	open  []Frame // Python functions, the outermost first
	last  uint64  // their newest call or sample
	lanes [3]bool // named
	used  uint64
}

// New returns a Weaver that draws to out.
func New(out track.Sink) *Weaver {
	return &Weaver{
		out: out, processes: map[uint64]*process{}, threads: map[threadKey]*thread{},
		streams: map[streamKey]*stream{}, stacks: map[uint64]uint64{}, pairs: map[pairKey]end{},
	}
}

// Call draws a call.
func (w *Weaver) Call(c *Call) {
	w.clock++
	p, t := w.process(&c.Thread), w.thread(&c.Thread)
	end := max(c.End, c.Start)
	if c.Track == "" {
		w.observe(t, c.Stack, c.Start, end)
	}
	slice := track.Slice{Start: c.Start, End: end, Name: c.Function, Category: string(c.Kind), Args: w.callArgs(c)}
	if c.Kind == Launch && c.Kernel != "" {
		slice.Name = c.Kernel
	}
	if c.Track != "" {
		w.pair(c, w.submit(c, slice), end)
		return
	}
	w.out.Slice(t.track, slice)
	switch c.Kind {
	case Launch, Copy, Set, Collective:
		if c.Stream != NoStream {
			w.submit(c, slice)
		}
	case Wait:
		w.waited(c, t)
	}
	if c.Kind == Copy && c.Error == "" && c.Direction != "" {
		w.rate(p, c.Direction+" GB/s", c.Start, end, c.Bytes)
	}
}

func (w *Weaver) callArgs(c *Call) []track.Arg {
	args := w.args[:0]
	if c.Kernel != "" {
		args = append(args, track.Arg{Key: "function", Text: c.Function})
		if c.Grid != [3]uint32{} {
			args = append(args, track.Arg{Key: "grid", Text: dimensions(c.Grid)}, track.Arg{Key: "block", Text: dimensions(c.Block)})
		}
		if c.Shared != 0 {
			args = append(args, track.Arg{Key: "shared_bytes", Number: int64(c.Shared)})
		}
	}
	if c.Kind == Copy || c.Kind == Set || c.Bytes != 0 {
		args = append(args, track.Arg{Key: "bytes", Number: int64(c.Bytes)})
	}
	if c.Direction != "" {
		args = append(args, track.Arg{Key: "direction", Text: c.Direction})
	}
	if n := c.Device.Ordinal(); n >= 0 {
		args = append(args, track.Arg{Key: "device", Number: int64(n)})
	}
	if c.Stream > ThreadsOwnStream && c.Kind != Load && c.Kind != Other {
		key := "stream"
		if c.Track != "" {
			key = "communicator"
		}
		args = append(args, track.Arg{Key: key, Text: "0x" + strconv.FormatUint(c.Stream, 16)})
	}
	if c.Error != "" {
		args = append(args, track.Arg{Key: "error", Text: c.Error})
	}
	return w.stackArgs(args, c.Stack)
}

func (w *Weaver) stackArgs(args []track.Arg, s *Stack) []track.Arg {
	if s == nil || s.ID == 0 {
		return args
	}
	if at := s.At(); at != "" {
		args = append(args, track.Arg{Key: "at", Text: at})
	}
	return append(args, track.Arg{Key: "stack", Number: int64(w.stack(s))})
}

// stack returns the number of a stack, after writing its frames.
func (w *Weaver) stack(s *Stack) uint64 {
	n, ok := w.stacks[s.ID]
	if !ok {
		if len(w.stacks) >= maxStacks {
			w.stacks = map[uint64]uint64{} // they are written again, under their old numbers or new ones
		}
		n = s.ID & (1<<52 - 1) // exact in a double
		w.stacks[s.ID] = n
		w.out.Stack(n, s.Labels)
	}
	return n
}

func dimensions(d [3]uint32) string {
	return fmt.Sprintf("%d,%d,%d", d[0], d[1], d[2])
}

const pythonCategory = "python"

// observe records that a thread was within Python functions from start to end.
func (w *Weaver) observe(t *thread, s *Stack, start, end uint64) {
	if s == nil || s.ID == 0 {
		return
	}
	start, end = max(start, t.last), max(end, t.last)
	if start-t.last > gapNS {
		w.leave(t, 0)
	}
	same := 0
	for same < len(t.open) && same < len(s.Python) && t.open[same].Key == s.Python[same].Key {
		same++
	}
	w.leave(t, same)
	for _, f := range s.Python[same:] {
		w.out.Begin(t.track, track.Slice{
			Start: start, Name: f.label(), Category: pythonCategory,
			Args: []track.Arg{{Key: "at", Text: f.Name + " (" + f.Place + ")"}},
		})
		t.open = append(t.open, f)
	}
	t.last = end
}

// leave ends the functions of a thread from a depth on.
func (w *Weaver) leave(t *thread, depth int) {
	for n := len(t.open); n > depth; n-- {
		w.out.End(t.track, track.Slice{End: t.last, Name: t.open[n-1].label(), Category: pythonCategory})
	}
	t.open = t.open[:min(depth, len(t.open))]
}

// submit draws the work submitted to a stream.
func (w *Weaver) submit(c *Call, what track.Slice) track.Track {
	s := w.stream(c)
	lane := 0
	for lane < len(s.ends) && s.ends[lane] > what.Start {
		lane++
	}
	if lane == len(s.tracks) {
		on := track.Track{PID: c.PID, ID: track.Free(w.free)}
		w.free++
		s.tracks, s.ends = append(s.tracks, on), append(s.ends, 0)
		w.out.Name(on, s.title(), order(on))
	}
	s.ends[lane] = what.End
	w.out.Slice(s.tracks[lane], what)
	s.last = track.Arrow{Name: "waits for", From: s.tracks[lane], FromNS: what.Start}
	return s.tracks[lane]
}

// waited draws arrows from the newest launches that a wait covers.
func (w *Weaver) waited(c *Call, t *thread) {
	draw := func(s *stream) {
		if s == nil || s.last.Name == "" || s.last.FromNS > c.Start {
			return
		}
		w.arrows++
		a := s.last
		a.ID, a.To, a.ToNS = w.arrows, t.track, c.Start
		w.out.Arrow(a)
		s.last = track.Arrow{}
	}
	if c.Stream != NoStream {
		draw(w.streams[keyOf(c)])
		return
	}
	var all []*stream
	for key, s := range w.streams {
		if key.process == c.Process && key.track == "" && s.last.Name != "" && c.MayConcern(s.device) {
			all = append(all, s)
		}
	}
	slices.SortFunc(all, func(a, b *stream) int { return cmp.Compare(a.last.FromNS, b.last.FromNS) })
	for _, s := range all {
		draw(s)
	}
}

func (w *Weaver) process(by *Thread) *process {
	p := w.processes[by.Process]
	if p == nil {
		if len(w.processes) >= maxProcesses {
			evict(w.processes, func(p *process) uint64 { return p.used }, w.endProcess)
		}
		p = &process{pid: by.PID, rates: map[string]*rate{}, levels: map[string]uint64{}}
		w.processes[by.Process] = p
		w.out.Process(by.PID, fmt.Sprintf("%s (%d)", by.Comm, by.PID))
	}
	p.used = w.clock
	return p
}

func (w *Weaver) thread(by *Thread) *thread {
	key := threadKey{by.Process, by.TID}
	t := w.threads[key]
	if t == nil {
		if len(w.threads) >= maxThreads {
			evict(w.threads, func(t *thread) uint64 { return t.used }, func(t *thread) { w.leave(t, 0) })
		}
		w.order += 10
		t = &thread{track: track.Track{PID: by.PID, ID: by.TID}, order: w.order}
		w.threads[key] = t
		name := "thread"
		if by.TID == by.PID {
			name = "main thread"
		}
		w.out.Name(t.track, name, t.order)
	}
	t.used = w.clock
	return t
}

// evict removes the least recently used quarter of a table.
func evict[K comparable, V any](all map[K]V, used func(V) uint64, gone func(V)) {
	var low, high uint64 = ^uint64(0), 0
	for _, v := range all {
		low, high = min(low, used(v)), max(high, used(v))
	}
	limit := low + (high-low)/4
	for k, v := range all {
		if used(v) <= limit {
			if gone != nil {
				gone(v)
			}
			delete(all, k)
		}
	}
}

func (w *Weaver) rate(p *process, name string, start, end, bytes uint64) {
	r := p.rates[name]
	if r == nil {
		r = &rate{name: name}
		p.rates[name] = r
	}
	r.add(w.out, p.pid, start, end, bytes)
}

// Inuse draws how much memory a process holds.
func (w *Weaver) Inuse(u *Inuse) { w.Level(&u.Thread, u.Name(), u.At, u.Bytes) }

// Level is a counter of a process that keeps its value until the next one.
func (w *Weaver) Level(by *Thread, name string, ns, value uint64) {
	p := w.process(by)
	if old, ok := p.levels[name]; !ok || old != value {
		p.levels[name] = value
		w.out.Counter(p.pid, name, ns, float64(value))
	}
}

// Tick emits rates before a time, which would be late without it if few events arrive.
func (w *Weaver) Tick(ns uint64) {
	for _, p := range w.processes {
		for _, r := range p.rates {
			r.close(w.out, p.pid, ns/bucketNS-min(ns/bucketNS, openBuckets))
		}
	}
}

func (w *Weaver) endProcess(p *process) {
	for _, name := range sorted(p.rates) {
		p.rates[name].end(w.out, p.pid)
	}
}

// End ends all open slices.
func (w *Weaver) End() {
	for _, t := range slices.SortedFunc(maps.Values(w.threads), func(a, b *thread) int { return a.order - b.order }) {
		w.leave(t, 0)
	}
	for _, id := range slices.Sorted(maps.Keys(w.processes)) {
		w.endProcess(w.processes[id])
	}
}
