// SPDX-License-Identifier: Apache-2.0

package recording

import (
	"container/list"

	"github.com/gpu-gadgets/gpu-gadgets/internal/profile"
	"github.com/gpu-gadgets/gpu-gadgets/internal/throttle"
)

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
func (r *Recording) leave(have *recorded) {
	its := r.gone[have.process.tenant]
	if its == nil {
		its = list.New()
		r.gone[have.process.tenant] = its
	}
	have.gone = its.PushBack(have)
}

// back notes that the kernel has a row, again.
func (r *Recording) back(have *recorded) {
	if have.gone == nil {
		return
	}
	its := r.gone[have.process.tenant]
	its.Remove(have.gone)
	have.gone = nil
	if its.Len() == 0 {
		delete(r.gone, have.process.tenant)
	}
}

// forget drops rows beyond MaxGone. Tenants with few of them lose none: those with more have the same number afterwards.
func (r *Recording) forget() {
	share := throttle.EqualShare(r.gone, MaxGone)
	forgotten, ended := 0, false
	for _, its := range r.gone {
		for its.Len() > share {
			have := its.Front().Value.(*recorded)
			delete(r.rows, have.id)
			r.back(have)
			forgotten++
			if have.process.rows--; have.process.rows == 0 {
				delete(r.processes, have.row.Process.ID)
				ended = true
			}
		}
	}
	r.Forgotten += forgotten
	if ended {
		r.peaks.Forget(func(process uint64) bool { return r.processes[process] == nil })
	}
}
