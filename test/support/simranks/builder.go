// SPDX-License-Identifier: Apache-2.0

package simranks

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/gpu-gadgets/gpu-gadgets/internal/collective"
)

// builder makes the actions of the processes.
type builder struct {
	s           *Scenario
	job         *Job
	random      *rand.Rand
	step        time.Duration
	checkpoints bool
	world       *Group
	// tensor and data are the groups of a process, if the job is split so.
	tensor, data map[int]*Group
	pipeline     bool
	straggle     time.Duration
	// reads: one process reads the loss at each step, and the others at each second to tenth. Steps are limited by the GPU, so
	// these issue more than is done.
	reads bool
	// buckets is the number of collectives in which gradients are reduced.
	buckets int
	// slower is how much longer all ranks compute from the fault on.
	slower float64
}

// all are the numbers of all processes.
func (b *builder) all() []int {
	all := make([]int, b.s.Size)
	for n := range all {
		all[n] = n
	}
	return all
}

// layout draws how the job is parallel.
func (b *builder) layout() {
	all := b.all()
	b.world = b.job.group("world", all...)
	b.s.Layout = "data parallel"
	b.tensor, b.data = map[int]*Group{}, map[int]*Group{}
	split := 0
	for _, d := range []int{8, 4, 2} {
		if b.s.Size%d == 0 && b.s.Size > d {
			split = d
			break
		}
	}
	switch layout := b.random.IntN(3); {
	case b.s.Name == "order" && b.s.Size >= 2:
		// A second communicator of the same processes, as libraries make them.
		other := b.job.group("library", all...)
		for _, n := range all {
			b.tensor[n] = other
		}
		b.s.Layout = "two communicators of all"
	case b.s.Name == "unmatched" || layout == 2 && b.s.Name != "mismatch" && b.s.Name != "one more":
		b.pipeline = true
		b.s.Layout = "pipeline"
	case layout == 1 && split > 0:
		b.split(split)
	}
}

// split makes a group of each so many processes, whose tensors are divided, and one of those at the same place in each.
func (b *builder) split(size int) {
	all := b.all()
	b.s.Layout = fmt.Sprintf("split: tensor %d, data %d", size, b.s.Size/size)
	b.tensor, b.data = map[int]*Group{}, map[int]*Group{}
	for t := 0; t < b.s.Size/size; t++ {
		members := all[t*size : (t+1)*size]
		g := b.job.group(fmt.Sprintf("tensor%d", t), members...)
		for _, n := range members {
			b.tensor[n] = g
		}
	}
	for d := range size {
		var members []int
		for n := d; n < b.s.Size; n += size {
			members = append(members, n)
		}
		g := b.job.group(fmt.Sprintf("data%d", d), members...)
		for _, n := range members {
			b.data[n] = g
		}
	}
}

// inject sets the truth and gives each process its actions.
func (b *builder) inject() {
	s := b.s
	s.Culprit = b.random.IntN(s.Size)
	if s.Name == "straggler" {
		b.straggle = max(60*time.Millisecond, b.step*2/5)
	}
	truth := Truth{Processes: []int{s.Culprit}}
	switch s.Name {
	case "missing", "missing late":
		truth.Reason = collective.Missing
		if b.pipeline {
			truth.Reason = collective.Unmatched
		}
	case "stopped", "gone", "aborted":
		truth.Reason = collective.Dead
	case "straggler":
		truth.Reason = collective.Straggler
		if s.Layout == "pipeline" {
			b.pipeline = false // the stages of a pipeline run one after the other
			s.Layout = "data parallel"
		}
	case "mismatch", "one more":
		truth = Truth{Reason: collective.Mismatch, Hash: b.groupOf(s.Culprit).Hash}
	case "slow":
		g := b.groupOf(s.Culprit)
		truth = Truth{Reason: collective.Slow, Hash: g.Hash}
	case "unmatched":
		truth.Reason = collective.Unmatched
	case "order":
		truth = Truth{Reason: collective.Mismatch}
	}
	s.Truth = truth
	for _, p := range b.job.processes {
		n := 0
		done := false
		p.next = func() []action {
			n++
			if s.isLost(p.number, p.host) {
				return []action{{verb: compute, span: Forever}}
			}
			isFault := !done && p.host >= s.Fault && p.number == s.Culprit
			if isFault {
				done, s.wrong = true, p.counts[countKey{b.groupOf(p.number), 0, 0}]+1
			}
			return b.actions(p, n, isFault)
		}
	}
}

// groupOf is where the fault of a process shows.
func (b *builder) groupOf(n int) *Group {
	if g := b.tensor[n]; g != nil {
		return g
	}
	return b.world
}

func (b *builder) jitter(d time.Duration) time.Duration {
	return time.Duration(float64(d) * (0.9 + 0.2*b.random.Float64()))
}

// actions of one step of a process.
func (b *builder) actions(p *process, n int, isFault bool) (out []action) {
	s := b.s
	think := func(d time.Duration) { out = append(out, action{verb: compute, span: d}) }
	do := func(g *Group, kind collective.Kind, count uint64, peer int) {
		out = append(out, action{verb: call, group: g, op: collective.Operation{Kind: kind, Count: count, DType: collective.Bfloat16, Peer: peer, Stream: 7}})
	}
	if b.reads {
		think(b.jitter(b.step / 4))
		out = append(out, action{verb: launch, span: b.jitter(b.step * 3 / 4)})
	} else {
		think(b.jitter(b.step))
	}
	if b.slower > 0 && p.host >= s.Fault {
		think(time.Duration(b.slower * float64(b.step)))
	}
	if p.number == s.Culprit && b.straggle > 0 && p.host >= s.Fault {
		think(b.straggle)
	}
	if b.checkpoints && n%200 == 100 {
		think(b.jitter(2 * time.Second))
	}
	if b.checkpoints && n%200 == 150 && p.number == 0 {
		think(b.jitter(2 * time.Second))
	}
	first := len(out)
	switch {
	case b.pipeline:
		if p.number > 0 {
			do(b.world, collective.Recv, 4096, p.number-1)
		}
		think(b.jitter(2 * time.Millisecond))
		out = append(out, action{verb: wait})
		if p.number < s.Size-1 {
			do(b.world, collective.Send, 4096, p.number+1)
		}
		if n%10 == 0 {
			do(b.world, collective.AllReduce, 1, collective.None)
		}
	case b.tensor[p.number] != nil && s.Name == "order":
		do(b.world, collective.AllReduce, 1<<20, collective.None)
		do(b.tensor[p.number], collective.AllReduce, 1<<18, collective.None)
	case b.tensor[p.number] != nil:
		for range max(2, b.buckets) {
			do(b.tensor[p.number], collective.AllReduce, 1<<18, collective.None)
			think(b.jitter(3 * time.Millisecond))
		}
		do(b.tensor[p.number], collective.AllGather, 1<<16, collective.None)
		out = append(out, action{verb: wait})
		do(b.data[p.number], collective.ReduceScatter, 1<<20, collective.None)
		do(b.data[p.number], collective.AllGather, 1<<20, collective.None)
	default:
		do(b.world, collective.Broadcast, 64, 0)
		think(b.jitter(5 * time.Millisecond))
		for i := range max(4, b.buckets) {
			do(b.world, collective.AllReduce, 1<<20+uint64(i), collective.None)
		}
	}
	if !b.reads || p.number == 0 || n%(2+s.Seed%9) == 0 {
		out = append(out, action{verb: wait})
	}
	if isFault {
		out = b.faulty(out, first)
	}
	return out
}

// faulty changes the actions of the step in which the culprit goes wrong. Those before
// first are its computation.
func (b *builder) faulty(out []action, first int) []action {
	calls := []int{}
	for i := first; i < len(out); i++ {
		if out[i].verb == call {
			calls = append(calls, i)
		}
	}
	at := calls[b.random.IntN(len(calls))]
	insert := func(i int, a action) {
		out = append(out[:i], append([]action{a}, out[i:]...)...)
	}
	switch b.s.Name {
	case "missing", "missing late":
		insert(first, action{verb: compute, span: Forever})
	case "unmatched":
		// It skips its call and continues with work that does not end.
		out = append(out[:calls[0]:calls[0]], action{verb: compute, span: Forever})
	case "stopped":
		insert(at, action{verb: die, state: collective.Stopped, span: Forever})
	case "gone":
		insert(at, action{verb: die, state: collective.Gone, span: Forever})
	case "aborted":
		insert(at, action{verb: die, state: collective.Aborted, span: Forever})
	case "mismatch":
		op := &out[calls[0]].op
		switch b.random.IntN(3) {
		case 0:
			op.Count++
		case 1:
			op.DType = collective.Float32
		default:
			op.Kind, op.Peer = collective.Reduce, 0
		}
	case "one more":
		again := out[calls[0]]
		again.op.Kind, again.op.Peer = collective.AllGather, collective.None
		insert(calls[0], again)
	case "slow":
		out[calls[0]].stuck = true
	case "order":
		out[calls[0]], out[calls[1]] = out[calls[1]], out[calls[0]]
	}
	return out
}
