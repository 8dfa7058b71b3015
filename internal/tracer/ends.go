// SPDX-License-Identifier: Apache-2.0

package tracer

import (
	"time"

	"github.com/gpu-gadgets/gpu-gadgets/internal/process/procmaps"
)

// endDelay is when a process whose first thread has ended is checked again, before the next scan: with a signal, all
// threads end at about the same time.
const endDelay = 100 * time.Millisecond

// end forgets a process whose first thread has ended, if the process has. Other threads may take as long as they like:
// main called pthread_exit(3), or another thread calls execve(2), which gives it the place of the first.
func (t *Tracer) end(pid uint32) {
	p, start := t.processes[pid], t.selected[pid]
	isKnown := p != nil || t.isSelected(pid)
	if p != nil && p.start > 0 {
		start = p.start
	}
	// Only then: this runs for each process of the machine.
	if isKnown && !procmaps.HasEnded(t.cfg.ProcFS, pid, start) {
		t.endsSoon = t.endsSoon || !t.ending[pid]
		t.ending[pid] = true
		return
	}
	delete(t.ending, pid)
	t.leave(pid)
	t.choose(pid, false)
}

// endLater checks again the processes whose first thread had ended.
func (t *Tracer) endLater() {
	for pid := range t.ending {
		t.end(pid)
	}
}

// leave forgets a process that exited or runs another program.
func (t *Tracer) leave(pid uint32) {
	p := t.processes[pid]
	if p == nil {
		return
	}
	for key := range p.files {
		t.release(p, key)
	}
	delete(t.processes, pid)
	t.alive.Delete(pid)
	delete(t.dirty, pid)
	delete(t.later, pid)
}
