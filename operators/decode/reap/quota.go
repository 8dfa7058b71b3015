// SPDX-License-Identifier: Apache-2.0

package reap

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/cilium/ebpf"

	"github.com/gpu-gadgets/gpu-gadgets/internal/ig/mapiter"
)

// quotaSlots and the tables are those of bpf/process/quota.h.
const (
	quotaSlots = 4
	quotaAll   = 0

	quotaStacks, quotaRows, quotaLive, quotaProcesses = 0, 1, 2, 3
)

// quota mirrors struct quota.
type quota struct {
	Used    [quotaSlots]int64
	Refused [quotaSlots]uint64
	PID     uint32
	_       uint32
}

// Quotas are the maps of a gadget with bpf/process/quota.h: what each tenant, a container, has in
// tables that all share. Programs count what they put there, and a Reaper what is left when
// entries were removed.
type Quotas struct {
	Tenants *ebpf.Map // quotas_by_tenant
	Rows    *ebpf.Map // rows_by_stack: the second word of a key is the stack
	Live    *ebpf.Map // live_by_pointer; may be nil
}

// Refusal counts the entries that a tenant was refused since the last pass.
type Refusal struct {
	Tenant uint64
	// PID is that of a process of the tenant.
	PID                           uint32
	Stacks, Rows, Live, Processes uint64
}

// sum counts all that was refused.
func (r Refusal) sum() uint64 { return r.Stacks + r.Rows + r.Live + r.Processes }

// text says what was refused, and what has become of it.
func (r Refusal) text() string {
	text := fmt.Sprintf("%d stacks, %d rows and %d pointers, which are under [unknown]", r.Stacks, r.Rows, r.Live)
	if r.Processes > 0 {
		text += fmt.Sprintf(", and for %d calls of new processes, which are in no row", r.Processes)
	}
	return text
}

// quotas corrects the counts. The zero value has no maps and does nothing.
type quotas struct {
	Quotas
	processes, stacks *ebpf.Map
	refused           map[uint64][quotaSlots]uint64 // by tenant, as of the last pass
	full              int                           // passes in which a table was, since the last correction
}

// correctFull is after how many passes with a table that is half full tenants are counted again, which
// reads all of it.
const correctFull = 4

// pass reads what was refused, and counts again where entries were removed, or where a table is
// half full by its counter, which misses some of what programs do.
func (q *quotas) pass(isRemoved bool) (refusals []Refusal, err error) {
	if q.Tenants == nil {
		return nil, nil
	}
	all := map[uint64]quota{}
	size := [quotaSlots]uint32{quotaStacks: q.stacks.MaxEntries(), quotaRows: q.Rows.MaxEntries(), quotaProcesses: q.processes.MaxEntries()}
	if q.Live != nil {
		size[quotaLive] = q.Live.MaxEntries()
	}
	isFull := false
	if err := mapiter.Entries(q.Tenants, func(key, value []byte) {
		var now quota
		if _, err := binary.Decode(value, binary.NativeEndian, &now); err != nil {
			return
		}
		tenant := binary.NativeEndian.Uint64(key)
		all[tenant] = now
		for slot, used := range now.Used {
			isFull = isFull || used > int64(size[slot])/2
		}
		was := q.refused[tenant]
		r := Refusal{Tenant: tenant, PID: now.PID,
			Stacks: now.Refused[quotaStacks] - was[quotaStacks], Rows: now.Refused[quotaRows] - was[quotaRows],
			Live: now.Refused[quotaLive] - was[quotaLive], Processes: now.Refused[quotaProcesses] - was[quotaProcesses]}
		if r.sum() > 0 {
			refusals = append(refusals, r)
		}
	}); err != nil {
		return nil, fmt.Errorf("read quotas: %w", err)
	}
	q.refused = map[uint64][quotaSlots]uint64{}
	for tenant, now := range all {
		q.refused[tenant] = now.Refused
	}
	if isFull {
		q.full++
	}
	if isRemoved || q.full >= correctFull {
		q.full = 0
		return refusals, q.correct(all)
	}
	return refusals, nil
}

// correct counts what tenants have. What programs add meanwhile is not in it until the next time.
func (q *quotas) correct(all map[uint64]quota) error {
	now, unnamed, err := q.count()
	if err != nil {
		return err
	}
	for tenant, was := range all {
		is := was
		is.Used = now[tenant]
		if tenant != quotaAll {
			// A stack without a row may be any tenant's that has made more than its rows have.
			is.Used[quotaStacks] += min(unnamed, max(0, was.Used[quotaStacks]-is.Used[quotaStacks]))
		}
		if is.Used == ([quotaSlots]int64{}) && tenant != quotaAll {
			// With room for one that starts; if it makes something just now, that is counted next time.
			if _, err := erase(q.Tenants, tenant); err != nil {
				return err
			}
			delete(q.refused, tenant)
			continue
		}
		value, err := binary.Append(nil, binary.NativeEndian, is)
		if err != nil {
			return err
		}
		if err := q.Tenants.Update(tenant, value, ebpf.UpdateExist); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return fmt.Errorf("correct a quota: %w", err)
		}
	}
	return nil
}

// count counts entries by tenant, and the stacks that no row has.
func (q *quotas) count() (now map[uint64][quotaSlots]int64, unnamed int64, err error) {
	tenants := map[uint64]uint64{} // by process
	now = map[uint64][quotaSlots]int64{}
	add := func(tenant uint64, slot int) {
		n := now[tenant]
		n[slot]++
		now[tenant] = n
	}
	if err := mapiter.Entries(q.processes, func(key, value []byte) {
		tenant := binary.NativeEndian.Uint64(value[len(value)-16:])
		tenants[binary.NativeEndian.Uint64(key)] = tenant
		add(quotaAll, quotaProcesses)
		add(tenant, quotaProcesses)
	}); err != nil {
		return nil, 0, fmt.Errorf("read processes: %w", err)
	}
	type named struct{ tenant, stack uint64 }
	seen, isNamed := map[named]bool{}, map[uint64]bool{}
	if err := mapiter.Entries(q.Rows, func(key, _ []byte) {
		tenant, stack := tenants[binary.NativeEndian.Uint64(key)], binary.NativeEndian.Uint64(key[8:])
		add(quotaAll, quotaRows)
		add(tenant, quotaRows)
		isNamed[stack] = true
		if !seen[named{tenant, stack}] {
			seen[named{tenant, stack}] = true
			add(tenant, quotaStacks)
		}
	}); err != nil {
		return nil, 0, fmt.Errorf("count rows: %w", err)
	}
	stacks, err := count(q.stacks)
	if err != nil {
		return nil, 0, err
	}
	if q.Live != nil {
		if err := mapiter.Entries(q.Live, func(key, _ []byte) { add(tenants[binary.NativeEndian.Uint64(key)], quotaLive) }); err != nil {
			return nil, 0, fmt.Errorf("count pointers: %w", err)
		}
	}
	n := now[quotaAll]
	n[quotaStacks], n[quotaLive] = int64(stacks), 0 // of live pointers there is no common counter
	now[quotaAll] = n
	return now, max(0, int64(stacks-len(isNamed))), nil
}
