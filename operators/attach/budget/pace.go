// SPDX-License-Identifier: Apache-2.0

package budget

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/gpu-gadgets/gpu-gadgets/internal/process/schedstat"
)

// pace is how much less threads get done in windows, because they are probed there, by what
// the probes are charged with: for as long as the witness has not measured it, or where there
// is none. Calls per CPU time that a thread has for itself, without that of the probes, are
// the same in windows and outside, be it that it waits and has the time, that it always runs and falls
// behind, or that another thread waits for it. So a call in a window stands for as many
// more as threads have CPU time for themselves outside of windows, per time, against that
// in them.
type pace struct {
	byThread *ebpf.Map
	threads  map[uint64]*paced
	began    time.Time // of the present window; and of the time since the last one
	ended    time.Time
	// Sums of the threads that pay most, in seconds; older looks count less and less.
	outside, outsideWall float64
	inside, insideWall   float64
	ran                  float64 // CPU time in windows, with that of the probes
	wanted               float64 // and what threads waited for
	wall                 float64 // of the windows since the last look
	wallOutside          float64
}

// paced is a thread; CPU times in ns.
type paced struct {
	clock           clock
	last            float64 // -1: not known
	inside, outside float64 // since the last look, for itself
	ran             float64 // in windows
	wanted          float64 // with the time that it waited for a processor
	lastWaited      float64
	lastCost        float64
}

const (
	mostPaced = 16
	// forget is the weight of what was known, at a look.
	forget = 0.7
	// mostFactor bounds what is made of a window in which a thread hardly ran.
	mostFactor = 4
	// leastFactor: by chance a thread may run more in the windows there were.
	leastFactor = 0.8
	// known: the least part of its CPU time in windows that a thread has for itself.
	known = 0.4
	// displacing is the cost of what probes displace from caches, relative to their own: empty probes
	// cost a busy thread about as much again (docs/performance.md, PyTorch's pool); half
	// of that is in the time of the traps, which are measured one after the other.
	displacing = 0.25
	// unknownDoubt: real PyTorch launches 0.62 to 0.75 as often in a window as outside, by the
	// simulated driver's count, where the measured cost of the probes explains 0.8. A trap
	// costs several times what a tight loop shows, where the thread has used its caches
	// in between. So the stated error has it.
	// It is the least where the factor is not measured, and the most where it is.
	unknownDoubt = 0.5
	// hasTime and noTime are the parts of a window that a thread runs, or would.
	hasTime, noTime = 0.7, 0.9
)

// clock counts the CPU time of a thread, up to now: what /proc has is as of the last tick.
type clock int

func openClock(id uint64) (clock, error) {
	fd, err := unix.PerfEventOpen(&unix.PerfEventAttr{
		Type: unix.PERF_TYPE_SOFTWARE, Config: unix.PERF_COUNT_SW_TASK_CLOCK, Size: unix.PERF_ATTR_SIZE_VER0,
	}, int(uint32(id)), -1, -1, unix.PERF_FLAG_FD_CLOEXEC)
	return clock(fd), err
}

func (c clock) ns() (float64, bool) {
	var b [8]byte
	n, err := unix.Read(int(c), b[:])
	return float64(binary.NativeEndian.Uint64(b[:])), err == nil && n == len(b)
}

func (c clock) close() { unix.Close(int(c)) }

// waited is how long a thread has waited for a processor, until it last had one.
func waited(id uint64) (ns float64) {
	s, _ := schedstat.Read("/proc", uint32(id>>32), uint32(id)) // none of one that has ended
	return float64(s.Waited)
}

func (p *pace) begin() {
	p.began = time.Now()
	if !p.ended.IsZero() {
		p.wallOutside += p.began.Sub(p.ended).Seconds()
	}
	p.read(func(t *paced, ran, _, cost float64) { t.outside += max(ran-cost, 0) })
}

func (p *pace) end() {
	p.ended = time.Now()
	p.wall += p.ended.Sub(p.began).Seconds()
	p.read(func(t *paced, ran, waited, cost float64) {
		t.inside, t.ran, t.wanted = t.inside+max(ran-cost, 0), t.ran+ran, t.wanted+ran+waited
	})
}

// took returns the CPU time that the threads took since they were last read, and what of it probes are
// charged with, in seconds. It is outside of windows.
func (p *pace) took() (all, charged float64) {
	p.read(func(t *paced, ran, _, cost float64) {
		t.outside += max(ran-cost, 0)
		all, charged = all+ran/1e9, charged+cost/1e9
	})
	return all, charged
}

func (p *pace) read(add func(t *paced, ran, waited, cost float64)) {
	for id, t := range p.threads {
		now, ok := t.clock.ns()
		waited := waited(id)
		var sum sumValue
		if p.byThread.Lookup(id, &sum) != nil {
			ok = false
		}
		cost := float64(sum.CostNS)
		if ok && t.last >= 0 && now >= t.last {
			add(t, now-t.last, waited-t.lastWaited, cost-t.lastCost)
		}
		t.last, t.lastWaited, t.lastCost = now, waited, cost
		if !ok {
			t.last = -1
		}
	}
}

// look takes what probes have cost since the last look.
func (p *pace) look(s seen) {
	for _, sum := range []*float64{&p.outside, &p.outsideWall, &p.inside, &p.insideWall, &p.ran, &p.wanted} {
		*sum *= forget
	}
	var most float64
	for _, cost := range s.threads {
		most = max(most, cost)
	}
	next := map[uint64]*paced{}
	for id, cost := range s.threads {
		if cost < most/4 || len(next) >= mostPaced {
			continue
		}
		t := p.threads[id]
		if t == nil {
			if c, err := openClock(id); err == nil {
				next[id] = &paced{clock: c, last: -1}
			}
			continue
		}
		next[id] = t
		if p.wall > 0 && p.wallOutside > 0 {
			p.outside += t.outside / 1e9
			p.outsideWall += p.wallOutside
			p.inside += t.inside / 1e9
			p.insideWall += p.wall
			p.ran += t.ran / 1e9
			p.wanted += t.wanted / 1e9
		}
		t.inside, t.outside, t.ran, t.wanted = 0, 0, 0, 0
	}
	for id, t := range p.threads {
		if next[id] == nil {
			t.clock.close()
		}
	}
	p.threads, p.wall, p.wallOutside = next, 0, 0
}

func (p *pace) close() { p.look(seen{}) }

// full is by how much more CPU time threads have for themselves outside of windows.
func (p *pace) full() float64 {
	if p.insideWall == 0 || p.outsideWall == 0 {
		return 1
	}
	return min(max(p.outside/p.outsideWall/max(p.inside/p.insideWall, 1e-3), leastFactor), mostFactor)
}

// factor is by how much more a call in a window counts. Where probes take much more than
// the thread itself, what is left for itself is a small difference, not known well: then
// a thread that has time left in windows is taken to do as much as outside.
func (p *pace) factor() float64 {
	full := p.full()
	if p.insideWall == 0 || p.inside >= known*p.ran {
		return full
	}
	part := (p.wanted/p.insideWall - hasTime) / (noTime - hasTime)
	return 1 + (full-1)*min(max(part, 0), 1)
}

// doubt is the part of a sum that may be there by the factor alone, or is missing by it: a
// thread that spins while it waits has not done less. And what a thread does for itself is slower
// after a probe, which has taken its place in the processor's caches.
func (p *pace) doubt() float64 {
	f := p.factor()
	displaced := 0.0
	if p.ran > 0 {
		displaced = displacing * max(1-p.inside/p.ran, 0)
	}
	return max(max(1-1/f, p.full()/f-1, 0)+displaced, unknownDoubt)
}

// round is right on average.
func (p *pace) round(weight float64) uint32 {
	whole := math.Floor(weight)
	if rand.Float64() < weight-whole {
		whole++
	}
	return uint32(whole)
}
