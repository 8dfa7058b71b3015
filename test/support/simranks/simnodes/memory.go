// SPDX-License-Identifier: Apache-2.0

package simnodes

import (
	"time"

	"github.com/inspektor-gadget/inspektor-gadget/pkg/datasource"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/gadget-service/api"
)

var counters = []string{"alloc_bytes", "alloc_objects", "freed_bytes", "freed_objects", "implicit_bytes", "implicit_objects",
	"inuse_bytes", "inuse_objects", "peak_bytes"}

func newAllocs(register func(datasource.Type, string) (datasource.DataSource, error)) (*table, error) {
	fixed := u64(append([]string{"process", "stack_id"}, counters...)...)
	fixed = append(fixed, u32("proc.pid")...)
	fixed = append(fixed, i32("device")...)
	fixed = append(fixed, chars("proc.comm", 16), chars("kind", 16))
	return newTable(register, "allocs", 0, fixed, "stack", "k8s.node", "k8s.namespace", "k8s.podName", "k8s.containerName")
}

// allocs of a slot: each stack has one allocation in use, which it replaces in each interval.
func (n *node) allocs(s *slot, t time.Duration) (all []*api.DataElement) {
	times := n.intervals(t)
	for k := range n.fleet.cfg.Stacks {
		r := n.memory.newRow()
		size := sizeOf(k)
		r.u64("process", s.process)
		r.u64("stack_id", uint64(k+1))
		r.u32("proc.pid", s.pid)
		r.u32("device", uint32(s.device))
		r.chars("proc.comm", "python3")
		r.chars("kind", "device")
		r.u64("alloc_bytes", size*times)
		r.u64("alloc_objects", times)
		r.u64("freed_bytes", size*(times-1))
		r.u64("freed_objects", times-1)
		r.u64("inuse_bytes", size)
		r.u64("inuse_objects", 1)
		r.u64("peak_bytes", size)
		r.text("stack", n.fleet.stacks[k])
		n.lie(r)
		n.container(r, s)
		all = append(all, r.data)
	}
	return all
}

func sizeOf(stack int) uint64 { return uint64(stack+1) << 16 }

// intervals since the fleet began, and one before.
func (n *node) intervals(t time.Duration) uint64 { return uint64(max(t, 0)/n.fleet.cfg.Interval) + 1 }

// Rate is how many bytes each node allocates in an interval.
func (f *Fleet) Rate() (bytes uint64) {
	for k := range f.cfg.Stacks {
		bytes += sizeOf(k)
	}
	return bytes * uint64(f.cfg.Processes)
}

// container names that of the slot: a pod for each half of a node's processes.
func (n *node) container(r row, s *slot) {
	r.text("k8s.node", n.claimed)
	r.text("k8s.namespace", s.namespace)
	r.text("k8s.containerName", "worker")
	r.text("k8s.podName", s.pod)
}
