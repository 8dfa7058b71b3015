// SPDX-License-Identifier: Apache-2.0

package timeline

import (
	"cmp"
	"errors"
	"io/fs"
	"slices"

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
	noPages       bool // this kernel is without NUMA
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
func (m *memory) look(watched []weave.Thread) *reading {
	r := &reading{at: bootNow(), nodes: numa.Nodes(m.sysfs)}
	for _, t := range watched {
		p, err := numa.Status(m.procfs, t.PID)
		if err != nil {
			r.gone = append(r.gone, t.Process)
			continue
		}
		var nodes map[string]uint64
		if m.turns%pagesEvery == 0 && !m.noPages {
			nodes, err = numa.Pages(m.procfs, t.PID)
			m.noPages = errors.Is(err, fs.ErrNotExist)
		}
		r.processes = append(r.processes, processMemory{t, p, nodes})
	}
	m.turns++
	return r
}

// watched are the processes of events, by their ids.
type watched map[uint64]weave.Thread

func (all watched) see(t *weave.Thread) {
	if _, ok := all[t.Process]; !ok && len(all) < maxProcesses {
		all[t.Process] = *t
	}
}

func (all watched) list() []weave.Thread {
	out := make([]weave.Thread, 0, len(all))
	for _, t := range all {
		out = append(out, t)
	}
	slices.SortFunc(out, func(a, b weave.Thread) int {
		return cmp.Or(cmp.Compare(a.PID, b.PID), cmp.Compare(a.Process, b.Process))
	})
	return out
}

func (r *reading) write(w events) {
	for _, p := range r.processes {
		w.Memory(&p.of, r.at, p.what, p.nodes)
	}
	for _, n := range r.nodes {
		w.Node(r.at, n)
	}
}
