// SPDX-License-Identifier: Apache-2.0

package collective

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

const (
	// paceRing is how many collectives are searched for the shortest sequence that repeats, and
	// maxPeriod the longest such sequence.
	paceRing, maxPeriod = 512, 192
	// paceKnown is how many of them have to be known: a program's first collectives are
	// others than those of its steps.
	paceKnown = 64
	// paceSamples is the number of measurements, of which there is one for each observation of
	// a finished iteration: at one a second the last two minutes.
	paceSamples = 128
	// recent is how many of them are the present.
	recent = 12
	// surely is the probability at which a change is one: of 10⁵ tests a day, one in ten.
	surely = 1e-6
	// maxPaced bounds the communicators whose pace is measured, at 10 KiB each.
	maxPaced = 256
)

// pace measures how long iterations take, by one rank of a communicator. An iteration is the
// shortest sequence of collectives that repeats, which most programs have once in a step.
type pace struct {
	rank    int
	process processKey
	// newest is the last collective that was taken in; seqs and signatures describe the last
	// ones that were seen, by number modulo paceRing: an observation has only the newest.
	newest     uint64
	seqs       [paceRing]uint64
	signatures [paceRing]uint64
	known      int // since the last search
	// period is the number of collectives in an iteration; 0: not known.
	period uint64
	// start and startAt describe the newest iteration that was met; missed is how often the
	// newest collectives did not have its beginning since.
	start   uint64
	startAt Time
	missed  int
	samples []paceSample
	// slow is since when iterations take longer; nil: they do not.
	slow *slowdown
}

// paceSample is the mean of the iterations between two observations.
type paceSample struct {
	seq uint64 // of the first collective after them
	at  Time
	ns  float64
}

type slowdown struct {
	since         uint64 // iteration
	seq           uint64
	at            Time
	before, after time.Duration
}

// add takes in an observation.
func (p *pace) add(m *member) {
	if p.process != m.Process.key() {
		*p = pace{rank: m.Rank, process: m.Process.key()}
	}
	var last *Operation
	isMet := false
	for n := range m.Operations {
		op := &m.Operations[n]
		if op.Kind.IsPeer() || op.Seq <= p.newest {
			continue
		}
		last = op
		p.newest = op.Seq
		at := op.Seq % paceRing
		p.seqs[at], p.signatures[at] = op.Seq, op.Signature().Number()
		p.known++
		if p.period != 0 && !p.repeats(op.Seq) {
			*p = pace{rank: p.rank, process: p.process, newest: p.newest, seqs: p.seqs, signatures: p.signatures}
		}
		if p.start != 0 && (op.Seq-p.start)%p.period == 0 {
			p.met(op.Seq, op.Enter)
			isMet = true
		}
	}
	// An iteration begins with the newest collective that is seen: where all of a step are
	// issued at once, others are never among the newest ones.
	if last != nil && p.period != 0 && !isMet {
		if p.missed++; p.start == 0 || p.missed > maxPeriod {
			p.start, p.startAt, p.missed = last.Seq, last.Enter, 0
		}
	}
	if p.period == 0 && p.known >= paceKnown {
		p.known = 0
		p.search()
	}
}

// signature of a collective that was seen.
func (p *pace) signature(seq uint64) (uint64, bool) {
	at := seq % paceRing
	return p.signatures[at], p.seqs[at] == seq
}

// repeats reports whether a collective is as that of the iteration before, as far as it is known.
func (p *pace) repeats(seq uint64) bool {
	if seq <= p.period {
		return true
	}
	now, _ := p.signature(seq)
	before, ok := p.signature(seq - p.period)
	return !ok || now == before
}

// search finds the shortest period that no pair of collectives that were seen contradicts,
// and enough pairs support.
func (p *pace) search() {
	for period := uint64(1); period <= maxPeriod; period++ {
		pairs, isOne := uint64(0), true
		for _, seq := range p.seqs {
			if seq <= period {
				continue
			}
			now, _ := p.signature(seq)
			if before, ok := p.signature(seq - period); ok {
				pairs++
				if now != before {
					isOne = false
					break
				}
			}
		}
		if isOne && pairs >= max(period, paceKnown/2) {
			p.period, p.start, p.startAt = period, 0, 0
			return
		}
	}
}

// met is the beginning of an iteration. Iterations that were not observed lie between.
func (p *pace) met(seq uint64, at Time) {
	if p.start != 0 && at > p.startAt {
		iterations := float64((seq - p.start) / p.period)
		if len(p.samples) == paceSamples {
			p.samples = append(p.samples[:0], p.samples[1:]...)
		}
		p.samples = append(p.samples, paceSample{seq, at, float64(at-p.startAt) / iterations})
	}
	p.start, p.startAt, p.missed = seq, at, 0
}

// times are those of the samples, of the last ones only if there are more.
func (p *pace) times(last int) []float64 {
	samples := p.samples[max(len(p.samples)-last, 0):]
	out := make([]float64, len(samples))
	for n := range samples {
		out[n] = samples[n].ns
	}
	return out
}

// iteration is how long one takes now; 0: not known.
func (p *pace) iteration() time.Duration {
	if len(p.samples) < recent {
		return 0
	}
	return time.Duration(median(p.times(recent)))
}

// judge finds out whether iterations take longer than before, by more than the share.
func (p *pace) judge(share float64) {
	if len(p.samples) < 2*recent {
		return
	}
	if s := p.slow; s != nil {
		if s.after = p.iteration(); float64(s.after) < float64(s.before)*(1+share/2) {
			p.slow = nil
		}
		return
	}
	at, probability := changePoint(p.times(paceSamples))
	if probability > surely || at < recent || len(p.samples)-at < recent {
		return
	}
	times := p.times(paceSamples)
	before, after := median(times[:at]), median(times[at:])
	if after > before*(1+share) {
		s := p.samples[at-1] // its end is the beginning of the first slow iteration
		p.slow = &slowdown{since: (s.seq-1)/p.period + 1, seq: s.seq, at: s.at, before: time.Duration(before), after: time.Duration(after)}
	}
	p.samples = append(p.samples[:0], p.samples[at:]...)
}

// paced takes in an observation of the rank by which the pace is measured: one that is there.
func (a *Analyzer) paced(c *communicator, m *member) {
	if c.pace == nil {
		if a.paces >= maxPaced {
			return
		}
		a.paces++
		c.pace = &pace{rank: m.Rank, process: m.Process.key()}
	}
	if c.members[c.pace.rank] == nil {
		c.pace.rank = m.Rank // another one has to do
	}
	if c.pace.rank == m.Rank {
		c.pace.add(m)
	}
}

// sameCause is how far apart slowdowns of several communicators are found that have one cause.
const sameCause = Time(60e9)

// slowdowns returns the verdicts on communicators whose iterations take longer than before.
// Those that begin about the same time have one cause: the first one is reported, or the one
// that has been already, and the others are behind it.
func (a *Analyzer) slowdowns(now Time) (out []*Verdict) {
	all := a.slower(now)
	slices.SortStableFunc(all, func(x, y *Verdict) int {
		isOpen := func(v *Verdict) int {
			if a.open[v.key()] != nil {
				return 0
			}
			return 1
		}
		return cmp.Or(cmp.Compare(isOpen(x), isOpen(y)), cmp.Compare(x.Since, y.Since))
	})
	for _, v := range all {
		n := slices.IndexFunc(out, func(o *Verdict) bool { return max(v.Since-o.Since, o.Since-v.Since) < sameCause })
		if n < 0 {
			out = append(out, v)
		} else {
			out[n].Behind = append(out[n].Behind, v.Communicator)
		}
	}
	return out
}

func (a *Analyzer) slower(now Time) (out []*Verdict) {
	for _, c := range a.sorted() {
		if c.pace == nil || a.cfg.Slowdown <= 0 || c.members[c.pace.rank] == nil || c.members[c.pace.rank].isSilent(now, a.cfg.Silent) {
			continue
		}
		c.pace.judge(a.cfg.Slowdown)
		if s := c.pace.slow; s != nil {
			out = append(out, &Verdict{Reason: Slowdown, Communicator: c.Communicator, Peer: None, Seq: s.seq, Since: s.at, At: now, Late: c.late,
				Step: s.since, Before: s.before, After: s.after, Witness: c.members[c.pace.rank].Process})
		}
	}
	return out
}

func (v *Verdict) slowdownText() string {
	text := fmt.Sprintf("slow since step %d of communicator %s (its collective %d): a step takes %s, %.0f %% more than %s before",
		v.Step, v.Communicator, v.Seq, seconds(v.After), 100*(float64(v.After)/float64(max(v.Before, 1))-1), seconds(v.Before))
	if v.Cleared != 0 {
		text += ", until " + seconds(time.Duration(v.Cleared-v.Since)) + " later"
	}
	return text
}
