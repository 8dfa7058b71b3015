// SPDX-License-Identifier: Apache-2.0

package sink

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/rlimit"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/datasource"
	gadgetcontext "github.com/inspektor-gadget/inspektor-gadget/pkg/gadget-context"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/gadget-service/api"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/operators"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/operators/simple"
	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/internal/elf/symbols"
	"github.com/gpu-gadgets/gpu-gadgets/internal/format/pprof"
	"github.com/gpu-gadgets/gpu-gadgets/internal/process/procmaps"
	"github.com/gpu-gadgets/gpu-gadgets/internal/profile"
	"github.com/gpu-gadgets/gpu-gadgets/internal/stack"
	"github.com/gpu-gadgets/gpu-gadgets/operators/decode/symbolize"
)

// gadget simulates the gadget: its data sources, its maps, and what it
// emits. Text per row as a later operator saw it ends in seen.
type gadget struct {
	allocs, ooms datasource.DataSource
	field        map[string]datasource.FieldAccessor
	intervals    [][]row
	oom          bool
	seen         []string
	driver       Driver
}

// driver counts 1000 bytes for process 1 beyond what the rows explain.
type driver struct {
	bytes  int64
	closed bool
}

func (*driver) Start() error { return nil }
func (d *driver) Close()     { d.closed = true }
func (d *driver) See(rows []profile.Row) {
	d.bytes = 1000
	for _, r := range rows {
		d.bytes -= r.InuseBytes
	}
}
func (d *driver) Rows() []profile.Row {
	return []profile.Row{{Process: profile.Process{ID: 1, PID: 4001}, Kind: "driver", Device: profile.UnknownDevice,
		Stack:  stack.Stack{{Function: "[cuda context and modules]"}},
		Values: profile.Values{AllocBytes: d.bytes, AllocObjects: 1, InuseBytes: d.bytes, InuseObjects: 1, PeakBytes: d.bytes}}}
}

type row struct {
	process, stackID uint64
	alloc, freed     uint64
	device           int32
}

var counters = []string{
	"alloc_bytes", "alloc_objects", "freed_bytes", "freed_objects",
	"implicit_bytes", "implicit_objects", "inuse_bytes", "inuse_objects", "peak_bytes",
}

func (g *gadget) declare(gc operators.GadgetContext) error {
	g.field = map[string]datasource.FieldAccessor{}
	add := func(ds datasource.DataSource, parent string, name string, kind api.Kind) error {
		var f datasource.FieldAccessor
		var err error
		if parent == "" {
			f, err = ds.AddField(name, kind)
		} else {
			f, err = g.field[ds.Name()+"/"+parent].AddSubField(name, kind)
			name = parent + "." + name
		}
		g.field[ds.Name()+"/"+name] = f
		return err
	}
	var errs []error
	var err error
	if g.allocs, err = gc.RegisterDataSource(datasource.TypeArray, "allocs"); err != nil {
		return err
	}
	if g.ooms, err = gc.RegisterDataSource(datasource.TypeSingle, "ooms"); err != nil {
		return err
	}
	for _, ds := range []datasource.DataSource{g.allocs, g.ooms} {
		errs = append(errs,
			add(ds, "", "proc", api.Kind_Invalid), add(ds, "proc", "pid", api.Kind_Uint32), add(ds, "proc", "comm", api.Kind_String),
			add(ds, "", "k8s", api.Kind_Invalid), add(ds, "k8s", "podName", api.Kind_String),
			add(ds, "", "process", api.Kind_Uint64), add(ds, "", "stack_id", api.Kind_Uint64))
	}
	errs = append(errs, add(g.allocs, "", "kind", api.Kind_String), add(g.allocs, "", "device", api.Kind_Int32))
	for _, name := range counters {
		errs = append(errs, add(g.allocs, "", name, api.Kind_Uint64))
	}
	errs = append(errs, add(g.ooms, "", "api", api.Kind_String), add(g.ooms, "", "error_raw", api.Kind_Int32),
		add(g.ooms, "", "timestamp_raw", api.Kind_Uint64),
		add(g.ooms, "", "requested_bytes", api.Kind_Uint64), add(g.ooms, "", "inuse_bytes", api.Kind_Uint64),
		add(g.ooms, "", "holder_stacks", api.Kind_Bytes), add(g.ooms, "", "holder_bytes", api.Kind_Bytes))
	return errors.Join(errs...)
}

func (g *gadget) process(ds datasource.DataSource, d datasource.Data, process, stackID uint64) error {
	f := func(name string) datasource.FieldAccessor { return g.field[ds.Name()+"/"+name] }
	return errors.Join(
		f("proc.pid").PutUint32(d, uint32(4000+process)), f("proc.comm").PutString(d, "python3"),
		f("k8s.podName").PutString(d, "llm-0"),
		f("process").PutUint64(d, process), f("stack_id").PutUint64(d, stackID))
}

func (g *gadget) emit(rows []row) error {
	packet, err := g.allocs.NewPacketArray()
	if err != nil {
		return err
	}
	for _, r := range rows {
		d := packet.New()
		errs := []error{
			g.process(g.allocs, d, r.process, r.stackID),
			g.field["allocs/kind"].PutString(d, "device"), g.field["allocs/device"].PutInt32(d, r.device),
		}
		for i, v := range []uint64{r.alloc, 2, r.freed, 1, 0, 0, r.alloc - r.freed, 1, r.alloc} {
			errs = append(errs, g.field["allocs/"+counters[i]].PutUint64(d, v))
		}
		if err := errors.Join(errs...); err != nil {
			return err
		}
		packet.Append(d)
	}
	return g.allocs.EmitAndRelease(packet)
}

func (g *gadget) emitOOM() error {
	d, err := g.ooms.NewPacketSingle()
	if err != nil {
		return err
	}
	array := func(values ...uint64) (b []byte) {
		for _, v := range values {
			b = binary.NativeEndian.AppendUint64(b, v)
		}
		return b
	}
	f := func(name string) datasource.FieldAccessor { return g.field["ooms/"+name] }
	if err := errors.Join(g.process(g.ooms, d, 1, 11),
		f("api").PutString(d, "cuMemAlloc_v2"), f("error_raw").PutInt32(d, 2),
		f("requested_bytes").PutUint64(d, 1<<30), f("inuse_bytes").PutUint64(d, 12<<20),
		f("timestamp_raw").PutUint64(d, uint64(time.Date(2026, 9, 30, 12, 0, 0, 5, time.UTC).UnixNano())),
		f("holder_stacks").PutBytes(d, array(11, 0, 0, 0, 0)), f("holder_bytes").PutBytes(d, array(12<<20, 512, 0, 0, 0)),
	); err != nil {
		return err
	}
	return g.ooms.EmitAndRelease(d)
}

// run goes through a whole gadget run, as ig does.
func (g *gadget) run(t *testing.T, values api.ParamValues) error {
	t.Helper()
	maps := kernelMaps(t)
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	producer := simple.New("producer", simple.WithPriority(-1000), simple.OnInit(g.declare),
		simple.OnStart(func(gc operators.GadgetContext) error {
			for name, m := range maps {
				gc.SetVar(operators.MapPrefix+name, m)
			}
			return nil
		}),
		// Stopped after all others, as the last fetch of a map iterator is.
		simple.OnStop(func(operators.GadgetContext) error {
			if n := len(g.intervals); n > 0 {
				if err := g.emit(g.intervals[n-1]); err != nil {
					return err
				}
			}
			if g.oom {
				return g.emitOOM()
			}
			return nil
		}))
	emitter := simple.New("emitter", simple.WithPriority(20000), simple.OnStart(func(operators.GadgetContext) error {
		for _, rows := range g.intervals[:max(0, len(g.intervals)-1)] {
			if err := g.emit(rows); err != nil {
				return err
			}
		}
		return nil
	}))
	table := simple.New("table", simple.WithPriority(10000), simple.OnPreStart(func(gc operators.GadgetContext) error {
		see := func(ds datasource.DataSource, d datasource.Data) error {
			line := ds.Name()
			for _, name := range []string{"frame", "stack", "holders"} {
				if f := ds.GetField(name); f != nil {
					s, _ := f.String(d)
					line += "|" + s
				}
			}
			g.seen = append(g.seen, line)
			return nil
		}
		return errors.Join(g.allocs.Subscribe(see, 10000), g.ooms.Subscribe(see, 10000))
	}))
	resolver := symbols.NewResolver(procmaps.NewCache(procmaps.Config{}))
	prefixed := api.ParamValues{}
	for k, v := range values {
		prefixed["operator.sink."+k] = v
	}
	return gadgetcontext.New(ctx, "", gadgetcontext.WithDataOperators(producer, symbolize.New(resolver), New(Config{Driver: func() Driver { return g.driver }}), table, emitter)).Run(prefixed)
}

// kernelMaps are maps as the gadget's: two stacks, of one Python frame each.
func kernelMaps(t *testing.T) map[string]*ebpf.Map {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("creating eBPF maps needs root")
	}
	require.NoError(t, rlimit.RemoveMemlock())
	create := func(name string, valueSize int) *ebpf.Map {
		m, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Hash, KeySize: 8, ValueSize: uint32(valueSize), MaxEntries: 8})
		require.NoError(t, err)
		t.Cleanup(func() { m.Close() })
		return m
	}
	maps := map[string]*ebpf.Map{"stacks_by_id": create("stacks_by_id", stack.StackBytes), "symbols_by_id": create("symbols_by_id", stack.SymbolBytes)}
	for id, name := range map[uint64]string{11: "Model.load", 22: "</script>"} {
		s := make([]byte, stack.StackBytes)
		binary.NativeEndian.PutUint16(s[6:], 1)
		binary.NativeEndian.PutUint64(s[stack.StackPythonOffset:], id)
		binary.NativeEndian.PutUint32(s[stack.StackPythonOffset+8:], 7)
		require.NoError(t, maps["stacks_by_id"].Put(id, s))
		b := make([]byte, stack.SymbolBytes)
		binary.NativeEndian.PutUint16(b[4:], uint16(len(name)))
		binary.NativeEndian.PutUint16(b[6:], uint16(len("/app/m.py")))
		b[10], b[11], b[13] = 1, 1, 1
		copy(b[18:], name)
		copy(b[18+128:], "/app/m.py")
		require.NoError(t, maps["symbols_by_id"].Put(id, b))
	}
	return maps
}

func TestRowsGetNamesForEveryOperator(t *testing.T) {
	g := &gadget{intervals: [][]row{{{1, 11, 100, 0, 0}, {1, 0, 5, 0, 0}}}, oom: true}
	require.NoError(t, g.run(t, nil))
	require.Equal(t, []string{
		"allocs|Model.load (m.py:7)|Model.load (m.py:7)",
		"allocs|[unknown]|[unknown]",
		"ooms|Model.load (m.py:7)|Model.load (m.py:7)|12.0 MiB Model.load (m.py:7); 512 B [unknown]",
	}, g.seen)
}

func TestFiles(t *testing.T) {
	dir := t.TempDir()
	in := func(name string) string { return filepath.Join(dir, name) }
	g := &gadget{oom: true, intervals: [][]row{
		{{1, 11, 100, 0, 0}, {2, 22, 50, 0, -1}},
		{{1, 11, 100, 0, 0}, {2, 22, 70, 20, -1}},
		{{1, 11, 300, 0, 0}}, // process 2 is gone
	}}
	require.NoError(t, g.run(t, api.ParamValues{"pprof-out": in("p.pb.gz"), "flamegraph-out": in("f.html"), "jsonl-out": in("rows.jsonl")}))

	f, err := os.Open(in("p.pb.gz"))
	require.NoError(t, err)
	defer f.Close()
	p, err := pprof.Decode(f)
	require.NoError(t, err)
	require.Len(t, p.Rows, 2)
	require.Equal(t, int64(300), p.Sum().InuseBytes, "what is gone is not in use")
	require.Equal(t, int64(370), p.Sum().AllocBytes, "but was allocated")
	require.Equal(t, profile.Process{ID: 4001, PID: 4001, Comm: "python3", Pod: "llm-0"}, p.Rows[0].Process)
	require.Equal(t, "Model.load (m.py:7)", p.Rows[0].Stack.Folded())
	require.Equal(t, int32(profile.UnknownDevice), p.Rows[1].Device)

	page, err := os.ReadFile(in("f.html"))
	require.NoError(t, err)
	require.Contains(t, string(page), "Model.load")
	require.Equal(t, 2, strings.Count(string(page), "</script>"))

	lines, err := os.ReadFile(in("rows.jsonl"))
	require.NoError(t, err)
	var got []string
	for line := range strings.Lines(string(lines)) {
		var v struct {
			Type, Time, Error string
			PID               int
			Inuse             int64 `json:"inuse_bytes"`
			Implicit          int64 `json:"implicit_bytes"`
			Stack             []struct{ Function string }
		}
		require.NoError(t, json.Unmarshal([]byte(line), &v))
		at, err := time.Parse(time.RFC3339Nano, v.Time)
		require.NoError(t, err)
		if v.Type == "oom" {
			require.Equal(t, "2026-09-30T12:00:00.000000005Z", v.Time)
		} else {
			require.WithinDuration(t, time.Now(), at, time.Minute)
		}
		got = append(got, strings.Join([]string{v.Type, v.Stack[0].Function, v.Error, profile.FormatBytes(v.Inuse), profile.FormatBytes(v.Implicit)}, " "))
	}
	require.Equal(t, []string{
		"alloc Model.load  100 B 0 B",
		"alloc </script>  50 B 0 B",
		"alloc </script>  50 B 0 B", // 20 more allocated, 20 freed
		"alloc Model.load  300 B 0 B",
		"alloc </script>  0 B 50 B",
		"oom Model.load 2 12.0 MiB 0 B",
	}, got)

	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, entries, 3, "no temporary files")
}

func TestBaseIsCompared(t *testing.T) {
	dir := t.TempDir()
	base, page := filepath.Join(dir, "base.pb.gz"), filepath.Join(dir, "f.html")
	require.NoError(t, (&gadget{intervals: [][]row{{{1, 11, 100, 0, 0}}}}).run(t, api.ParamValues{"pprof-out": base}))
	require.NoError(t, (&gadget{intervals: [][]row{{{1, 11, 300, 0, 0}}}}).run(t, api.ParamValues{"flamegraph-out": page, "flamegraph-base": base}))
	text, err := os.ReadFile(page)
	require.NoError(t, err)
	require.Equal(t, 2, strings.Count(string(text), `"rows":[`))

	err = (&gadget{}).run(t, api.ParamValues{"flamegraph-base": base})
	require.ErrorContains(t, err, "--flamegraph-base needs --flamegraph-out")
}

func TestProfileWithTheDriversMemoryAddsUp(t *testing.T) {
	file := filepath.Join(t.TempDir(), "p.pb.gz")
	d := &driver{}
	g := &gadget{driver: d, intervals: [][]row{{{1, 11, 100, 0, 0}}, {{1, 11, 300, 0, 0}}}}
	require.NoError(t, g.run(t, api.ParamValues{"pprof-out": file, "driver-memory": "true"}))
	f, err := os.Open(file)
	require.NoError(t, err)
	defer f.Close()
	p, err := pprof.Decode(f)
	require.NoError(t, err)
	require.Len(t, p.Rows, 2)
	require.Equal(t, int64(1000), p.Sum().InuseBytes)
	require.True(t, d.closed)

	err = (&gadget{driver: d}).run(t, api.ParamValues{"driver-memory": "true"})
	require.ErrorContains(t, err, "--driver-memory needs --pprof-out or --flamegraph-out")
}

func TestUnwritablePathFailsBeforeTheRun(t *testing.T) {
	dir := t.TempDir()
	for _, param := range []string{"pprof-out", "flamegraph-out", "jsonl-out"} {
		g := &gadget{intervals: [][]row{{{1, 11, 100, 0, 0}}}}
		err := g.run(t, api.ParamValues{param: filepath.Join(dir, "none", "file")})
		require.ErrorContains(t, err, "--"+param+": ")
		require.NotContains(t, err.Error(), "\n")
		require.Empty(t, g.seen)
	}
	require.ErrorContains(t, (&gadget{}).run(t, api.ParamValues{"pprof-out": dir}), "is a directory")
}

func TestFailedRunLeavesTheOldFile(t *testing.T) {
	dir := t.TempDir()
	old := filepath.Join(dir, "p.pb.gz")
	require.NoError(t, os.WriteFile(old, []byte("old"), 0o600))
	err := (&gadget{}).run(t, api.ParamValues{"pprof-out": old, "jsonl-out": filepath.Join(dir, "none", "file")})
	require.Error(t, err)
	b, err := os.ReadFile(old)
	require.NoError(t, err)
	require.Equal(t, "old", string(b))
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, entries, 1)
}

func TestLinksAreNotFollowed(t *testing.T) {
	dir := t.TempDir()
	target, link := filepath.Join(dir, "target"), filepath.Join(dir, "link")
	require.NoError(t, os.WriteFile(target, []byte("old"), 0o600))
	require.NoError(t, os.Symlink(target, link))
	for _, param := range []string{"pprof-out", "flamegraph-out", "jsonl-out"} {
		err := (&gadget{intervals: [][]row{{{1, 11, 100, 0, 0}}}}).run(t, api.ParamValues{param: link})
		require.ErrorContains(t, err, "--"+param+": "+link+" is a symbolic link")
	}
	b, err := os.ReadFile(target)
	require.NoError(t, err)
	require.Equal(t, "old", string(b))
}
