// SPDX-License-Identifier: Apache-2.0

package spans

import (
	"maps"
	"os"
	"strconv"
	"time"

	"github.com/gpu-gadgets/gpu-gadgets/internal/process/procmaps"
	"github.com/gpu-gadgets/gpu-gadgets/internal/throttle"
)

// newSpent bounds the processor time that the processes of a tenant cost by mapping files: each time all their mappings
// are read, of which a process may have 65,000.
func newSpent() throttle.Allowances[procmaps.Tenant] {
	return throttle.Allowances[procmaps.Tenant]{Burst: 2 * time.Second, Share: 50}
}

// look inspects a process, now or, if its tenant has cost too much, with a later scan.
func (f *Follower) look(pid uint32) {
	tenant, now := f.cfg.Processes.Tenant(pid), time.Now()
	if f.spent.Pause(tenant, now) > 0 {
		f.later[pid] = true
		return
	}
	delete(f.later, pid)
	f.cost = 0
	cost := procmaps.Cost(f.inspect(pid))
	f.spent.Take(tenant, cost+f.cost, now)
}

// scan is the safety net. With all, known processes are read again, too.
func (f *Follower) scan(all bool) error {
	d, err := os.Open(f.cfg.ProcFS)
	if err != nil {
		return err
	}
	defer d.Close()
	names, err := d.Readdirnames(-1)
	if err != nil {
		return err
	}
	there := map[uint32]bool{}
	now := time.Now()
	isFirst := len(f.known) == 0
	for _, name := range names {
		n, err := strconv.ParseUint(name, 10, 32)
		if err != nil {
			continue
		}
		pid := uint32(n)
		there[pid] = true
		if p := f.known[pid]; all || f.later[pid] || p == nil || (f.events == nil || p.keyless) && now.After(p.next) {
			if isFirst {
				f.inspect(pid) // all the processes of the machine are not what one has caused
			} else {
				f.look(pid)
			}
		}
	}
	for pid, p := range f.known {
		if !there[pid] {
			f.drop(pid, p)
		}
	}
	maps.DeleteFunc(f.later, func(pid uint32, _ bool) bool { return !there[pid] })
	f.spent.ForgetPaid(now)
	return nil
}
