// SPDX-License-Identifier: Apache-2.0

package torch

import (
	"errors"
	"fmt"
	"sync"

	"github.com/inspektor-gadget/inspektor-gadget/pkg/datasource"

	"github.com/gpu-gadgets/gpu-gadgets/internal/ig"
	"github.com/gpu-gadgets/gpu-gadgets/internal/profile"
	"github.com/gpu-gadgets/gpu-gadgets/internal/stack"
)

// subscriptionBefore is ahead of the operators that enrich and name rows, so that ours are
// as all others.
const subscriptionBefore = -200

// poolOf is the pool of one device of a process.
type poolOf struct {
	process uint64
	device  int32
}

// readPool is a reading of one.
type readPool struct {
	totalsOf
	proc []byte // struct gadget_process, as in the rows
}

// attached is how much a pool had allocated when we attached: a constant, but a reading may
// fall between two counters of the same report. What two in a row say is right.
type attached struct {
	last  uint64
	known bool
}

// see takes a reading.
func (a *attached) see(t totalsOf) {
	if a.known {
		return
	}
	now := t.atAttach()
	a.known = now == a.last
	a.last = now
}

// atAttach is how many bytes a pool had allocated when we attached.
func (p totalsOf) atAttach() uint64 {
	all := p.allocated + p.back
	return all - min(all, p.out)
}

// left is how much of that is still in use, where so much was freed.
func left(atAttach, before uint64) uint64 { return atAttach - min(atAttach, before) }

// beforeAttach adds a row for each pool's blocks that were allocated before attach and are
// still in use: with them the rows add up to what PyTorch itself says.
type beforeAttach struct {
	sampled func() bool
	errorOf func(bytes uint64) uint64

	mu       sync.Mutex // guards what follows
	pools    map[poolOf]readPool
	attached map[poolOf]*attached
}

// left is how much of what was there at attach is still in use, where `rows` are in use by
// the rows of tensors. Sampled, who took a block back is not always known: then it is what
// the rows do not explain, where that is more than their error.
func (b *beforeAttach) left(p readPool, first, rows uint64, sampled bool) uint64 {
	if !sampled {
		return left(first, p.before)
	}
	rest := p.allocated - min(p.allocated, rows)
	if rest <= b.errorOf(rows)+p.allocated/100 {
		return 0
	}
	return min(first, rest)
}

// seePools replaces what is known by a reading of all pools.
func (b *beforeAttach) seePools(now map[poolOf]readPool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.pools = now
	for key := range b.attached {
		if _, ok := now[key]; !ok {
			delete(b.attached, key) // the process has ended
		}
	}
	for key, p := range now {
		a := b.attached[key]
		if a == nil {
			a = &attached{last: p.atAttach() + 1} // no reading is the second one yet
			b.attached[key] = a
		}
		a.see(p.totalsOf)
	}
}

// oldRow is to be added: bytes in use, and at attach.
type oldRow struct {
	poolOf
	proc         []byte
	bytes, first uint64
}

// rows are those to be added, where these bytes are in use by the rows of tensors; nil:
// every block is traced, so that it does not matter.
func (b *beforeAttach) rows(inuse map[poolOf]uint64) []oldRow {
	b.mu.Lock()
	defer b.mu.Unlock()
	var all []oldRow
	for key, p := range b.pools {
		if a := b.attached[key]; a.known {
			if bytes := b.left(p, a.last, inuse[key], inuse != nil); bytes > 0 {
				all = append(all, oldRow{key, p.proc, bytes, a.last})
			}
		}
	}
	return all
}

// fieldsOf finds fields that have to be there.
func fieldsOf(ds datasource.DataSource, names ...string) (map[string]datasource.FieldAccessor, error) {
	all := map[string]datasource.FieldAccessor{}
	for _, name := range names {
		if all[name] = ds.GetField(name); all[name] == nil {
			return nil, fmt.Errorf("data source %s lacks %s", ds.Name(), name)
		}
	}
	return all, nil
}

// addRows has the rows added to the data source of allocations.
func (b *beforeAttach) addRows(sources map[string]datasource.DataSource) error {
	pools, allocs := sources[poolsSource], sources["allocs"]
	if pools == nil || allocs == nil {
		return nil
	}
	from, err := fieldsOf(pools, append([]string{"proc", "process", "device", "has_totals"}, totalsFields...)...)
	if err != nil {
		return err
	}
	copies, err := newCopies(pools)
	if err != nil {
		return err
	}
	to, err := fieldsOf(allocs, "proc", "process", "device", "kind", "stack_id", "inuse_bytes", "peak_bytes")
	if err != nil {
		return err
	}
	if err := pools.SubscribeArray(func(_ datasource.DataSource, all datasource.DataArray) error {
		if err := copies.remove(all); err != nil {
			return fmt.Errorf("remove rows of %s: %w", pools.Name(), err)
		}
		now := map[poolOf]readPool{}
		for n := range all.Len() {
			if key, p, ok := poolFrom(from, all.Get(n)); ok {
				now[key] = p
			}
		}
		b.seePools(now)
		return nil
	}, subscriptionBefore); err != nil {
		return fmt.Errorf("subscribe to %s: %w", pools.Name(), err)
	}
	if err := allocs.SubscribeArray(func(_ datasource.DataSource, all datasource.DataArray) error {
		var inuse map[poolOf]uint64
		if b.sampled() {
			inuse = inuseOf(to, all)
		}
		for _, r := range b.rows(inuse) {
			d, err := ig.AppendRow(allocs, all)
			if err == nil {
				err = r.put(to, d)
			}
			if err != nil {
				return fmt.Errorf("write a row of %s: %w", stack.BeforeAttach, err)
			}
		}
		return nil
	}, subscriptionBefore); err != nil {
		return fmt.Errorf("subscribe to %s: %w", allocs.Name(), err)
	}
	return nil
}

// inuseOf adds up the rows of tensors.
func inuseOf(from map[string]datasource.FieldAccessor, all datasource.DataArray) map[poolOf]uint64 {
	inuse := map[poolOf]uint64{}
	for n := range all.Len() {
		d := all.Get(n)
		if kind, _ := from["kind"].String(d); kind != profile.KindTensor {
			continue
		}
		var key poolOf
		key.process, _ = from["process"].Uint64(d)
		key.device, _ = from["device"].Int32(d)
		bytes, _ := from["inuse_bytes"].Uint64(d)
		inuse[key] += bytes
	}
	return inuse
}

// poolFrom reads a row of the pools; false: that version of PyTorch reports no totals.
func poolFrom(from map[string]datasource.FieldAccessor, d datasource.Data) (key poolOf, p readPool, ok bool) {
	if has, _ := from["has_totals"].Uint32(d); has == 0 {
		return key, p, false
	}
	key.process, _ = from["process"].Uint64(d)
	key.device, _ = from["device"].Int32(d)
	p.totalsOf = totalsFrom(from, d)
	p.proc = append(p.proc, from["proc"].Get(d)...) // the row is gone when we return
	return key, p, true
}

// put writes the row. Since attach it has allocated nothing.
func (r oldRow) put(to map[string]datasource.FieldAccessor, d datasource.Data) error {
	return errors.Join(to["proc"].Set(d, r.proc), to["process"].PutUint64(d, r.process), to["device"].PutInt32(d, r.device),
		to["kind"].PutString(d, profile.KindTensor), to["stack_id"].PutUint64(d, stack.BeforeAttachID),
		to["inuse_bytes"].PutUint64(d, r.bytes), to["peak_bytes"].PutUint64(d, r.first))
}
