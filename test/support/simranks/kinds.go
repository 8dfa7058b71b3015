// SPDX-License-Identifier: Apache-2.0

package simranks

import (
	"math/rand/v2"
	"time"

	"github.com/gpu-gadgets/gpu-gadgets/internal/collective"
)

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
