// SPDX-License-Identifier: Apache-2.0

package names

import (
	"encoding/binary"
	"runtime"
	"runtime/debug"
	"unsafe"

	api "github.com/inspektor-gadget/inspektor-gadget/wasmapi/go"

	"github.com/gpu-gadgets/gpu-gadgets/internal/profile"
)

// priority is that of operators/decode/symbolize: after what ig adds of containers,
// before what filters and sorts by the names.
const priority = 50

// collectAt is the garbage in bytes after which it is collected. With what lives,
// 3 MiB at most, and what lies between, that is half of the 16 MiB that ig gives a
// module.
const collectAt = 2 << 20

// rowGarbage is the memory that a call of a module leaves besides the names.
const rowGarbage = 128

// Source is a data source whose rows have the field stack_id.
type Source struct {
	Name string
	// IsTable: it comes in arrays, at intervals; else as single events.
	IsTable bool
}

// source is one with its fields. holders is 0 where it has none.
type source struct {
	Source
	ds                        api.DataSource
	id                        api.Field
	frame, stack, frames      api.Field
	holderStacks, holderBytes api.Field
	holders                   api.Field
	function, kernel          api.Field // 0 where rows are not about kernels
	budget                    Budget
}

var (
	sources []*source
	namer   *Namer
	kernels *Kernels // nil where the gadget has none
	folded  []byte   // of the latest row: ig copies what it is given
)

// Init adds the fields frame, stack and frames to the data sources, holders to one with
// holder_stacks and holder_bytes, and kernel to one with function. It is for gadgetInit, whose result it
// gives: 0, or 1 when the gadget does not have what was named.
//
// Their annotations are in gadget.yaml, for a module can give none.
func Init(of ...Source) int32 {
	// Go's own pacing fails in a module: its clock stops between readings
	// and goes ahead a millisecond at each (wazero's default), by which Go finds
	// that it collects all the time, and stops; it also has no time of its own
	// between two calls. name() collects instead.
	debug.SetGCPercent(-1)
	for _, o := range of {
		s := &source{Source: o}
		if err := s.init(); err != nil {
			api.Errorf("name stacks of %s: %v", o.Name, err)
			return 1
		}
		sources = append(sources, s)
	}
	return 0
}

func (s *source) init() (err error) {
	if s.ds, err = api.GetDataSource(s.Name); err != nil {
		return err
	}
	if s.id, err = s.ds.GetField("stack_id"); err != nil {
		return err
	}
	for _, f := range []struct {
		to   *api.Field
		name string
	}{{&s.frame, "frame"}, {&s.stack, "stack"}, {&s.frames, "frames"}} {
		if *f.to, err = s.ds.AddField(f.name, api.Kind_String); err != nil {
			return err
		}
	}
	if s.function, _ = s.ds.GetField("function"); s.function != 0 {
		if s.kernel, err = s.ds.AddField("kernel", api.Kind_String); err != nil {
			return err
		}
	}
	s.holderStacks, _ = s.ds.GetField("holder_stacks")
	s.holderBytes, _ = s.ds.GetField("holder_bytes")
	if s.holderStacks == 0 || s.holderBytes == 0 {
		return nil
	}
	s.holders, err = s.ds.AddField("holders", api.Kind_String)
	return err
}

// gadgetPreStart subscribes: what is subscribed in gadgetInit ends at Ctrl-C,
// before the last rows.
//
//go:wasmexport gadgetPreStart
func gadgetPreStart() int32 {
	for _, s := range sources {
		if s.IsTable {
			// Only for its length. The rows come one by one, because ig's
			// handles of array elements run out after 65536 packets.
			err := s.ds.SubscribeArray(func(_ api.DataSource, rows api.DataArray) error {
				s.budget = NewBudget(rows.Len())
				return nil
			}, priority)
			if err != nil {
				return 1
			}
		}
		if err := s.ds.Subscribe(s.name, priority); err != nil {
			return 1
		}
	}
	return 0
}

// gadgetStart finds the maps, which exist by now.
//
//go:wasmexport gadgetStart
func gadgetStart() int32 {
	stacks, err := api.GetMap("stacks_by_id")
	if err != nil {
		return 1
	}
	symbols, err := api.GetMap("symbols_by_id")
	if err != nil {
		return 1
	}
	namer = New(&maps{stacks, symbols})
	if names, err := api.GetMap("names_by_function"); err == nil {
		kernels = NewKernels(func(function uint64, b []byte) bool { return lookup(names, function, b) })
	}
	return 0
}

// name fills the fields of a row. Errors are ig's to log; a row without names is
// still a row.
func (s *source) name(_ api.DataSource, row api.Data) {
	id, err := s.id.Uint64(row)
	if err != nil || namer == nil {
		return
	}
	if !s.IsTable {
		s.budget = NewBudget(1)
	}
	t := s.budget.Fit(namer.Stack(id))
	s.frame.SetString(row, t.Frame)
	s.frames.SetString(row, t.Frames)
	folded = t.AppendStack(folded[:0])
	s.stack.SetString(row, unsafe.String(unsafe.SliceData(folded), len(folded)))
	if s.kernel != 0 && kernels != nil {
		if function, err := s.function.Uint64(row); err == nil {
			s.kernel.SetString(row, kernels.Name(function))
		}
	}
	if s.holders != 0 {
		text := s.holdersOf(row)
		s.holders.SetString(row, text)
		namer.Garbage += 4 * len(text)
	}
	if namer.Garbage += rowGarbage; namer.Garbage > collectAt {
		runtime.GC()
		namer.Garbage = 0
	}
}

// holdersOf reads the arrays of bpf/memory/oom.h; entries of no bytes are empty.
func (s *source) holdersOf(row api.Data) string {
	var stacks, bytes [16 * 8]byte
	n, err := s.holderStacks.Bytes(row, stacks[:])
	if err != nil {
		return ""
	}
	m, err := s.holderBytes.Bytes(row, bytes[:])
	if err != nil {
		return ""
	}
	var lines []profile.LineHeld
	for i := 0; i+8 <= int(min(n, m)); i += 8 {
		if held := binary.NativeEndian.Uint64(bytes[i:]); held != 0 {
			id := binary.NativeEndian.Uint64(stacks[i:])
			lines = append(lines, profile.LineHeld{Label: namer.Stack(id).Frame, Bytes: int64(held)})
		}
	}
	return profile.HeldByLine(lines)
}

// maps calls ig's mapLookup itself: api.Map.Lookup takes a value apart by
// reflection, element by element, which for a stack of 2 KB is most of the work.
type maps struct{ stacks, symbols api.Map }

//go:wasmimport ig mapLookup
func mapLookup(m uint32, key, value uint64) uint32

func (m *maps) Stack(id uint64, b []byte) bool  { return lookup(m.stacks, id, b) }
func (m *maps) Symbol(id uint64, b []byte) bool { return lookup(m.symbols, id, b) }

// lookup fills value; it leaves it alone where there is no entry, without saying
// so.
func lookup(m api.Map, id uint64, value []byte) bool {
	var key [8]byte
	binary.NativeEndian.PutUint64(key[:], id)
	failed := mapLookup(uint32(m), buffer(key[:]), buffer(value))
	runtime.KeepAlive(&key)
	runtime.KeepAlive(value)
	return failed == 0
}

// buffer is an address and a length as ig takes them: length in the upper half.
func buffer(b []byte) uint64 {
	return uint64(len(b))<<32 | uint64(uintptr(unsafe.Pointer(unsafe.SliceData(b))))
}
