// SPDX-License-Identifier: Apache-2.0

package reap

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/cilium/ebpf"

	"github.com/gpu-gadgets/gpu-gadgets/internal/ig/mapiter"
	"github.com/gpu-gadgets/gpu-gadgets/internal/stack"
)

// quota mirrors struct quota.
type quota struct {
	Used    [quotaSlots]int64
	Refused [quotaSlots]uint64
	// Second and Count are of those of a second.
	Second, Count [quotaRates]uint32
	PID           uint32
	_             uint32
}

// Quotas are the maps of a gadget with bpf/process/quota.h: what each tenant, a container, has in
// tables that all share. Programs count what they put there, and a Reaper what is left when
// entries were removed.
type Quotas struct {
	Tenants *ebpf.Map // quotas_by_tenant
	// Tables are those of quotaTables; nil: the gadget has none of that name.
	Tables [quotaSlots]*ebpf.Map
}

// FindQuotas returns the maps of a gadget with such a function; the zero value: it has no quotas.
func FindQuotas(find func(name string) *ebpf.Map) (q Quotas) {
	if q.Tenants = find("quotas_by_tenant"); q.Tenants == nil {
		return q
	}
	for slot, is := range quotaTables {
		if is.name == "" {
			continue
		}
		// Threads have task storage, except in the programs for Linux 5.10.
		if m := find(is.name); m != nil && m.Type() != ebpf.TaskStorage {
			q.Tables[slot] = m
		}
	}
	return q
}

// Refusal counts the entries that a tenant was refused since the last pass.
type Refusal struct {
	Tenant uint64
	// PID is that of a process of the tenant.
	PID uint32
	// Entries by table, as in bpf/process/quota.h.
	Entries [quotaSlots]uint64
}

// sum counts all that was refused.
func (r Refusal) sum() (sum uint64) {
	for _, n := range r.Entries {
		sum += n
	}
	return sum
}

// text says what was refused, and what has become of it.
func (r Refusal) text() string {
	var fates []string
	entries := map[string][]string{} // by fate
	for slot, n := range r.Entries {
		if is := quotaTables[slot]; n > 0 {
			if entries[is.fate] == nil {
				fates = append(fates, is.fate)
			}
			entries[is.fate] = append(entries[is.fate], fmt.Sprintf("%d %s", n, is.entries))
		}
	}
	var parts []string
	for _, fate := range fates {
		parts = append(parts, fmt.Sprintf("%s (%s)", strings.Join(entries[fate], ", "), fate))
	}
	return strings.Join(parts, ", ")
}

// quotas corrects the counts. The zero value has no maps and does nothing.
type quotas struct {
	Quotas
	processes, stacks, symbols, kernels *ebpf.Map                     // the last two may be nil
	refused                             map[uint64][quotaSlots]uint64 // by tenant, as of the last pass
	full                                int                           // passes in which a table was, since the last correction
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
	size := [quotaSlots]uint32{quotaStacks: q.stacks.MaxEntries(), quotaProcesses: q.processes.MaxEntries()}
	for slot, m := range q.names() {
		size[slot] = m.MaxEntries()
	}
	for slot, table := range q.Tables {
		if table != nil {
			size[slot] = uint32(float64(table.MaxEntries()) * cmp.Or(quotaTables[slot].own, 1))
		}
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
		r := Refusal{Tenant: tenant, PID: now.PID}
		for slot := range r.Entries {
			r.Entries[slot] = now.Refused[slot] - was[slot]
		}
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
	// To count names reads all stacks: only where names get scarce.
	names := q.names()
	maps.DeleteFunc(names, func(slot int, m *ebpf.Map) bool { return all[quotaAll].Used[slot] <= int64(m.MaxEntries())/2 })
	now, unnamed, err := q.count(names)
	if err != nil {
		return err
	}
	for tenant, was := range all {
		is := was
		is.Used = now[tenant]
		for slot := range q.names() {
			if names[slot] == nil && (is.Used != [quotaSlots]int64{} || tenant == quotaAll) {
				is.Used[slot] = was.Used[slot]
			}
		}
		if tenant != quotaAll {
			// A stack without a row may be any tenant's that has made more than its rows have, and so may a name.
			for slot, n := range unnamed {
				is.Used[slot] += min(n, max(0, was.Used[slot]-is.Used[slot]))
			}
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

// names are the maps of names that a gadget has.
func (q *quotas) names() map[int]*ebpf.Map {
	all := map[int]*ebpf.Map{quotaSymbols: q.symbols, quotaKernels: q.kernels}
	maps.DeleteFunc(all, func(_ int, m *ebpf.Map) bool { return m == nil })
	return all
}

// ids are the keys of stacks and of names, by slot.
func (q *quotas) ids(names map[int]*ebpf.Map) (map[int]map[uint64]bool, error) {
	all := maps.Clone(names)
	all[quotaStacks] = q.stacks
	ids := map[int]map[uint64]bool{}
	for slot, m := range all {
		ids[slot] = map[uint64]bool{}
		if err := mapiter.Entries(m, func(key, _ []byte) { ids[slot][binary.NativeEndian.Uint64(key)] = true }); err != nil {
			return nil, fmt.Errorf("read %s: %w", m, err)
		}
	}
	return ids, nil
}

// tally counts entries by tenant, and each stack and each name once for each tenant.
type tally struct {
	used    map[uint64][quotaSlots]int64
	ids     map[int]map[uint64]bool
	tenants map[int]map[uint64][]uint64 // of each stack and each name, by slot
}

func (t *tally) add(tenant uint64, slot int) {
	n := t.used[tenant]
	n[slot]++
	t.used[tenant] = n
}

// name counts a stack or a name that a tenant has, if it is one.
func (t *tally) name(tenant uint64, slot int, id uint64) {
	if !t.ids[slot][id] || slices.Contains(t.tenants[slot][id], tenant) {
		return
	}
	if t.tenants[slot] == nil {
		t.tenants[slot] = map[uint64][]uint64{}
	}
	t.tenants[slot][id] = append(t.tenants[slot][id], tenant)
	t.add(tenant, slot)
}

// count counts entries by tenant, of these names, too, and the stacks and the names that no row has, by slot.
func (q *quotas) count(names map[int]*ebpf.Map) (now map[uint64][quotaSlots]int64, unnamed map[int]int64, err error) {
	tenants := map[uint64]uint64{} // by process
	t := tally{used: map[uint64][quotaSlots]int64{}, tenants: map[int]map[uint64][]uint64{}}
	if err := mapiter.Entries(q.processes, func(key, value []byte) {
		tenant := binary.NativeEndian.Uint64(value[len(value)-16:])
		tenants[binary.NativeEndian.Uint64(key)] = tenant
		t.add(quotaAll, quotaProcesses)
		t.add(tenant, quotaProcesses)
	}); err != nil {
		return nil, nil, fmt.Errorf("read processes: %w", err)
	}
	if t.ids, err = q.ids(names); err != nil {
		return nil, nil, err
	}
	for slot, table := range q.Tables {
		if table == nil {
			continue
		}
		is := quotaTables[slot]
		if err := mapiter.Entries(table, func(key, value []byte) {
			process := key
			if is.processInValue {
				process = value
			}
			tenant := tenants[binary.NativeEndian.Uint64(process)]
			t.add(quotaAll, slot)
			t.add(tenant, slot)
			if is.stackAt > 0 {
				t.name(tenant, quotaStacks, binary.NativeEndian.Uint64(key[8*is.stackAt:]))
			}
			if is.kernelAt > 0 {
				t.name(tenant, quotaKernels, binary.NativeEndian.Uint64(key[8*is.kernelAt:]))
			}
			for ; is.stackInValue && len(value) >= 8; value = value[8:] {
				t.name(tenant, quotaStacks, binary.NativeEndian.Uint64(value))
			}
		}); err != nil {
			return nil, nil, fmt.Errorf("count %s: %w", is.name, err)
		}
	}
	if names[quotaSymbols] != nil {
		if err := mapiter.Entries(q.stacks, func(key, value []byte) {
			raw, err := stack.DecodeStack(value)
			if err != nil {
				return
			}
			for _, tenant := range t.tenants[quotaStacks][binary.NativeEndian.Uint64(key)] {
				for _, frame := range raw.Python {
					t.name(tenant, quotaSymbols, frame.Symbol)
				}
			}
		}); err != nil {
			return nil, nil, fmt.Errorf("read stacks: %w", err)
		}
	}
	n := t.used[quotaAll]
	for slot, is := range quotaTables {
		if is.own > 0 {
			n[slot] = 0
		}
	}
	unnamed = map[int]int64{}
	for slot, ids := range t.ids {
		n[slot] = int64(len(ids))
		unnamed[slot] = int64(len(ids) - len(t.tenants[slot]))
	}
	t.used[quotaAll] = n
	return t.used, unnamed, nil
}
