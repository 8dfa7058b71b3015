// SPDX-License-Identifier: Apache-2.0

package simnodes

import (
	"encoding/binary"
	"time"

	"github.com/inspektor-gadget/inspektor-gadget/pkg/datasource"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/gadget-service/api"

	"github.com/gpu-gadgets/gpu-gadgets/internal/collective"
	"github.com/gpu-gadgets/gpu-gadgets/operators/decode/nccl"
)

// Sizes in a row of communicators: of an operation, the newest ones, and the digests.
var (
	operationBytes = binary.Size(nccl.Operation{})
	ringBytes      = nccl.Ring * operationBytes
	digestBytes    = nccl.Digests * 8
)

// newCommunicators has the fields that those who judge ranks read. Its rows are as large as the
// gadget's.
func newCommunicators(register func(datasource.Type, string) (datasource.DataSource, error)) (*table, error) {
	fixed := u64("process", "communicator", "identity", "proc.mntns_id", "collectives", "completed_collectives", "completed_collective_ns",
		"stream", "pending_covered_ns", "pending_boot_ns", "now_boot_ns", "exit_boot_ns", "stack_id")
	fixed = append(fixed, u32("proc.pid", "tid", "late")...)
	fixed = append(fixed, i32("rank", "size", "device")...)
	fixed = append(fixed, chars("proc.comm", 16), chars("name", 32), chars("state", 16), field{name: "ring", kind: api.Kind_Bytes, size: ringBytes},
		field{name: "oldest", kind: api.Kind_Bytes, size: operationBytes}, field{name: "digests", kind: api.Kind_Bytes, size: digestBytes})
	return newTable(register, "communicators", nccl.CommunicatorBytes, fixed, "stack", "k8s.node", "k8s.namespace", "k8s.podName", "k8s.containerName")
}

// newThreads has what operators of ours say of the threads of ranks.
func newThreads(register func(datasource.Type, string) (datasource.DataSource, error)) (*table, error) {
	fixed := append(u64("process"), i32("rank")...)
	fixed = append(fixed, field{name: "last", kind: api.Kind_Bool, size: 1})
	return newTable(register, "collectives", 0, fixed, "communicator", "state", "wchan", "stack", "user_line")
}

// ranks of a slot at a time: rows of communicators, and of their threads.
func (n *node) ranks(s *slot, t time.Duration) (communicators, threads []*api.DataElement) {
	for _, c := range s.communicators {
		communicators = append(communicators, n.communicator(s, c, t))
		threads = append(threads, n.thread(s, c, t))
	}
	return communicators, threads
}

// stacks of a rank, outermost first, as texts of folded stacks.
const (
	waitStack = "<module> (train.py:12); step (train.py:30); synchronize (train.py:90)"
	callStack = "<module> (train.py:12); step (train.py:30); all_reduce (train.py:41)"
	loadStack = "<module> (train.py:12); step (train.py:20); "
)

// stream of all ranks' collectives.
const stream = 7

func (n *node) communicator(s *slot, c communicator, t time.Duration) *api.DataElement {
	j, now := s.job, n.boot(t)
	p := j.progress(s.rank, c.isTensor, t)
	r := n.communicators.newRow()
	r.u64("process", s.process)
	r.u64("communicator", c.identity>>8) // its address in the process
	r.u64("identity", c.identity)
	r.u32("proc.pid", s.pid)
	r.u32("tid", s.pid)
	r.u32("rank", uint32(c.rank))
	r.u32("size", uint32(c.size))
	r.u32("device", uint32(s.device))
	r.chars("proc.comm", "python3")
	r.chars("name", c.name)
	r.chars("state", "active")
	r.u64("collectives", p.issued)
	r.u64("completed_collectives", p.done)
	if p.done > 0 {
		r.u64("completed_collective_ns", n.boot(p.doneAt))
	}
	r.u64("stream", stream)
	if p.isWaiting {
		r.u64("pending_covered_ns", now)
		r.u64("pending_boot_ns", now)
	}
	r.u64("now_boot_ns", now)
	if j.exits && j.hasStopped(s.rank, t) {
		r.u64("exit_boot_ns", n.boot(j.FaultAt))
	}
	n.ring(r.b[r.at("ring"):][:ringBytes], s, c, p)
	writeDigests(r.b[r.at("digests"):][:digestBytes], s, c, p)
	r.text("stack", callStack)
	n.lie(r)
	n.container(r, s)
	return r.data
}

// ring writes the newest operations, field by field as nccl.Operation has them.
func (n *node) ring(b []byte, s *slot, c communicator, p progress) {
	j, size := s.job, ringBytes/nccl.Ring
	for seq := p.issued; seq > 0 && seq+nccl.Ring > p.issued; seq-- {
		step, call := int64((seq-1)/perStep), int((seq-1)%perStep)
		enter := n.boot(j.enter(s.rank, c.isTensor, step, call))
		doneAt, flags := uint64(0), uint8(0)
		if seq <= p.done {
			doneAt, flags = n.boot(j.done(s.rank, c.isTensor, step)), nccl.Done
		}
		o := b[int(seq%nccl.Ring)*size:][:0]
		for _, v := range [...]uint64{seq, seq, seq, 0, enter, enter + 5000, doneAt, j.count(s.rank, c.isTensor, step, call), stream, 1} {
			o = binary.NativeEndian.AppendUint64(o, v)
		}
		for _, v := range [...]uint32{s.pid, ^uint32(0), 0} { // thread, no peer, no reduction
			o = binary.NativeEndian.AppendUint32(o, v)
		}
		_ = append(o, uint8(collective.AllReduce), uint8(collective.Bfloat16), flags)
	}
}

// writeDigests writes those of the newest milestones. They are the same for all ranks but that of a mismatch, from there on.
func writeDigests(b []byte, s *slot, c communicator, p progress) {
	j, digests := s.job, make(collective.Digests, collective.DigestCount)
	newest := p.issued / collective.Milestone
	for m := newest; m > 0 && m+nccl.Digests > newest; m-- {
		called := uint64(0)
		if j.Reason == collective.Mismatch && s.rank == j.Culprit && c.isTensor == j.hasTensor && int64((m*collective.Milestone-1)/perStep) >= j.faultStep {
			called = 1
		}
		digests.Set(m, mix(c.identity, m, called))
	}
	for n, word := range digests {
		binary.NativeEndian.PutUint64(b[8*n:], word)
	}
}

func (n *node) thread(s *slot, c communicator, t time.Duration) *api.DataElement {
	j := s.job
	r := n.threads.newRow()
	r.u64("process", s.process)
	r.u32("rank", uint32(c.rank))
	r.text("communicator", c.id)
	state, stack := "running", waitStack
	switch {
	case j.hasStopped(s.rank, t):
		stack, state = loadStack+j.line(), "sleeping"
		if j.exits {
			stack, state = "", "gone"
		} else if j.Reason == collective.Dead {
			state = "stopped"
		}
	case !j.progress(s.rank, c.isTensor, t).isWaiting:
		stack = callStack
	}
	r.text("state", state)
	r.text("stack", stack)
	return r.data
}
