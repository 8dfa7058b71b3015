// SPDX-License-Identifier: Apache-2.0

package timeline

import (
	"cmp"
	"slices"

	"github.com/gpu-gadgets/gpu-gadgets/internal/process/procmaps"
	"github.com/gpu-gadgets/gpu-gadgets/internal/throttle"
	"github.com/gpu-gadgets/gpu-gadgets/internal/timeline/weave"
)

// process is one whose memory is read.
type process struct {
	weave.Thread
	tenant procmaps.Tenant
}

// watched are the processes of events, by their ids, at most maxProcesses, of which the last quarter is for tenants with fewer.
type watched struct {
	procfs  string
	known   map[uint64]process
	refused map[uint64]bool // since the last list, at most maxProcesses
}

func newWatched(procfs string) *watched {
	return &watched{procfs, map[uint64]process{}, map[uint64]bool{}}
}

func (w *watched) see(t *weave.Thread) {
	if _, isKnown := w.known[t.Process]; isKnown || len(w.known) >= maxProcesses || w.refused[t.Process] ||
		len(w.refused) >= maxProcesses {
		return
	}
	tenant := procmaps.TenantOf(w.procfs, t.PID)
	if throttle.HasRoomIn(w.known, maxProcesses, func(_ uint64, p process) bool { return p.tenant == tenant }) {
		w.known[t.Process] = process{*t, tenant}
	} else {
		w.refused[t.Process] = true
	}
}

// list returns them by pid.
func (w *watched) list() []process {
	clear(w.refused)
	out := make([]process, 0, len(w.known))
	for _, p := range w.known {
		out = append(out, p)
	}
	slices.SortFunc(out, func(a, b process) int {
		return cmp.Or(cmp.Compare(a.PID, b.PID), cmp.Compare(a.Process, b.Process))
	})
	return out
}

// forget is for a process that has ended.
func (w *watched) forget(process uint64) { delete(w.known, process) }
