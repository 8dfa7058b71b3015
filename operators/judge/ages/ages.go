// SPDX-License-Identifier: Apache-2.0

// Package ages is the operator that reports which lines hold memory for long: of each row,
// what was allocated longer ago than the user requested and has not been freed; and a histogram
// of the ages of what it holds. What
// lives long in steady state is a model; what keeps growing old is a leak, or a cache.
// It reads the allocations that are alive (bpf/memory/live.h), which costs nothing in the
// kernel's programs; only on request, for there may be 10⁵ of them.
package ages

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/cilium/ebpf"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/datasource"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/gadget-service/api"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/operators"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/params"

	"github.com/gpu-gadgets/gpu-gadgets/internal/format/duration"
	"github.com/gpu-gadgets/gpu-gadgets/internal/ig"
	"github.com/gpu-gadgets/gpu-gadgets/internal/ig/mapiter"
	"github.com/gpu-gadgets/gpu-gadgets/internal/profile"
	"github.com/gpu-gadgets/gpu-gadgets/operators/decode/rows"
)

const (
	name = "ages"
	// Priority is before those of the table (9400), which writes human-readable
	// sizes, of filter (9000) and of sinks.
	Priority = 60

	liveMap    = "live_by_pointer"
	paramOlder = "older-than"
	paramAges  = "ages"
	// reuse is how long what was read serves further reads of the rows.
	reuse = 2 * time.Second
)

// kinds are ALLOC_KIND_NAMES of bpf/memory/apis.h.
var kinds = [...]string{"", "device", "managed", "host", "array", "vmm", "pool", "tensor", "context"}

// Operator adds old_bytes and old_objects to rows of memory.
type Operator struct{}

// New returns the data operator.
func New() *Operator { return &Operator{} }

func (*Operator) Name() string              { return name }
func (*Operator) Init(*params.Params) error { return nil }
func (*Operator) GlobalParams() api.Params  { return nil }
func (*Operator) Priority() int             { return Priority }

func (*Operator) InstanceParams() api.Params {
	return api.Params{{Key: paramOlder, Title: "Old allocations", TypeHint: api.TypeDuration,
		Description: "Show for each row the memory that was allocated longer ago than this (such as 10m) and not freed: old_bytes, old_objects"},
		{Key: paramAges, Title: "Ages of allocations", TypeHint: api.TypeBool, DefaultValue: "false",
			Description: "Show for each row how old what it holds is, as a histogram from 1s to 1h: ages, age_…_bytes; with metrics gpu_memory_age_bytes"}}
}

// InstantiateDataOperator takes part where something is held, which is what makes the
// parameter known, and does nothing unless the user asks.
func (*Operator) InstantiateDataOperator(gc operators.GadgetContext, values api.ParamValues) (operators.DataOperatorInstance, error) {
	spec, err := ig.MapSpec(gc, liveMap)
	ds := gc.GetDataSources()["allocs"]
	if ds == nil || errors.Is(err, ig.ErrAbsent) {
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	i := &instance{}
	if i.hasClasses, err = parseClasses(values[paramAges]); err != nil {
		return nil, err
	}
	text := values[paramOlder]
	if !i.hasClasses && text == "" {
		return i, nil
	}
	if i.layout, err = layoutOf(spec); err != nil {
		return nil, fmt.Errorf("read how old allocations are: %w", err)
	}
	if i.hasClasses {
		if err := i.classes.add(ds); err != nil {
			return nil, err
		}
	}
	if text == "" {
		return i, nil
	}
	if i.older, err = duration.Parse(text); err != nil || i.older <= 0 {
		return nil, fmt.Errorf("--%s: want a duration such as 10m, not %q", paramOlder, text)
	}
	return i, i.addFields(ds, text)
}

type instance struct {
	ig.Failure
	older         time.Duration // 0: not requested
	layout        layout
	bytes, number datasource.FieldAccessor
	hasClasses    bool
	classes       classFields

	mu     sync.Mutex // guards what follows
	live   *ebpf.Map
	read   time.Time
	known  map[row]held
	logged bool
}

func (*instance) Name() string { return name }

func (i *instance) addFields(ds datasource.DataSource, text string) error {
	for _, f := range []struct {
		to          *datasource.FieldAccessor
		name        string
		kind        api.Kind
		annotations map[string]string
	}{
		{nil, "old", api.Kind_String, map[string]string{
			"description":   "old_bytes, human-readable, with its unit",
			"columns.width": "9", "columns.alignment": "right", "columns.fixed": "true",
		}},
		{&i.bytes, "old_bytes", api.Kind_Uint64, map[string]string{
			"description": "Bytes in use that were allocated more than " + text + " ago", "columns.hidden": "true",
		}},
		{&i.number, "old_objects", api.Kind_Uint64, map[string]string{
			"description": "Allocations of more than " + text + " ago that are not freed", "columns.hidden": "true",
		}},
	} {
		field, err := ds.AddField(f.name, f.kind, datasource.WithAnnotations(f.annotations))
		if err != nil {
			return fmt.Errorf("add field %s to %s: %w", f.name, ds.Name(), err)
		}
		if f.to != nil {
			*f.to = field
		}
	}
	return nil
}

// PreStart subscribes: the fields of other operators are there.
func (i *instance) PreStart(gc operators.GadgetContext) error {
	if !i.isOn() {
		return nil
	}
	ds := gc.GetDataSources()["allocs"]
	source, err := rows.Bind(ds)
	if err != nil {
		return fmt.Errorf("read how old allocations are: %w", err)
	}
	return ds.SubscribeArray(func(_ datasource.DataSource, all datasource.DataArray) error {
		sums, err := i.sums()
		if err != nil {
			i.logOnce(gc, err)
			return nil // an error would keep the rows from other subscribers
		}
		for n := range all.Len() {
			d := all.Get(n)
			id := source.ID(d)
			inuse := source.Values(d)
			held := sums[row{id.Process, id.StackID, id.Kind, id.Device, id.Span}]
			if err := i.put(d, held, inuse); err != nil {
				i.logOnce(gc, err)
				return nil
			}
		}
		return nil
	}, Priority)
}

func (i *instance) isOn() bool { return i.older > 0 || i.hasClasses }

// put writes what a row holds, which was read at another moment than the row.
func (i *instance) put(d datasource.Data, held held, inuse profile.Values) error {
	var errs []error
	if i.hasClasses {
		errs = append(errs, i.classes.put(d, held.byClass))
	}
	if i.older > 0 {
		errs = append(errs, i.bytes.PutUint64(d, min(held.old.bytes, uint64(max(inuse.InuseBytes, 0)))),
			i.number.PutUint64(d, min(held.old.objects, uint64(max(inuse.InuseObjects, 0)))))
	}
	return errors.Join(errs...)
}

// Start finds the map, which is there once the programs are loaded.
func (i *instance) Start(gc operators.GadgetContext) error { return i.Started(gc, i.start(gc)) }

func (i *instance) start(gc operators.GadgetContext) error {
	if !i.isOn() {
		return nil
	}
	live, err := ig.Map(gc, liveMap)
	if err != nil {
		return fmt.Errorf("read how old allocations are: %w", err)
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.live = live
	return nil
}

func (*instance) Stop(operators.GadgetContext) error  { return nil }
func (*instance) Close(operators.GadgetContext) error { return nil }

// logOnce logs a failure once; the rows come every second.
func (i *instance) logOnce(gc operators.GadgetContext, err error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if !i.logged {
		i.logged = true
		gc.Logger().Warnf("ages: the age of allocations is unknown: %v", err)
	}
}

// row is the identity of a row of allocs.
type row struct {
	process, stack uint64
	kind           string
	device         int32
	span           profile.Span
}

// old is the memory that a row holds for longer than requested.
type old struct{ bytes, objects uint64 }

// held has the bytes of a row by age.
type held struct {
	old     old
	byClass byClass
}

func (i *instance) sums() (map[row]held, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.live == nil || time.Since(i.read) < reuse {
		return i.known, nil
	}
	now := uint64(ig.SinceBoot())
	known := map[row]held{}
	if err := mapiter.Entries(i.live, func(key, value []byte) {
		r, one, age := i.layout.decode(key, value, now)
		if r.kind == "" || !i.hasClasses && age < i.older {
			return
		}
		sum := known[r]
		sum.byClass.add(age, one.bytes)
		if age >= i.older {
			sum.old = old{sum.old.bytes + one.bytes, sum.old.objects + one.objects}
		}
		known[r] = sum
	}); err != nil {
		return nil, fmt.Errorf("read %s: %w", liveMap, err)
	}
	i.known, i.read = known, time.Now()
	return known, nil
}

// layout is where the parts of struct live_key and struct live are, in bytes.
type layout struct {
	process                                                 int
	size, stack, span, serial, kind, device, refs, imported int
}

func layoutOf(spec *ebpf.MapSpec) (l layout, err error) {
	err = errors.Join(
		ig.Offsets(spec.Key, ig.At(&l.process, "process", 8)),
		ig.Offsets(spec.Value, ig.At(&l.size, "size_bytes", 8), ig.At(&l.stack, "stack", 8), ig.At(&l.span, "span", 8),
			ig.At(&l.serial, "serial", 8), ig.At(&l.kind, "kind", 1), ig.At(&l.device, "device", 4),
			ig.At(&l.refs, "references", 4), ig.At(&l.imported, "foreign", 1)),
	)
	return l, err
}

// decode reads an allocation, and how long ago it was made at a time since boot. No
// kind: it is in no row. Of the time, 56 bits are kept (bpf/memory/inflight.h), which
// last for two years.
func (l layout) decode(key, value []byte, now uint64) (r row, held old, age time.Duration) {
	word := func(at int) uint32 { return binary.NativeEndian.Uint32(value[at:]) }
	long := func(at int) uint64 { return binary.NativeEndian.Uint64(value[at:]) }
	if kind := value[l.kind]; int(kind) < len(kinds) && value[l.imported] == 0 {
		r.kind = kinds[kind]
	}
	r.process = binary.NativeEndian.Uint64(key[l.process:])
	r.stack, r.device, r.span = long(l.stack), int32(word(l.device)), profile.Span(long(l.span))
	held = old{long(l.size), 1}
	if r.kind == profile.KindTensor { // sampled ones stand for more
		held.objects = uint64(word(l.refs))
	}
	const bits = 56
	ago := (now - long(l.serial)>>8) & (1<<bits - 1)
	if ago > 1<<(bits-1) { // made after `now` was read
		ago = 0
	}
	return r, held, time.Duration(ago)
}
