// SPDX-License-Identifier: Apache-2.0

package simranks

import (
	"math/rand/v2"
	"time"

	"github.com/gpu-gadgets/gpu-gadgets/internal/collective"
)

// Truth is the fault of a job.
type Truth struct {
	Reason collective.Reason
	// Processes at fault, by number; none for Slow, and for Mismatch, where Hash says
	// in which communicator.
	Processes []int
	Hash      uint64
}

// Scenario is a job with one fault, the same for the same seed.
type Scenario struct {
	Seed   int
	Name   string
	Layout string
	Size   int
	Truth  Truth
	// Fault is when it begins, End when the run ends. No rank is observed before Begin.
	Begin, Fault, End collective.Time
	// Late[n] is when process n was first observed; nil: from its start.
	Late []collective.Time
	// LostNode is not observed from Fault on, and its processes do nothing; -1: none.
	LostNode int
	// Culprit is the process that goes wrong, and wrong the number of the first collective in which a mismatch is.
	Culprit int
	wrong   uint64
	Job     *Job
}

// Length of a scenario, of which the fault has more than half.
const Length = 110 * time.Second

// faults, in turn; late attaches and layouts are random.
var faults = []string{"missing", "mismatch", "stopped", "gone", "aborted", "straggler", "slow", "unmatched", "order", "missing late"}

// New makes the scenario of a seed.
func New(seed int) *Scenario {
	random := rand.New(rand.NewPCG(uint64(seed), 7))
	s := &Scenario{Seed: seed, Name: faults[seed%len(faults)], Size: 2 + random.IntN(63), Begin: begin}
	s.Fault = begin + collective.Time(20*time.Second) + collective.Time(random.Int64N(int64(15*time.Second)))
	s.End = begin + collective.Time(Length)
	if s.Name == "straggler" {
		s.End = s.Fault + collective.Time(13*time.Minute) // it is judged over minutes
	}
	if seed < 10 {
		s.Size = 2 + seed%3 // small jobs of each kind, too
	}
	j := newJob(random, s.Size)
	j.hasWatchdog = seed/len(faults)%2 == 1 // some jobs of each kind
	s.Job = j
	s.LostNode = -1
	b := &builder{s: s, job: j, random: random, step: time.Duration(150+random.IntN(350)) * time.Millisecond}
	b.layout()
	switch s.Name {
	case "straggler", "mismatch": // which are about when, and what, each host calls
	case "missing late":
		b.reads = j.hasWatchdog // or it is not known what is done
	default:
		b.reads = seed%3 != 1
	}
	b.inject()
	if s.Name == "missing late" {
		s.Late = make([]collective.Time, s.Size)
		for n := range s.Late {
			s.Late[n] = begin + collective.Time(2*time.Second) + collective.Time(random.Int64N(int64(500*time.Millisecond)))
		}
	}
	j.run(s.End)
	return s
}

// Healthy is a job without a fault: random jitter, and a checkpoint of two seconds now
// and then, of one rank or of all.
func Healthy(seed, size int, length time.Duration) *Scenario {
	random := rand.New(rand.NewPCG(uint64(seed), 8))
	s := &Scenario{Seed: seed, Name: "healthy", Size: size, Begin: begin, End: begin + collective.Time(length), Fault: begin + collective.Time(2*length)}
	s.Job = newJob(random, size)
	s.Job.hasWatchdog = seed%2 == 1
	s.LostNode = -1
	b := &builder{s: s, job: s.Job, random: random, step: 300 * time.Millisecond, checkpoints: true}
	b.layout()
	b.reads = true
	b.inject()
	s.Job.run(s.End)
	return s
}

// Slower is a healthy job whose steps take half as long again from Fault on.
func Slower(seed, size int, length time.Duration) *Scenario {
	random := rand.New(rand.NewPCG(uint64(seed), 9))
	s := &Scenario{Seed: seed, Name: "slower", Size: size, Begin: begin, End: begin + collective.Time(length), Fault: begin + collective.Time(length/2)}
	s.Job = newJob(random, size)
	s.LostNode = -1
	b := &builder{s: s, job: s.Job, random: random, step: 300 * time.Millisecond, checkpoints: true, slower: 0.5}
	b.layout()
	b.inject()
	s.Job.run(s.End)
	return s
}

// FarMismatch is a job in which a rank makes another call, or one more, than the others, and all issue dozens of collectives
// after it before they wait.
func FarMismatch(seed int) *Scenario {
	random := rand.New(rand.NewPCG(uint64(seed), 11))
	s := &Scenario{Seed: seed, Name: "mismatch", Size: 3 + random.IntN(30), Begin: begin, End: begin + collective.Time(Length),
		Fault: begin + collective.Time(20*time.Second) + collective.Time(random.Int64N(int64(15*time.Second))), LostNode: -1}
	if seed%4 == 3 {
		s.Name = "one more"
	}
	s.Job = newJob(random, s.Size)
	s.Job.hasWatchdog = seed%2 == 1
	b := &builder{s: s, job: s.Job, random: random, step: time.Duration(150+random.IntN(350)) * time.Millisecond, reads: true, buckets: 20 + random.IntN(20)}
	b.layout()
	b.inject()
	s.Job.run(s.End)
	return s
}

// NodeLost is a job on several nodes, of which one vanishes at Fault, as one that is preempted does.
func NodeLost(seed int) *Scenario { return nodeLost(seed, 0) }

// SplitNodeLost is the same with groups of so many processes, and as many communicators that have ranks on all nodes.
func SplitNodeLost(seed, tensor int) *Scenario { return nodeLost(seed, tensor) }

func nodeLost(seed, tensor int) *Scenario {
	random := rand.New(rand.NewPCG(uint64(seed), 10))
	size := perNode + 1 + random.IntN(3*perNode)
	if tensor > 0 {
		size = (size + perNode - 1) / perNode * perNode
	}
	s := &Scenario{Seed: seed, Name: "node lost", Size: size, Begin: begin, End: begin + collective.Time(4*time.Minute),
		Fault: begin + collective.Time(20*time.Second) + collective.Time(random.Int64N(int64(15*time.Second)))}
	s.LostNode = random.IntN((s.Size + perNode - 1) / perNode)
	s.Job = newJob(random, s.Size)
	s.Job.hasWatchdog = seed%2 == 1
	b := &builder{s: s, job: s.Job, random: random, step: time.Duration(150+random.IntN(350)) * time.Millisecond}
	b.world = b.job.group("world", b.all()...)
	b.reads = seed%3 == 0
	b.pipeline = seed%4 >= 2 && tensor == 0
	if s.Layout = "data parallel"; b.pipeline {
		s.Layout = "pipeline"
	}
	s.Truth = Truth{Reason: collective.Elsewhere, Hash: b.world.Hash}
	if tensor > 0 {
		b.split(tensor)
		s.Truth.Hash = 0 // that of any
	}
	truth := s.Truth
	b.inject()
	s.Truth = truth
	s.Job.run(s.End)
	return s
}

// isLost reports whether a process is on the node that is lost at the time.
func (s *Scenario) isLost(n int, at collective.Time) bool {
	return n/perNode == s.LostNode && at >= s.Fault
}
