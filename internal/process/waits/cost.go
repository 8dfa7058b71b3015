// SPDX-License-Identifier: Apache-2.0

package waits

import (
	"time"

	"github.com/gpu-gadgets/gpu-gadgets/internal/process/procmaps"
	"github.com/gpu-gadgets/gpu-gadgets/internal/throttle"
)

// Processes may have thousands of threads, 65,536 mappings and as many descriptors each. What they cost is bounded for
// each tenant: what is beyond is not read, and counts as unknown.
const (
	// lookLimit bounds what a tenant's processes cost in one look: 20,000 with 20 descriptors each, or 3,000,000 mappings.
	lookLimit = 2 * time.Second
	// They are not read in a look that begins before the earlier ones are paid back.
	lookBurst = 500 * time.Millisecond
	lookShare = 50

	// linkCost is the time for a descriptor, and again for one that is kept; infoCost for a file, which is read in
	// a thread of its own.
	linkCost   = 2 * time.Microsecond
	infoCost   = 10 * time.Microsecond
	statusCost = 20 * time.Microsecond
	// pidCost is the time for a process that can end a wait, netCost for a network namespace, socketCost for a socket
	// in it.
	pidCost    = 50 * time.Nanosecond
	netCost    = 200 * time.Microsecond
	socketCost = time.Microsecond
)

// account has the cost of a tenant in this look.
type account struct {
	cost  time.Duration
	isCut bool
}

func newSpent() *throttle.Allowances[procmaps.Tenant] {
	return &throttle.Allowances[procmaps.Tenant]{Burst: lookBurst, Share: lookShare}
}

// Next returns a reader for a later look, in which tenants that have cost too much up to now are not read. This one is
// not used any more.
func (r *Reader) Next() *Reader {
	for tenant, a := range r.accounts {
		r.spent.Take(tenant, a.cost, r.began)
	}
	r.spent.ForgetPaid(time.Now())
	return newReader(r.ProcFS, r.maps, r.spent)
}

// Tenant is whom a process belongs to.
func (r *Reader) Tenant(pid uint32) procmaps.Tenant {
	tenant, known := r.tenants[pid]
	if !known {
		tenant = procmaps.TenantOf(r.ProcFS, pid)
		r.tenants[pid] = tenant
	}
	return tenant
}

// IsCut reports whether a process's tenant has cost too much: what was read of its processes is not all.
func (r *Reader) IsCut(pid uint32) bool { return r.account(pid).isCut }

func (r *Reader) account(pid uint32) *account {
	tenant := r.Tenant(pid)
	a := r.accounts[tenant]
	if a == nil {
		a = &account{isCut: r.spent.Pause(tenant, r.began) > 0}
		r.accounts[tenant] = a
	}
	return a
}

// may reports whether something of a process may be read that costs so much, and notes that it is read.
func (r *Reader) may(pid uint32, cost time.Duration) bool {
	a := r.account(pid)
	if a.cost >= lookLimit {
		a.isCut = true
	}
	if a.isCut {
		return false
	}
	a.cost += cost
	return true
}

// take notes what reading something of a process has cost.
func (r *Reader) take(pid uint32, cost time.Duration) { r.account(pid).cost += cost }
