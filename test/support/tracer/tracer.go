// SPDX-License-Identifier: Apache-2.0

// Package tracer runs the eBPF half of a gadget in a test: compiled, loaded
// and attached to libraries, without Inspektor Gadget around it, so that a
// test can change map sizes and read every map. Start is for cuda_alloc and StartHIP for
// hip_alloc, whose rows they read, Attach for all.
package tracer

import (
	"bytes"
	"encoding/binary"
	"maps"
	"path/filepath"
	"runtime"
	"sort"
	"sync/atomic"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"github.com/cilium/ebpf/link"
	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/internal/ig/attachpoint"
	"github.com/gpu-gadgets/gpu-gadgets/internal/stack"
	"github.com/gpu-gadgets/gpu-gadgets/test/support/bpftest"
)

// KindContext is the kind of the row of a CUDA context: an object without bytes.
const KindContext = "context"

// Row is struct alloc of gadgets/cuda_alloc/program.bpf.c with its stack named.
type Row struct {
	PID, TID uint32
	Comm     string
	Process  uint64
	StackID  uint64
	Kind     string
	Device   int32
	Span     string // 16 digits; empty: none

	InuseBytes, InuseObjects       uint64
	AllocBytes, AllocObjects       uint64
	FreedBytes, FreedObjects       uint64
	ImplicitBytes, ImplicitObjects uint64
	PeakBytes                      uint64
	HeldBytes                      uint64 // of HIP

	Flags  uint32
	Native []uint64
	Runs   []stack.Run
	Python []stack.Frame // leaf first
}

// Tracer is a loaded and attached gadget.
type Tracer struct {
	*ebpf.Collection
	t     testing.TB
	iters []bpftest.Iterator
	held  bool // rows end with HeldBytes
	types *btf.Spec
	ooms  atomic.Int64
	// refusedInuse is inuse_bytes of the newest of them.
	refusedInuse atomic.Int64
	// array has the requested bytes of refused arrays.
	array atomic.Int64
	// sleeping are the points of other libraries; see AttachTorch.
	sleeping []attachpoint.Point
}

// Spec is the part that Options.Edit may change.
type Spec = ebpf.CollectionSpec

// Options change what is loaded.
type Options struct {
	// Flags are added to the compiler's command line.
	Flags []string
	// Edit may change the specification before it is loaded.
	Edit func(*Spec)
	// Linux510 is the variant for kernels before 6.0. It needs a kernel that
	// does not preempt uprobe programs; see bpf/program/linux_5_10.h.
	Linux510 bool
	// Stock attaches as unmodified ig does: no program may sleep.
	Stock bool
	// Libraries beside that of the driver, name → path, for Start.
	Libraries map[string]string
	// Offset of the probes in each function, in bytes.
	Offset uint64
}

// Start compiles, loads and attaches cuda_alloc to a library. Everything ends
// with the test.
func Start(t testing.TB, library string, o Options) *Tracer {
	t.Helper()
	libraries := map[string]string{"libcuda": library}
	maps.Copy(libraries, o.Libraries)
	return memory(t, "cuda_alloc", libraries, o)
}

// StartHIP is Start for hip_alloc, whose rows are the same.
func StartHIP(t testing.TB, library string, o Options) *Tracer {
	t.Helper()
	tr := memory(t, "hip_alloc", map[string]string{"libamdhip64": library}, o)
	tr.held = true
	return tr
}

func memory(t testing.TB, gadget string, libraries map[string]string, o Options) *Tracer {
	t.Helper()
	tr := Attach(t, gadget, libraries, o)
	for program, m := range map[string]string{"dump_rows": "rows_by_stack", "dump_unknown": "unknown_rows", "dump_spans": "rows_by_span"} {
		if tr.Programs[program] == nil && o.Linux510 {
			continue
		}
		tr.iters = append(tr.iters, tr.Iterator(program, m))
	}
	tr.readOOMs(offsetsOf(t, tr.types, "oom", "error_raw", "kind", "requested_bytes", "inuse_bytes"))
	return tr
}

// Iterator attaches one of the programs that dump a map.
func (tr *Tracer) Iterator(program, mapName string) bpftest.Iterator {
	tr.t.Helper()
	iter := bpftest.Iterate(tr.t, tr.Collection, program, mapName)
	tr.t.Cleanup(func() { iter.Close() })
	return iter
}

// Attach compiles and loads a gadget, and attaches it to those of its libraries that
// are named. Everything ends with the test.
func Attach(t testing.TB, gadget string, libraries map[string]string, o Options) *Tracer {
	t.Helper()
	bpftest.RequireRoot(t)
	_, here, _, _ := runtime.Caller(0)
	source := filepath.Join(filepath.Dir(here), "../../../gadgets", gadget, "program.bpf.c")
	flags := []string{"-mcpu=v3"} // as in build.yaml
	if o.Linux510 {
		flags = []string{"-mcpu=v2", "-DLINUX_5_10"}
	}
	spec := bpftest.Spec(t, source, append(flags, o.Flags...)...)
	switch {
	case o.Stock:
		require.NoError(t, spec.Variables["attach_mode"].Set(uint32(0))) // ATTACH_STOCK
	case !o.Linux510 && hasMulti():
		require.NoError(t, spec.Variables["attach_mode"].Set(attachpoint.Multi))
	case !o.Linux510:
		require.NoError(t, spec.Variables["attach_mode"].Set(attachpoint.Perf))
	}
	if o.Edit != nil {
		o.Edit(spec)
	}
	tr := loadWithRules(t, spec, o)
	tr.types = spec.Types
	t.Cleanup(func() {
		if t.Failed() { // what differs may be what was dropped
			t.Logf("dropped: %v", tr.Drops())
		}
	})
	points, err := attachpoint.Parse(spec.Maps[".rodata.attach"])
	require.NoError(t, err)
	for _, p := range points {
		if p.EntrySleeps {
			tr.sleeping = append(tr.sleeping, p)
		}
	}
	for library, path := range libraries {
		var these []attachpoint.Point
		for _, p := range points {
			if o.Stock && p.OnDemand() {
				continue
			}
			if p.Library == library && (library == "libcuda" || Exports(t, path)[p.Symbol]) {
				these = append(these, p)
			}
		}
		require.NotEmpty(t, these, library)
		tr.attach(path, these, o)
	}
	for _, name := range []string{"on_exit", "on_exec", "on_fork"} {
		tr.keep(link.AttachTracing(link.TracingOptions{Program: tr.Programs[name]}))
	}
	return tr
}

func (tr *Tracer) keep(l link.Link, err error) {
	tr.t.Helper()
	require.NoError(tr.t, err)
	tr.t.Cleanup(func() { l.Close() })
}

// wireRow is the C layout of struct alloc.
type wireRow struct {
	Comm       [16]byte
	PID, TID   uint32
	MntNS      uint64
	UID, GID   uint32
	ParentComm [16]byte
	PPID, PTID uint32
	Process    uint64
	StackID    uint64
	Device     int32
	Kind       [12]byte
	Span       [24]byte
	RowBootNS  uint64

	InuseBytes, AllocBytes, PeakBytes, InuseObjects, FreedBytes, ImplicitBytes, RequestedBytes, RoundingBytes uint64
	AllocObjects, FreedObjects, ImplicitObjects                                                               uint64
}

// Rows reads all rows, by pid, kind, device, stack id and span.
func (tr *Tracer) Rows() []Row {
	tr.t.Helper()
	return tr.rows(func(uint32) bool { return true })
}

// RowsOf is Rows for one process: stacks of others are not looked up.
func (tr *Tracer) RowsOf(pid int) []Row {
	tr.t.Helper()
	return tr.rows(func(other uint32) bool { return int(other) == pid })
}

func (tr *Tracer) rows(isWanted func(pid uint32) bool) []Row {
	tr.t.Helper()
	var rows []Row
	for _, iter := range tr.iters {
		r, err := iter.Open()
		require.NoError(tr.t, err)
		var all bytes.Buffer
		_, err = all.ReadFrom(r)
		require.NoError(tr.t, err)
		r.Close()
		for all.Len() > 0 {
			var w wireRow
			require.NoError(tr.t, binary.Read(&all, binary.NativeEndian, &w))
			var held uint64
			if tr.held {
				require.NoError(tr.t, binary.Read(&all, binary.NativeEndian, &held))
			}
			if !isWanted(w.PID) {
				continue
			}
			row := tr.row(&w)
			row.HeldBytes = held
			rows = append(rows, row)
		}
	}
	sort.Slice(rows, func(i, j int) bool {
		a, b := rows[i], rows[j]
		switch {
		case a.PID != b.PID:
			return a.PID < b.PID
		case a.Kind != b.Kind:
			return a.Kind < b.Kind
		case a.Device != b.Device:
			return a.Device < b.Device
		case a.StackID != b.StackID:
			return a.StackID < b.StackID
		}
		return a.Span < b.Span
	})
	return rows
}

func (tr *Tracer) row(w *wireRow) Row {
	r := Row{
		PID: w.PID, TID: w.TID, Comm: text(w.Comm[:]), Process: w.Process, StackID: w.StackID,
		Kind: text(w.Kind[:]), Device: w.Device, Span: text(w.Span[:]),
		InuseBytes: w.InuseBytes, InuseObjects: w.InuseObjects,
		AllocBytes: w.AllocBytes, AllocObjects: w.AllocObjects,
		FreedBytes: w.FreedBytes, FreedObjects: w.FreedObjects,
		ImplicitBytes: w.ImplicitBytes, ImplicitObjects: w.ImplicitObjects,
		PeakBytes: w.PeakBytes,
	}
	if w.StackID == 0 {
		return r
	}
	raw, err := tr.Maps["stacks_by_id"].LookupBytes(w.StackID)
	require.NoError(tr.t, err)
	require.NotNil(tr.t, raw, "stack %#x has no frames", w.StackID)
	s, err := stack.DecodeStack(raw)
	require.NoError(tr.t, err)
	r.Flags, r.Native, r.Runs = uint32(s.Flags), s.Native, s.Runs
	for _, f := range s.Python {
		frame := stack.Frame{Kind: stack.KindPython, Function: "?", Line: f.Line}
		if b, err := tr.Maps["symbols_by_id"].LookupBytes(f.Symbol); err == nil && b != nil {
			symbol, err := stack.DecodeSymbol(b)
			require.NoError(tr.t, err)
			frame.Function, frame.File = symbol.Function, symbol.File
		}
		r.Python = append(r.Python, frame)
	}
	return r
}

func text(b []byte) string {
	if i := bytes.IndexByte(b, 0); i >= 0 {
		b = b[:i]
	}
	return string(b)
}
