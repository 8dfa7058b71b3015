// SPDX-License-Identifier: Apache-2.0

package simnodes

import (
	"fmt"
	"math"
	"time"

	"github.com/gpu-gadgets/gpu-gadgets/internal/collective"
)

// Job is a training job: its ranks compute, call NCCL, and wait, step after step.
//
// A step's collectives are those of the tensor group, which the rank waits for, and then those
// of the world, which it waits for at the step's end.
type Job struct {
	Number, Size int
	// First is the slot of rank 0.
	First int
	// Reason is the verdict that is right from FaultAt on; "": there is no fault.
	Reason  collective.Reason
	Culprit int // its rank of the world
	FaultAt time.Duration
	exits   bool // the culprit, instead of being stopped

	node string // of the culprit
	pid  uint32

	seed      uint64
	step      time.Duration
	phase     time.Duration
	faultStep int64
	hasTensor bool
	straggle  time.Duration
}

// Collectives of a step, in each of its communicators.
const perStep = 4

// tensorSize is the number of ranks of a tensor group: those of a node.
const tensorSize = devices

// within a step: calls are apart by apart, ranks by jitter at most, and waits end after waited.
const (
	apart  = 200 * time.Microsecond
	jitter = 4 * time.Millisecond
	waited = 10 * time.Millisecond
)

// never is a step that no job reaches.
const never = int64(math.MaxInt64)

func (f *Fleet) newJob(n, first, size int) *Job {
	seed := mix(f.cfg.Seed, 2, uint64(n))
	j := &Job{
		Number: n, Size: size, First: first, seed: seed, faultStep: never,
		step:      400*time.Millisecond + time.Duration(mix(seed, 1)%800)*time.Millisecond,
		phase:     time.Duration(mix(seed, 2)%1000) * time.Millisecond,
		Culprit:   int(mix(seed, 3) % uint64(size)),
		hasTensor: size > 2*tensorSize && size%tensorSize == 0,
	}
	at := f.cfg.Fault
	if f.cfg.FaultSpread > 0 && n > 0 {
		at += time.Duration(mix(seed, 4) % uint64(f.cfg.FaultSpread))
	}
	switch (n + 1) % 6 {
	case 1:
		j.Reason = collective.Missing
	case 3:
		j.Reason = collective.Mismatch
	case 4:
		j.Reason, j.exits = collective.Dead, n%12 < 6
	case 5:
		if f.cfg.Straggle > 0 && size > 2 { // of two, neither is the last by more than chance
			j.Reason, j.straggle = collective.Straggler, f.cfg.Straggle
			j.step = 600 * time.Millisecond
		}
	}
	if j.Reason != "" {
		j.faultStep = int64((at-j.phase)/j.step) + 1
		j.FaultAt = j.startOf(j.faultStep)
	}
	return j
}

// startOf a step, of the rank that is first.
func (j *Job) startOf(step int64) time.Duration { return j.phase + time.Duration(step)*j.step }

// Truth is the right answer about the job's fault.
type Truth struct {
	Reason       collective.Reason
	Job          string // the name of its communicator
	Communicator string // in which the culprit is at fault, as ID
	Rank         int    // in that communicator
	Node         string
	PID          uint32
	// Line of the culprit that a verdict shows; "": it shows none.
	Line string
	// Since the ranks wait.
	Since time.Duration
}

// Truth of a job with a fault.
func (j *Job) Truth() Truth {
	c := j.communicatorOf(j.Culprit, j.hasTensor)
	t := Truth{Reason: j.Reason, Job: j.name(), Communicator: c.id, Rank: c.rank,
		Node: j.node, PID: j.pid, Since: j.FaultAt}
	if j.Reason == collective.Missing || j.Reason == collective.Dead && !j.exits { // of an exited process, the last one that was seen
		t.Line = j.line()
	}
	return t
}

func (j *Job) name() string { return fmt.Sprintf("job-%03d", j.Number) }

// line is that on which the culprit is.
func (j *Job) line() string { return fmt.Sprintf("load_batch (data.py:%d)", 1000+j.Number) }

// communicator is a rank of one.
type communicator struct {
	identity   uint64
	id, name   string
	rank, size int
	isTensor   bool
}

func (j *Job) communicatorOf(rank int, isTensor bool) communicator {
	c := communicator{identity: mix(j.seed, 5) | 1<<63, name: j.name(), rank: rank, size: j.Size, isTensor: isTensor}
	if isTensor {
		group := rank / tensorSize
		c.identity, c.name = mix(j.seed, 6, uint64(group))|1<<63, fmt.Sprintf("%s-tensor-%d", j.name(), group)
		c.rank, c.size = rank%tensorSize, tensorSize
	}
	c.id = collective.Communicator{Hash: c.identity}.ID()
	return c
}

// sizes are how many communicators of a size there are.
type sizes struct{ size, count int }

func (j *Job) communicators() []sizes {
	all := []sizes{{j.Size, 1}}
	if j.hasTensor {
		all = append(all, sizes{tensorSize, j.Size / tensorSize})
	}
	return all
}

// offset is by how much a rank is later in a step than the first one.
func (j *Job) offset(rank int, step int64) time.Duration {
	d := time.Duration(mix(j.seed, 7, uint64(rank), uint64(step)) % uint64(jitter))
	if rank == j.Culprit && step >= j.faultStep {
		d += j.straggle
	}
	return d
}

// enter is when a rank calls a collective of a step: its calls of the tensor group come first.
func (j *Job) enter(rank int, isTensor bool, step int64, call int) time.Duration {
	t := j.startOf(step) + j.offset(rank, step) + time.Duration(call)*apart
	if j.hasTensor && !isTensor {
		t = j.done(rank, true, step) + time.Duration(call+1)*apart
	}
	return t
}

// done is when the wait of a rank for a step's collectives of a communicator ends.
func (j *Job) done(rank int, isTensor bool, step int64) time.Duration {
	t := j.startOf(step) + jitter + waited
	if step >= j.faultStep && (!isTensor || j.isWithCulprit(rank)) {
		t += j.straggle
	}
	if !isTensor {
		t += 2 * waited
	}
	return t
}

// isWithCulprit: the rank is in the culprit's tensor group.
func (j *Job) isWithCulprit(rank int) bool { return rank/tensorSize == j.Culprit/tensorSize }

// hangs: from its faulty step on, nothing is done any more.
func (j *Job) hangs() bool { return j.Reason != "" && j.Reason != collective.Straggler }

// hasStopped reports whether the rank is the culprit, and makes no more calls.
func (j *Job) hasStopped(rank int, t time.Duration) bool {
	return rank == j.Culprit && t >= j.FaultAt && (j.Reason == collective.Missing || j.Reason == collective.Dead)
}

// progress of a rank in a communicator, at a time.
type progress struct {
	issued, done uint64
	doneAt       time.Duration
	isWaiting    bool
}

func (j *Job) progress(rank int, isTensor bool, t time.Duration) (p progress) {
	if t < j.phase {
		return p
	}
	step := int64((t - j.phase) / j.step)
	if j.hangs() && step >= j.faultStep {
		step = j.faultStep
	}
	p.issued, p.done = uint64(step)*perStep, uint64(step)*perStep
	if step > 0 {
		p.doneAt = j.done(rank, isTensor, step-1)
	}
	isStuck := j.hangs() && step == j.faultStep
	if isStuck && (j.hasStopped(rank, t) || !isTensor && j.hasTensor && j.isWithCulprit(rank)) {
		return p // it does not come to these
	}
	for call := range perStep {
		if j.enter(rank, isTensor, step, call) <= t {
			p.issued++
		}
	}
	if isStuck && (!isTensor || j.isWithCulprit(rank)) {
		p.isWaiting = p.issued == p.done+perStep
		return p
	}
	if at := j.done(rank, isTensor, step); at <= t {
		p.done, p.doneAt = p.issued, at
	} else {
		p.isWaiting = p.issued == p.done+perStep
	}
	return p
}

// count is the number of elements of a rank's collective: all ranks' are the same, but for
// that of a mismatch.
func (j *Job) count(rank int, isTensor bool, step int64, call int) uint64 {
	n := uint64(1)<<20 + uint64(call)
	if j.Reason == collective.Mismatch && rank == j.Culprit && step == j.faultStep && call == 0 && isTensor == j.hasTensor {
		n++
	}
	return n
}
