// SPDX-License-Identifier: Apache-2.0

package timeline

import (
	"github.com/gpu-gadgets/gpu-gadgets/internal/process/numa"
	"github.com/gpu-gadgets/gpu-gadgets/internal/timeline/weave"
)

const (
	// maxProcesses bounds how many are read each second.
	maxProcesses = 256
	// pagesEvery is how seldom a process's pages are counted by node, which is dear.
	pagesEvery = 10
)

// memory reads the memory of processes. It takes a while, so it is done while
// events come. It is for one goroutine.
type memory struct {
	procfs, sysfs string
	turns         int
	pages         *pages
}

// reading has the values of one moment.
type reading struct {
	at        uint64 // boot ns
	processes []processMemory
	gone      []uint64 // processes that have ended
	nodes     []numa.Node
}

type processMemory struct {
	of    weave.Thread
	what  numa.Process
	nodes map[string]uint64
}

// look reads the processes and the nodes.
func (m *memory) look(all []process) *reading {
	r := &reading{at: bootNow(), nodes: numa.Nodes(m.sysfs)}
	for _, of := range all {
		p, err := numa.Status(m.procfs, of.PID)
		if err != nil {
			r.gone = append(r.gone, of.Process)
			m.pages.forget(of.Process)
			continue
		}
		if m.turns%pagesEvery == 0 {
			m.pages.count(m.procfs, of)
		}
		r.processes = append(r.processes, processMemory{of.Thread, p, m.pages.take(of.Process)})
	}
	m.turns++
	return r
}

func (r *reading) write(w events) {
	for _, p := range r.processes {
		w.Memory(&p.of, r.at, p.what, p.nodes)
	}
	for _, n := range r.nodes {
		w.Node(r.at, n)
	}
}
