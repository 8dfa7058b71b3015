// SPDX-License-Identifier: Apache-2.0

package spans

import (
	"maps"
	"time"

	"github.com/gpu-gadgets/gpu-gadgets/internal/process/procmaps"
	"github.com/gpu-gadgets/gpu-gadgets/internal/throttle"
)

// room finds out which tenants fill the table.
type room struct {
	// over is when a tenant was last seen with a quarter of the table.
	over  map[procmaps.Tenant]time.Time
	spent throttle.Allowance
}

// overFor is how long a tenant with a quarter of the table makes no room in it.
const overFor = 10 * time.Second

// To find out whose the entries of a full table are takes about 50 ms.
func newRoom() room {
	return room{over: map[procmaps.Tenant]time.Time{}, spent: throttle.Allowance{Burst: time.Second, Share: 50}}
}

// makeRoom removes entries of a full table for a process whose tenant has less than a quarter of them: of each tenant
// with more, all above a quarter. It reports whether there is room; if not, the process is read again with a scan.
func (f *Follower) makeRoom(pid uint32) bool {
	now, tenant := time.Now(), f.cfg.Processes.Tenant(pid)
	if now.Sub(f.room.over[tenant]) < overFor || f.room.spent.Pause(now) > 0 {
		return false
	}
	removed := false
	f.room.spent.Take(throttle.Timed(func() { removed = f.removeSurplus(tenant, now) }), time.Now())
	return removed
}

func (f *Follower) removeSurplus(wants procmaps.Tenant, now time.Time) (removed bool) {
	pids, err := f.cfg.Table.PIDs()
	if err != nil {
		f.warn("the table of processes that publish spans cannot be read: " + err.Error())
		return false
	}
	of := map[procmaps.Tenant][]uint32{}
	for _, pid := range pids {
		tenant := f.cfg.Processes.Tenant(pid)
		of[tenant] = append(of[tenant], pid)
	}
	quarter := f.cfg.Table.Size() / 4
	maps.DeleteFunc(of, func(_ procmaps.Tenant, its []uint32) bool { return len(its) < quarter })
	clear(f.room.over)
	for tenant := range of {
		f.room.over[tenant] = now
	}
	if of[wants] != nil {
		return false
	}
	for _, its := range of {
		for _, pid := range its[quarter:] {
			if f.cfg.Table.Delete(pid) != nil {
				continue
			}
			removed = true
			if p := f.known[pid]; p != nil {
				p.source = Source{}
			}
		}
	}
	return removed
}
