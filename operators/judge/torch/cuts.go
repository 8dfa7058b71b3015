// SPDX-License-Identifier: Apache-2.0

package torch

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/cilium/ebpf"
	"github.com/docker/go-units"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/datasource"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/gadget-service/api"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/operators"

	"github.com/gpu-gadgets/gpu-gadgets/internal/ig"
	"github.com/gpu-gadgets/gpu-gadgets/internal/ig/mapiter"
	"github.com/gpu-gadgets/gpu-gadgets/internal/profile"
)

const (
	liveMap     = "live_by_pointer"
	mappingsMap = "mappings_by_address"
	// reuse is how long what was read serves further rows: those of one read of the pools,
	// which is made each second, for their totals are of that moment. There may be 10⁵
	// blocks.
	reuse = 900 * time.Millisecond

	// enum alloc_kind of bpf/memory/apis.h.
	kindDevice, kindTensor = 1, 7
)

// cuts reads how the pools are cut up: the driver's memory and PyTorch's blocks in it.
type cuts struct {
	size uint64 // of a block that would be put into them; 0: not requested
	live struct {
		ebpf                                  *ebpf.Map
		process, pointer, bytes, kind, device int
		stack, span                           int
	}
	mappings struct {
		ebpf                    *ebpf.Map
		process, address, bytes int
	}

	all func(is func(process uint64) bool) (map[uint64]*lay, error) // lays, but in tests

	mu        sync.Mutex // guards what follows
	fitting   byProcess[map[int32]fit]
	fragments byProcess[map[owner]uint64]
	wanted    []interface{ take(map[uint64]*lay) } // which of the two
	read      time.Time
	logged    bool
	rest      time.Time // until which no refusal is looked into
}

// byProcess keeps, for some time, a value for each process, computed from its layout.
type byProcess[T any] struct {
	compute func(*lay) T // nil: it was not requested yet
	of      map[uint64]T
}

// take computes it for all processes.
func (b *byProcess[T]) take(all map[uint64]*lay) {
	b.of = make(map[uint64]T, len(all))
	for id, p := range all {
		b.of[id] = b.compute(p)
	}
}

// get returns that of a process, and reads the layouts where the last ones are too old: once, for
// all that is computed from them.
func (b *byProcess[T]) get(c *cuts, process uint64, compute func(*lay) T) (of T, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if b.compute == nil {
		b.compute, c.read = compute, time.Time{}
		c.wanted = append(c.wanted, b)
	}
	if time.Since(c.read) >= reuse {
		all, err := c.all(func(uint64) bool { return true })
		if err != nil {
			return of, err
		}
		for _, w := range c.wanted {
			w.take(all)
		}
		c.read = time.Now()
	}
	return b.of[process], nil
}

func newCuts(gc operators.GadgetContext) (*cuts, error) {
	c := &cuts{}
	c.all = c.lays
	live, err := ig.MapSpec(gc, liveMap)
	if err != nil {
		return nil, err
	}
	mappings, err := ig.MapSpec(gc, mappingsMap)
	if err != nil {
		return nil, err
	}
	l, m := &c.live, &c.mappings
	if err := errors.Join(
		ig.Offsets(live.Key, ig.At(&l.process, "process", 8), ig.At(&l.pointer, "pointer", 8)),
		ig.Offsets(live.Value, ig.At(&l.bytes, "size_bytes", 8), ig.At(&l.kind, "kind", 1), ig.At(&l.device, "device", 4),
			ig.At(&l.stack, "stack", 8), ig.At(&l.span, "span", 8)),
		ig.Offsets(mappings.Key, ig.At(&m.process, "process", 8), ig.At(&m.address, "address", 8)),
		ig.Offsets(mappings.Value, ig.At(&m.bytes, "size_bytes", 8)),
	); err != nil {
		return nil, fmt.Errorf("read how pools are cut up: %w", err)
	}
	return c, nil
}

// start finds the maps, which are there once the programs are loaded.
func (c *cuts) start(gc operators.GadgetContext) error {
	var err error
	if c.live.ebpf, err = ig.Map(gc, liveMap); err == nil {
		c.mappings.ebpf, err = ig.Map(gc, mappingsMap)
	}
	if err != nil {
		return fmt.Errorf("read how pools are cut up: %w", err)
	}
	return nil
}

// lay is the layout of a process's memory.
type lay struct {
	areas  []area
	blocks []block
}

// lays reads it for all processes for which `is` is true.
func (c *cuts) lays(is func(process uint64) bool) (map[uint64]*lay, error) {
	if c.live.ebpf == nil || c.mappings.ebpf == nil {
		return nil, errors.New("the operator has not started")
	}
	found := map[uint64]*lay{}
	of := func(id uint64) *lay {
		if found[id] == nil {
			found[id] = &lay{}
		}
		return found[id]
	}
	long := binary.NativeEndian.Uint64
	if err := mapiter.Entries(c.live.ebpf, func(key, value []byte) {
		id := long(key[c.live.process:])
		if !is(id) {
			return
		}
		start, bytes := long(key[c.live.pointer:]), long(value[c.live.bytes:])
		if !isExtent(start, bytes) {
			return
		}
		device := int32(binary.NativeEndian.Uint32(value[c.live.device:]))
		switch p := of(id); uint32(value[c.live.kind]) {
		case kindDevice:
			p.areas = append(p.areas, area{start, start + bytes, bytes == profile.SmallSegment, false, device})
		case kindTensor:
			p.blocks = append(p.blocks, block{start, start + bytes, device, owner{long(value[c.live.stack:]), long(value[c.live.span:]), device}})
		}
	}); err != nil {
		return nil, fmt.Errorf("read %s: %w", liveMap, err)
	}
	if err := mapiter.Entries(c.mappings.ebpf, func(key, value []byte) {
		id := long(key[c.mappings.process:])
		if !is(id) {
			return
		}
		start, bytes := long(key[c.mappings.address:]), long(value[c.mappings.bytes:])
		if !isExtent(start, bytes) {
			return
		}
		p := of(id)
		p.areas = append(p.areas, area{start, start + bytes, bytes == profile.SmallSegment, true, noDevice})
	}); err != nil {
		return nil, fmt.Errorf("read %s: %w", mappingsMap, err)
	}
	return found, nil
}

// maxExtent is more than any machine's memory, and so little that the sum of what the tables have room for does not wrap.
const maxExtent = 1 << 44

// isExtent reports whether memory may be where a process says that it is; others would wrap in sums.
func isExtent(start, bytes uint64) bool { return bytes <= maxExtent && start <= math.MaxUint64-bytes }

// fits is how the pools of a process are cut up.
func (c *cuts) fits(process uint64) (map[int32]fit, error) {
	return c.fitting.get(c, process, func(p *lay) map[int32]fit { return fitting(p.areas, p.blocks, c.size) })
}

// addFits adds to the pools what a block of a size could use, where the user asks.
func (i *instance) addFits(gc operators.GadgetContext, text string) error {
	ds := gc.GetDataSources()[poolsSource]
	if text == "" || ds == nil {
		return nil
	}
	size, err := units.RAMInBytes(text)
	if err != nil || size <= 0 {
		return fmt.Errorf("--%s: want a size such as 64MiB, not %q", paramFits, text)
	}
	i.cuts.size = uint64(size)
	add := func(name string, kind api.Kind, description string, annotations map[string]string) (field datasource.FieldAccessor) {
		annotations["description"] = description
		if err == nil {
			field, err = ds.AddField(name, kind, datasource.WithAnnotations(annotations))
		}
		return field
	}
	hidden := func() map[string]string { return map[string]string{"columns.hidden": "true"} }
	share := add("fits", api.Kind_String, "Part of the unused bytes that a tensor of "+text+" could use; empty: not all blocks are known",
		map[string]string{"columns.width": "7", "columns.alignment": "right", "columns.fixed": "true"})
	bytes := add("usable_bytes", api.Kind_Uint64, "The same in bytes: gaps of that size, and segments without a block", hidden())
	largest := add("largest_bytes", api.Kind_Uint64, "Largest gap beside a block, of segments that such a tensor may go to", hidden())
	if err != nil {
		return fmt.Errorf("add fields to %s: %w", ds.Name(), err)
	}
	from, err := fieldsOf(ds, append([]string{"process", "device"}, totalsFields...)...)
	if err != nil {
		return err
	}
	return ds.Subscribe(func(_ datasource.DataSource, d datasource.Data) error {
		if i.isSampled() {
			return nil
		}
		process, _ := from["process"].Uint64(d)
		device, _ := from["device"].Int32(d)
		found, err := i.cuts.fits(process)
		if err != nil {
			i.cuts.logOnce(gc, err)
			return nil // an error would keep the row from other subscribers
		}
		totals := totalsFrom(from, d)
		usable, known := totals.usable(found[device], i.cuts.size)
		if !known {
			return nil
		}
		unused := totals.reserved - min(totals.reserved, totals.allocated)
		return errors.Join(share.PutString(d, profile.FormatShare(usable, unused)), bytes.PutUint64(d, usable),
			largest.PutUint64(d, found[device].largest))
	}, subscription)
}

// isSampled: some blocks that are in use may not have been followed.
func (i *instance) isSampled() bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.budget.most > 0
}

// logOnce logs a failure once; the pools come every second.
func (c *cuts) logOnce(gc operators.GadgetContext, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.logged {
		c.logged = true
		gc.Logger().Warnf("torch: the fragmentation of pools is unknown: %v", err)
	}
}
