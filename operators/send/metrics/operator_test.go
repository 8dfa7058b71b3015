// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"context"
	"errors"
	"net"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/inspektor-gadget/inspektor-gadget/pkg/datasource"
	gadgetcontext "github.com/inspektor-gadget/inspektor-gadget/pkg/gadget-context"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/gadget-service/api"
	apihelpers "github.com/inspektor-gadget/inspektor-gadget/pkg/gadget-service/api-helpers"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/operators"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/operators/simple"
	"github.com/stretchr/testify/require"
)

// gadget has the data sources of cuda_alloc, with one row of this process.
type gadget struct {
	sources map[string]datasource.DataSource
	field   map[string]datasource.FieldAccessor
}

func (g *gadget) declare(gc operators.GadgetContext) error {
	g.sources, g.field = map[string]datasource.DataSource{}, map[string]datasource.FieldAccessor{}
	var errs []error
	add := func(ds datasource.DataSource, err error, fields map[string]api.Kind) {
		errs = append(errs, err)
		if err != nil {
			return
		}
		g.sources[ds.Name()] = ds
		if _, ok := fields["process"]; ok {
			proc, err := ds.AddField("proc", api.Kind_Invalid)
			errs = append(errs, err)
			for name, kind := range map[string]api.Kind{"pid": api.Kind_Uint32, "comm": api.Kind_String} {
				f, err := proc.AddSubField(name, kind)
				errs = append(errs, err)
				g.field[ds.Name()+"/proc."+name] = f
			}
		}
		for name, kind := range fields {
			f, err := ds.AddField(name, kind)
			errs = append(errs, err)
			g.field[ds.Name()+"/"+name] = f
		}
	}
	series := map[string]api.Kind{"process": api.Kind_Uint64, "stack_id": api.Kind_Uint64, "kind": api.Kind_String, "device": api.Kind_Int32}
	allocs := map[string]api.Kind{}
	for _, name := range []string{"alloc_bytes", "alloc_objects", "freed_bytes", "freed_objects",
		"implicit_bytes", "implicit_objects", "inuse_bytes", "inuse_objects", "peak_bytes"} {
		allocs[name] = api.Kind_Uint64
	}
	ooms := map[string]api.Kind{"requested_bytes": api.Kind_Uint64, "error": api.Kind_String}
	for name, kind := range series {
		allocs[name], ooms[name] = kind, kind
	}
	ds, err := gc.RegisterDataSource(datasource.TypeArray, "allocs")
	add(ds, err, allocs)
	ds, err = gc.RegisterDataSource(datasource.TypeSingle, "ooms")
	add(ds, err, ooms)
	for _, name := range []string{"calls", "totals"} {
		ds, err = gc.RegisterDataSource(datasource.TypeArray, name)
		add(ds, err, map[string]api.Kind{"process": api.Kind_Uint64, "stack_id": api.Kind_Uint64, "row": api.Kind_Uint64,
			"status": api.Kind_Uint32, "operation": api.Kind_String,
			"direction": api.Kind_String, "error": api.Kind_String, "error_raw": api.Kind_Int32,
			"calls": api.Kind_Uint64, "bytes": api.Kind_Uint64, "host_ns": api.Kind_Uint64, "device": api.Kind_Int32})
	}
	ds, err = gc.RegisterDataSource(datasource.TypeArray, "drops")
	add(ds, err, map[string]api.Kind{"reason": api.Kind_String, "count": api.Kind_Uint64, "bytes": api.Kind_Uint64})
	ds, err = gc.RegisterDataSource(datasource.TypeSingle, "attachments")
	add(ds, err, map[string]api.Kind{"pid": api.Kind_Uint32, "path": api.Kind_String, "status": api.Kind_String})
	return errors.Join(errs...)
}

func (g *gadget) put(name string, d datasource.Data, value any) error {
	f := g.field[name]
	switch v := value.(type) {
	case string:
		return f.PutString(d, v)
	case uint32:
		return f.PutUint32(d, v)
	case int32:
		return f.PutInt32(d, v)
	}
	return f.PutUint64(d, uint64(value.(int)))
}

func (g *gadget) emit(source string, values map[string]any) error {
	ds := g.sources[source]
	if ds.Type() == datasource.TypeSingle {
		d, err := ds.NewPacketSingle()
		if err != nil {
			return err
		}
		for name, v := range values {
			err = errors.Join(err, g.put(source+"/"+name, d, v))
		}
		return errors.Join(err, ds.EmitAndRelease(d))
	}
	packet, err := ds.NewPacketArray()
	if err != nil {
		return err
	}
	d := packet.New()
	for name, v := range values {
		err = errors.Join(err, g.put(source+"/"+name, d, v))
	}
	packet.Append(d)
	return errors.Join(err, ds.EmitAndRelease(packet))
}

func (g *gadget) emitAll() error {
	self := map[string]any{"proc.pid": uint32(os.Getpid()), "proc.comm": "python3", "process": 77, "kind": "pool", "device": int32(2)}
	with := func(more map[string]any) map[string]any {
		for k, v := range self {
			more[k] = v
		}
		return more
	}
	calls := func(n int) map[string]any {
		return map[string]any{"proc.pid": uint32(os.Getpid()), "proc.comm": "python3", "process": 77, "operation": "copy", "direction": "HtoD",
			"error": "CUDA_SUCCESS", "calls": n, "bytes": 12, "host_ns": 13, "device": int32(1)}
	}
	return errors.Join(
		g.emit("calls", calls(7)),
		g.emit("totals", calls(11)),
		g.emit("calls", calls(999)), // the estimate of another interval, which is ignored
		g.emit("ooms", with(map[string]any{"requested_bytes": 4096, "error": "CUDA_ERROR_OUT_OF_MEMORY"})),
		g.emit("ooms", with(map[string]any{"requested_bytes": 8192, "error": "CUDA_ERROR_NOT_PERMITTED"})), // it is not refused memory
		g.emit("allocs", with(map[string]any{"alloc_bytes": 10, "alloc_objects": 3, "freed_bytes": 4, "freed_objects": 2,
			"inuse_bytes": 6, "inuse_objects": 1, "peak_bytes": 9})),
		g.emit("drops", map[string]any{"reason": "rows_full", "count": 5, "bytes": 6}),
		g.emit("attachments", map[string]any{"pid": uint32(os.Getpid()), "path": "/lib/libcuda.so.1", "status": "attached"}))
}

// run starts a gadget with the operator and calls check when its rows are there.
func run(t *testing.T, params map[string]string, check func()) error {
	t.Helper()
	g := &gadget{}
	o := New(Config{ProcFS: "/proc"})
	global := apihelpers.ToParamDescs(o.GlobalParams()).ToParams()
	for k, v := range params {
		require.NoError(t, global.Get(k).Set(v))
	}
	require.NoError(t, o.Init(global))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	producer := simple.New("producer", simple.WithPriority(-1000), simple.OnInit(g.declare))
	emitter := simple.New("emitter", simple.WithPriority(20000), simple.OnStart(func(operators.GadgetContext) error {
		defer cancel()
		if err := g.emitAll(); err != nil {
			return err
		}
		check()
		return nil
	}))
	return gadgetcontext.New(ctx, "ghcr.io/x/cuda_alloc:v1", gadgetcontext.WithDataOperators(producer, o, emitter)).Run(nil)
}

func freePort(t *testing.T) *net.TCPAddr {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer listener.Close()
	return listener.Addr().(*net.TCPAddr)
}

func TestRunOfAGadgetIsPublished(t *testing.T) {
	addr := freePort(t)
	var got map[string]float64
	require.NoError(t, run(t, map[string]string{paramListen: addr.String(), paramCompat: "true"}, func() { got = scrape(t, addr) }))
	labels := `{device="2",hw_vendor="NVIDIA",k8s_container_name="",k8s_namespace_name="",k8s_pod_name="",kind="pool",process_comm="python3",process_pid="` + strconv.Itoa(os.Getpid()) + `"}`
	for name, want := range map[string]float64{
		"gpu_memory_allocated_bytes_total": 10, "gpu_memory_allocations_total": 3, "gpu_memory_freed_bytes_total": 4,
		"gpu_memory_frees_total": 2, "gpu_memory_inuse_bytes": 6, "gpu_memory_inuse_objects": 1, "gpu_memory_peak_bytes": 9,
		"gpu_memory_failures_total": 1, "gpu_memory_failed_bytes_total": 4096,
	} {
		require.Equal(t, map[string]float64{labels: want}, having(got, name), name)
	}
	process := `,hw_vendor="NVIDIA",k8s_container_name="",k8s_namespace_name="",k8s_pod_name="",`
	of := `process_comm="python3",process_pid="` + strconv.Itoa(os.Getpid()) + `"}`
	require.Equal(t, map[string]float64{`{device="1",error_type=""` + process + `operation="copy",` + of: 11}, having(got, "gpu_calls_total"))
	require.Equal(t, map[string]float64{`{device="1",direction="HtoD"` + process + of: 12}, having(got, "gpu_copied_bytes_total"))
	require.Equal(t, 5.0, got[`gpu_gadgets_drops_total{gadget="cuda_alloc",reason="rows_full"}`])
	require.Equal(t, 1.0, got[`gpu_gadgets_attached_processes{gadget="cuda_alloc"}`])
	_, err := net.DialTimeout("tcp", addr.String(), time.Second)
	require.Error(t, err, "the endpoint ends with the run")
}

func TestNVMLIsOnByDefault(t *testing.T) {
	for value, want := range map[string][]string{"auto": {""}, "/x/libnvidia-ml.so.1": {"/x/libnvidia-ml.so.1"}, "off": nil} {
		var paths []string
		o := New(Config{NVML: func(path string) Source { paths = append(paths, path); return nil }})
		global := apihelpers.ToParamDescs(o.GlobalParams()).ToParams()
		require.NoError(t, global.Get(paramNVML).Set(value))
		require.NoError(t, o.Init(global))
		require.Equal(t, want, paths, value)
	}
}

func TestWrongParameterKeepsTheGadgetFromStarting(t *testing.T) {
	err := run(t, map[string]string{paramEndpoint: "localhost:4317"}, func() { t.Error("it ran") })
	require.ErrorContains(t, err, "--metrics-otlp-endpoint: \"localhost:4317\" is not a URL")
}

func TestNothingIsOpenedWithoutParameters(t *testing.T) {
	require.NoError(t, run(t, nil, func() {}))
}
