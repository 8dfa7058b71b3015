// SPDX-License-Identifier: Apache-2.0

// Package stock runs the gadgets' images with Inspektor Gadget's own operators and none of
// ours, in this process, like an unmodified ig. test/systems/kernels does the same with the
// real ig, on kernels with the features that it needs to find libraries.
package stock

import (
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/rlimit"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/datasource"
	gadgetcontext "github.com/inspektor-gadget/inspektor-gadget/pkg/gadget-context"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/gadget-service/api"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/oci"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/operators"
	_ "github.com/inspektor-gadget/inspektor-gadget/pkg/operators/wasm"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
	orasoci "oras.land/oras-go/v2/content/oci"

	"github.com/gpu-gadgets/gpu-gadgets/internal/elf/symbols"
	"github.com/gpu-gadgets/gpu-gadgets/internal/ig"
	"github.com/gpu-gadgets/gpu-gadgets/internal/process/procmaps"
	"github.com/gpu-gadgets/gpu-gadgets/internal/stack"
	"github.com/gpu-gadgets/gpu-gadgets/internal/stack/library"
	"github.com/gpu-gadgets/gpu-gadgets/test/support/bpftest"
)

// module is a gadget's WASM module as ig's operator runs it, with maps and data
// sources of the test.
type module struct {
	t               testing.TB
	gc              *gadgetcontext.GadgetContext
	inst            operators.ImageOperatorInstance
	stacks, symbols *ebpf.Map

	allocs, ooms              datasource.DataSource
	id, oomID                 datasource.FieldAccessor
	holderStacks, holderBytes datasource.FieldAccessor
}

func image(t testing.TB, gadget string) *orasoci.ReadOnlyStore {
	t.Helper()
	file := "../../../build/images/" + gadget + ".tar"
	_, err := os.Stat(file)
	require.NoError(t, err, "run make build")
	store, err := orasoci.NewFromTar(t.Context(), file)
	require.NoError(t, err)
	return store
}

func newModule(t testing.TB) *module { return newModuleOf(t, "cuda_alloc", "allocs", "ooms") }

// newModuleOf runs the module of a gadget that has a table and events.
func newModuleOf(t testing.TB, gadget, table, events string) *module {
	t.Helper()
	bpftest.RequireRoot(t)
	require.NoError(t, rlimit.RemoveMemlock())
	name := "ghcr.io/gpu-gadgets/" + gadget + ":latest"
	store := image(t, gadget)
	manifest, err := oci.GetManifestForHost(t.Context(), store, name)
	require.NoError(t, err)
	require.Len(t, manifest.Layers, 2)
	layer := manifest.Layers[1]
	require.Equal(t, "symbolize", layer.Annotations[ig.OperatorAnnotation])

	m := &module{t: t, gc: gadgetcontext.New(t.Context(), name)}
	m.allocs, m.id = m.source(datasource.TypeArray, table)
	m.ooms, m.oomID = m.source(datasource.TypeSingle, events)
	m.holderStacks, err = m.ooms.AddField("holder_stacks", api.ArrayOf(api.Kind_Uint64))
	require.NoError(t, err)
	m.holderBytes, err = m.ooms.AddField("holder_bytes", api.ArrayOf(api.Kind_Uint64))
	require.NoError(t, err)
	m.stacks = m.newMap("stacks_by_id", stack.StackBytes)
	m.symbols = m.newMap("symbols_by_id", stack.SymbolBytes)

	operator, ok := operators.GetImageOperatorForMediaType(layer.MediaType)
	require.True(t, ok, layer.MediaType)
	m.inst, err = operator.InstantiateImageOperator(m.gc, store, layer, nil)
	require.NoError(t, err)
	require.NoError(t, m.inst.(operators.PreStart).PreStart(m.gc))
	require.NoError(t, m.inst.Start(m.gc))
	t.Cleanup(func() {
		require.NoError(t, m.inst.Stop(m.gc))
		require.NoError(t, m.inst.Close(m.gc))
	})
	return m
}

func (m *module) source(kind datasource.Type, name string) (datasource.DataSource, datasource.FieldAccessor) {
	ds, err := m.gc.RegisterDataSource(kind, name)
	require.NoError(m.t, err)
	id, err := ds.AddField("stack_id", api.Kind_Uint64)
	require.NoError(m.t, err)
	return ds, id
}

func (m *module) newMap(name string, size uint32) *ebpf.Map {
	created, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Hash, KeySize: 8, ValueSize: size, MaxEntries: 1 << 20, Flags: 1}) // BPF_F_NO_PREALLOC
	require.NoError(m.t, err)
	m.t.Cleanup(func() { created.Close() })
	m.gc.SetVar(operators.MapPrefix+name, created)
	return created
}

// put stores a stack of Python frames, leaf first; line n is that of frame n.
func (m *module) put(id uint64, flags stack.Flags, names ...string) {
	m.t.Helper()
	b := make([]byte, stack.StackBytes)
	binary.NativeEndian.PutUint32(b, uint32(flags))
	binary.NativeEndian.PutUint16(b[6:], uint16(len(names)))
	for i, name := range names {
		symbol := symbolOf(name)
		binary.NativeEndian.PutUint64(b[stack.StackPythonOffset+16*i:], symbol)
		binary.NativeEndian.PutUint32(b[stack.StackPythonOffset+16*i+8:], uint32(i+1))
		s := make([]byte, stack.SymbolBytes)
		file := "/usr/lib/python3.12/site-packages/pkg/file.py"
		binary.NativeEndian.PutUint16(s[4:], uint16(len(name)))
		binary.NativeEndian.PutUint16(s[6:], uint16(len(file)))
		s[10], s[11], s[13] = 1, 1, 1
		copy(s[18:], name)
		copy(s[18+128:], file)
		require.NoError(m.t, m.symbols.Put(symbol, s))
	}
	require.NoError(m.t, m.stacks.Put(id, b))
}

func symbolOf(name string) uint64 {
	h := fnv.New64a()
	h.Write([]byte(name))
	return h.Sum64()
}

// row is the result for a row of allocs.
type row struct{ frame, stack, frames string }

// table sends a table through the module.
func (m *module) table(see func(i int, r row), ids ...uint64) {
	m.t.Helper()
	packet, err := m.allocs.NewPacketArray()
	require.NoError(m.t, err)
	for _, id := range ids {
		d := packet.New()
		require.NoError(m.t, m.id.PutUint64(d, id))
		packet.Append(d)
	}
	require.NoError(m.t, m.allocs.EmitAndRelease(packet))
	for i := range packet.Len() {
		see(i, texts(m.t, m.allocs, packet.Get(i)))
	}
}

func texts(t testing.TB, ds datasource.DataSource, d datasource.Data) row {
	t.Helper()
	text := func(name string) string {
		field := ds.GetField(name)
		require.NotNil(t, field, name)
		s, err := field.String(d)
		require.NoError(t, err)
		return s
	}
	return row{text("frame"), text("stack"), text("frames")}
}

// kernelMaps lets internal/elf/symbols read the same maps.
type kernelMaps struct{ stacks, symbols *ebpf.Map }

func (k kernelMaps) Stack(id uint64) ([]byte, bool)  { return look(k.stacks, id) }
func (k kernelMaps) Symbol(id uint64) ([]byte, bool) { return look(k.symbols, id) }
func (kernelMaps) Runtime(uint64) (uint64, bool)     { return 0, false }

func look(m *ebpf.Map, id uint64) ([]byte, bool) {
	b, err := m.LookupBytes(id)
	return b, err == nil && b != nil
}

// TestModuleMatchesTheOperator: the same words, from the same maps.
func TestModuleMatchesTheOperator(t *testing.T) {
	m := newModule(t)
	m.put(1, stack.HasPython, "Model.forward", "<module>")
	m.put(2, stack.HasPython|stack.PythonIncomplete, "a;b", "\x1b[2J", "\xe4")
	m.put(3, stack.HasPython|stack.PythonTruncated, strings.Split(strings.Repeat("deep ", 128), " ")[:128]...)
	own := symbols.NewStacks(symbols.NewResolver(procmaps.NewCache(procmaps.Config{})), kernelMaps{m.stacks, m.symbols}, library.Paths{})
	ids := []uint64{1, 2, 3, 0, 99, 1}
	seen := 0
	m.table(func(i int, r row) {
		want := own.Stack(1, 1, ids[i])
		require.Equal(t, want.Frame, r.frame)
		require.Equal(t, want.Folded, r.stack)
		frames := strings.Split(r.stack, "; ")
		for n, f := range strings.Split(r.frames, "; ") {
			require.Equal(t, frames[len(frames)-1-n], f)
		}
		seen++
	}, ids...)
	require.Equal(t, len(ids), seen)
	require.Equal(t, "Model.forward (pkg/file.py:1)", own.Stack(1, 1, 1).Frame)
}

// TestModuleOfRanks: nccl_trace's has the same names for its communicators and events.
func TestModuleOfRanks(t *testing.T) {
	m := newModuleOf(t, "nccl_trace", "communicators", "operation_events")
	m.put(1, stack.HasPython, "Trainer.all_reduce", "<module>")
	m.table(func(_ int, r row) {
		require.Equal(t, "Trainer.all_reduce (pkg/file.py:1)", r.frame)
	}, 1)
	packet, err := m.ooms.NewPacketSingle()
	require.NoError(t, err)
	require.NoError(t, m.oomID.PutUint64(packet, 1))
	require.NoError(t, m.ooms.EmitAndRelease(packet))
	require.Equal(t, "Trainer.all_reduce (pkg/file.py:1)", texts(t, m.ooms, packet).frame)
}

func TestModuleNamesHolders(t *testing.T) {
	m := newModule(t)
	m.put(1, stack.HasPython, "load")
	m.put(2, stack.HasPython, "train")
	packet, err := m.ooms.NewPacketSingle()
	require.NoError(t, err)
	numbers := func(n ...uint64) (b []byte) {
		for _, v := range n {
			b = binary.NativeEndian.AppendUint64(b, v)
		}
		return b
	}
	require.NoError(t, m.oomID.PutUint64(packet, 2))
	require.NoError(t, m.holderStacks.Set(packet, numbers(1, 2, 0, 0, 0)))
	require.NoError(t, m.holderBytes.Set(packet, numbers(12<<20, 1<<10, 5, 0, 0)))
	require.NoError(t, m.ooms.EmitAndRelease(packet))
	holders, err := m.ooms.GetField("holders").String(packet)
	require.NoError(t, err)
	require.Equal(t, "12.0 MiB load (pkg/file.py:1); 1.00 KiB train (pkg/file.py:1); 5 B [unknown]", holders)
	require.Equal(t, "train (pkg/file.py:1)", texts(t, m.ooms, packet).frame)
}

// TestModuleLivesInItsMemory: ig limits a module to 16 MiB and silently ends it beyond
// that; rows would have no names from then on. Stacks of maximum size, of which the
// caches hold a fifth.
func TestModuleLivesInItsMemory(t *testing.T) {
	m := newModule(t)
	const count, batch = 600, 200
	name := strings.Repeat("n", 120)
	for first := uint64(1); first < count; first += batch {
		var ids []uint64
		for id := first; id < first+batch; id++ {
			names := make([]string, 128)
			for i := range names {
				names[i] = fmt.Sprintf("%s%05d%03d", name, id, i)
			}
			m.put(id, stack.HasPython, names...)
			ids = append(ids, id)
		}
		for range 2 {
			m.table(func(i int, r row) {
				require.True(t, strings.HasPrefix(r.frame, fmt.Sprintf("%s%05d000 (", name, ids[i])), r.frame)
			}, ids...)
		}
		for _, id := range ids {
			for i := range 128 {
				require.NoError(t, m.symbols.Delete(symbolOf(fmt.Sprintf("%s%05d%03d", name, id, i))))
			}
		}
	}
}

// TestModuleCost prints the cost of rows and of the module; docs/reference/stock-ig.md
// quotes it. It is CPU time: the module runs in the thread that emits the row.
func TestModuleCost(t *testing.T) {
	before := resident(t)
	m := newModule(t)
	const count = 4000
	ids := make([]uint64, count)
	for i := range ids {
		ids[i] = uint64(i + 1)
		// As calls branch: the innermost frames differ most.
		names := make([]string, 20)
		for n := range names {
			names[n] = fmt.Sprintf("Layer%d.forward%d", n, i>>(2*n))
		}
		m.put(ids[i], stack.HasPython, names...)
	}
	for _, rows := range []int{100, 1000, count} {
		var first, again time.Duration
		for n := range 6 {
			began := processor(t)
			m.table(func(i int, r row) { require.NotEmpty(t, r.frame) }, ids[:rows]...)
			if took := (processor(t) - began) / time.Duration(rows); n == 0 {
				first = took
			} else if n == 1 || took < again {
				again = took
			}
		}
		t.Logf("%d rows of 20 frames: %v per row at first, %v again", rows, first, again)
		require.Less(t, again, 2*time.Millisecond, "far more than what was measured")
	}
	t.Logf("%d KiB resident more than before", (resident(t)-before)>>10)
}

func processor(t *testing.T) time.Duration {
	t.Helper()
	var u unix.Rusage
	require.NoError(t, unix.Getrusage(unix.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func resident(t *testing.T) int {
	t.Helper()
	runtime.GC()
	b, err := os.ReadFile("/proc/self/statm")
	require.NoError(t, err)
	var size, pages int
	_, err = fmt.Sscan(string(b), &size, &pages)
	require.NoError(t, err)
	return pages * os.Getpagesize()
}
