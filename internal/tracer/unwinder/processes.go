// SPDX-License-Identifier: Apache-2.0

package unwinder

import (
	"time"

	"github.com/gpu-gadgets/gpu-gadgets/internal/process/procmaps"
)

// processes are those of one batch: the mappings of each are read once at most.
type processes struct {
	u       *Unwinder
	now     time.Time
	read    map[uint32]*procmaps.Snapshot // for this batch; nil: it could not be
	tenants map[uint32]procmaps.Tenant
}

func newProcesses(u *Unwinder, now time.Time) *processes {
	return &processes{u, now, map[uint32]*procmaps.Snapshot{}, map[uint32]procmaps.Tenant{}}
}

func (p *processes) tenant(pid uint32) procmaps.Tenant {
	of, ok := p.tenants[pid]
	if !ok {
		of = p.u.cfg.Processes.Tenant(pid)
		p.tenants[pid] = of
	}
	return of
}

// of is a snapshot with the mapping of a miss: one from before, or else that of now, which may be without it; nil: there is none.
func (p *processes) of(miss Miss) *procmaps.Snapshot {
	if _, isRead := p.read[miss.TGID]; !isRead {
		if s := p.u.cfg.Processes.Kept(miss.TGID); s != nil {
			if m, ok := s.Find(miss.Address); ok && m.Start == miss.Start {
				return s
			}
		}
	}
	return p.ofNow(miss.TGID)
}

// ofNow is a snapshot that was read for this batch. Another thread has read it, so that what it costs is not among what
// this one has worked.
func (p *processes) ofNow(pid uint32) *procmaps.Snapshot {
	s, isRead := p.read[pid]
	if !isRead {
		var err error
		s, err = p.u.cfg.Processes.Snapshot(pid)
		cost := procmaps.CostOf(s, err)
		p.u.tenants.Take(p.tenant(pid), cost, p.now)
		p.u.spent.Take(cost, p.now)
		p.read[pid] = s
	}
	return s
}
