// SPDX-License-Identifier: Apache-2.0

package recording

import "github.com/gpu-gadgets/gpu-gadgets/internal/profile"

// process is that of a new row.
func (r *Recording) process(of profile.Process) *process {
	p := r.processes[of.ID]
	if p == nil {
		p = &process{}
		if r.Tenant != nil {
			p.tenant = r.Tenant(of.PID)
		}
		r.processes[of.ID] = p
	}
	return p
}

// leave notes that the kernel has forgotten a row.
func (r *Recording) leave(have *recorded) { have.gone = r.gone.Push(have.process.tenant, have) }

// back notes that the kernel has a row, again.
func (r *Recording) back(have *recorded) {
	if have.gone != nil {
		r.gone.Remove(have.process.tenant, have.gone)
		have.gone = nil
	}
}

// forget drops rows beyond MaxGone. Tenants with few of them lose none: those with more have the same number afterwards.
func (r *Recording) forget() {
	ended := false
	for _, have := range r.gone.Excess(MaxGone) {
		delete(r.rows, have.id)
		r.back(have)
		r.Forgotten++
		if have.process.rows--; have.process.rows == 0 {
			delete(r.processes, have.row.Process.ID)
			ended = true
		}
	}
	if ended {
		r.peaks.Forget(func(process uint64) bool { return r.processes[process] == nil })
	}
}
