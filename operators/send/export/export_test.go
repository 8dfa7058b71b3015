// SPDX-License-Identifier: Apache-2.0

package export

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/inspektor-gadget/inspektor-gadget/pkg/datasource"
	gadgetcontext "github.com/inspektor-gadget/inspektor-gadget/pkg/gadget-context"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/gadget-service/api"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/operators"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/operators/simple"
	log "github.com/sirupsen/logrus"
	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/internal/elf/symbols"
	"github.com/gpu-gadgets/gpu-gadgets/internal/export/queue"
	"github.com/gpu-gadgets/gpu-gadgets/internal/export/series"
	"github.com/gpu-gadgets/gpu-gadgets/internal/process/procmaps"
	"github.com/gpu-gadgets/gpu-gadgets/internal/profile"
	"github.com/gpu-gadgets/gpu-gadgets/operators/decode/symbolize"
)

// gadget simulates cuda_alloc: one process with unknown stacks.
type gadget struct {
	readings [][2]uint64 // allocated and in-use bytes, cumulative
	pause    time.Duration
	oom      bool
	hasGPU   bool
	emitted  func() // called when all is emitted; may be nil

	gpusClosed bool
	stats      map[string]queue.Stats
}

var counters = []string{
	"alloc_bytes", "alloc_objects", "freed_bytes", "freed_objects", "implicit_bytes", "implicit_objects",
	"inuse_bytes", "inuse_objects", "peak_bytes",
}

// oneGPU has everything.
type oneGPU struct{ g *gadget }

func (oneGPU) Of(p profile.Process) string { return fmt.Sprintf("GPU-of-%d", p.PID) }
func (o oneGPU) Close()                    { o.g.gpusClosed = true }

func (g *gadget) gpus() (GPUs, error) {
	if !g.hasGPU {
		return nil, errors.New("no GPU")
	}
	return oneGPU{g}, nil
}

// source is the data sources of a gadget, and the accessors of their fields by "source/field".
type source struct {
	allocs, ooms datasource.DataSource
	field        map[string]datasource.FieldAccessor
}

// add adds fields of the data source, below parent, if any.
func (s *source) add(ds datasource.DataSource, parent datasource.FieldAccessor, kind api.Kind, names ...string) error {
	var errs []error
	for _, name := range names {
		var f datasource.FieldAccessor
		var err error
		if parent != nil {
			f, err = parent.AddSubField(name, kind)
		} else {
			f, err = ds.AddField(name, kind)
		}
		s.field[ds.Name()+"/"+name] = f
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

func (s *source) declare(gc operators.GadgetContext) (err error) {
	if s.allocs, err = gc.RegisterDataSource(datasource.TypeArray, "allocs"); err != nil {
		return err
	}
	if s.ooms, err = gc.RegisterDataSource(datasource.TypeSingle, "ooms"); err != nil {
		return err
	}
	var errs []error
	for _, ds := range []datasource.DataSource{s.allocs, s.ooms} {
		errs = append(errs, s.add(ds, nil, api.Kind_Invalid, "proc", "k8s"))
		proc, k8s := s.field[ds.Name()+"/proc"], s.field[ds.Name()+"/k8s"]
		errs = append(errs,
			s.add(ds, proc, api.Kind_String, "comm"), s.add(ds, proc, api.Kind_Uint32, "pid"),
			s.add(ds, k8s, api.Kind_String, "namespace", "podName", "node"),
			s.add(ds, nil, api.Kind_Uint64, "process", "stack_id"))
	}
	errs = append(errs, s.add(s.allocs, nil, api.Kind_Uint64, counters...),
		s.add(s.allocs, nil, api.Kind_String, "kind"), s.add(s.allocs, nil, api.Kind_Int32, "device"))
	return errors.Join(errs...)
}

// process sets the fields of the only process.
func (s *source) process(ds datasource.DataSource, d datasource.Data) error {
	f := func(name string) datasource.FieldAccessor { return s.field[ds.Name()+"/"+name] }
	return errors.Join(f("pid").PutUint32(d, 4242), f("comm").PutString(d, "python3"), f("process").PutUint64(d, 7),
		f("namespace").PutString(d, "ml"), f("podName").PutString(d, "llm-0"), f("node").PutString(d, "node-a"))
}

func (s *source) emit(alloc, inuse uint64) error {
	packet, err := s.allocs.NewPacketArray()
	if err != nil {
		return err
	}
	d := packet.New()
	errs := []error{s.process(s.allocs, d), s.field["allocs/kind"].PutString(d, "device"), s.field["allocs/device"].PutInt32(d, 0)}
	for i, v := range []uint64{alloc, alloc, alloc - inuse, alloc - inuse, 0, 0, inuse, inuse, alloc} {
		errs = append(errs, s.field["allocs/"+counters[i]].PutUint64(d, v))
	}
	packet.Append(d)
	errs = append(errs, s.allocs.EmitAndRelease(packet))
	return errors.Join(errs...)
}

func (s *source) emitOOM() error {
	d, err := s.ooms.NewPacketSingle()
	if err != nil {
		return err
	}
	return errors.Join(s.process(s.ooms, d), s.ooms.EmitAndRelease(d))
}

// emitAll emits the gadget's rows, with its pauses.
func (g *gadget) emitAll(t *testing.T, s *source) {
	for _, r := range g.readings {
		if err := s.emit(r[0], r[1]); err != nil {
			t.Error(err)
		}
		time.Sleep(g.pause)
	}
	if g.oom {
		if err := s.emitOOM(); err != nil {
			t.Error("cannot emit an oom: ", err)
		}
	}
	if g.emitted != nil {
		g.emitted()
	}
}

func (g *gadget) run(t *testing.T, values api.ParamValues) error {
	t.Helper()
	rows := &source{field: map[string]datasource.FieldAccessor{}}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	producer := simple.New("producer", simple.WithPriority(-1000), simple.OnInit(rows.declare),
		// Stopped after all others, as the last fetch of an iterator is.
		simple.OnStop(func(operators.GadgetContext) error {
			if n := len(g.readings); n > 0 {
				return rows.emit(g.readings[n-1][0], g.readings[n-1][1])
			}
			return nil
		}))
	emitter := simple.New("emitter", simple.WithPriority(20000), simple.OnStart(func(operators.GadgetContext) error {
		go func() {
			defer cancel()
			g.emitAll(t, rows)
		}()
		return nil
	}))
	prefixed := api.ParamValues{}
	for k, v := range values {
		prefixed["operator.export."+k] = v
	}
	resolver := symbols.NewResolver(procmaps.NewCache(procmaps.Config{}))
	register := func(name string, stats func() queue.Stats) func() {
		return func() {
			if g.stats == nil {
				g.stats = map[string]queue.Stats{}
			}
			g.stats[name] = stats()
		}
	}
	return gadgetcontext.New(ctx, "", gadgetcontext.WithDataOperators(producer, symbolize.New(resolver), New(Config{Register: register, GPUs: g.gpus}), emitter)).Run(prefixed)
}

func TestARunIsSentToAll(t *testing.T) {
	b := newBackend(t)
	g := &gadget{oom: true, hasGPU: true, pause: 400 * time.Millisecond, readings: [][2]uint64{{100, 100}, {100, 100}, {300, 50}, {300, 50}, {350, 60}}}
	require.NoError(t, g.run(t, api.ParamValues{
		paramPyroscope: b.URL, paramOTLP: b.URL, paramProtocol: "http", paramInterval: "1s", paramCompat: "true", paramCluster: "c1", paramPIDs: "true",
	}))
	require.EqualValues(t, 350, b.alloc, "windows add up")
	require.EqualValues(t, 350, b.otlp)
	require.EqualValues(t, 60, b.inuse, "levels do not")
	require.Equal(t, "GPU-of-4242", b.hardware)
	require.True(t, g.gpusClosed)
	require.Equal(t, 1, b.ooms)
	require.Greater(t, b.requests, 2, "the check, and more than one window")
	require.Equal(t, map[string]string{
		"__name__": "process_cpu", "service_name": "python3", "cluster": "c1", "node": "node-a", "namespace": "ml", "pod": "llm-0",
		"device": "0", "gpu": "GPU-of-4242", "kind": "device", "pid": "4242", "k8s_namespace": "ml", "k8s_podName": "llm-0",
	}, b.labels)
	for _, name := range []string{"pyroscope", "otlp", "otlp-logs"} {
		require.Positive(t, g.stats[name].SentItems, name)
	}
}

func TestNothingIsSentByDefault(t *testing.T) {
	g := &gadget{readings: [][2]uint64{{100, 100}}}
	require.NoError(t, g.run(t, nil))
	require.Nil(t, g.stats)
}

func TestUnreachableServerDelaysNothing(t *testing.T) {
	var warnings bytes.Buffer
	log.SetOutput(&warnings)
	defer log.SetOutput(os.Stderr)
	b := newBackend(t)
	b.status.Store(http.StatusServiceUnavailable)
	// The server is back when all readings are through, and not before: a reading that
	// waited for it would wait for ever.
	emitted := make(chan struct{})
	g := &gadget{pause: 200 * time.Millisecond, readings: [][2]uint64{{100, 100}, {200, 200}, {300, 300}, {400, 400}, {500, 500}, {600, 600}, {700, 700}},
		emitted: func() { close(emitted) }}
	go func() {
		select {
		case <-emitted:
		case <-time.After(time.Minute):
			t.Error("a reading waits for the server")
		}
		b.status.Store(0)
	}()
	require.NoError(t, g.run(t, api.ParamValues{paramPyroscope: b.URL, paramInterval: "1s"}))
	require.EqualValues(t, 700, b.alloc, "all windows arrive in the end")
	require.Contains(t, warnings.String(), "Pyroscope does not accept data yet, up to 64.0 MiB are kept until it does: 503")
}

func TestUnreachableServerIsReportedAndDoesNotDelayTheEnd(t *testing.T) {
	var warnings bytes.Buffer
	log.SetOutput(&warnings)
	defer log.SetOutput(os.Stderr)
	g := &gadget{readings: [][2]uint64{{100, 100}}}
	began := time.Now()
	require.NoError(t, g.run(t, api.ParamValues{paramPyroscope: "http://127.0.0.1:1", paramOTLP: "http://127.0.0.1:1"}))
	require.Less(t, time.Since(began), 6*flushTimeout, "this machine may be busy")
	require.Contains(t, warnings.String(), "Pyroscope did not get 1 of 1 requests")
	require.Contains(t, warnings.String(), "the OTLP receiver did not get 1 of 1 requests")
}

func TestCertainMistakesAreErrorsBeforeTheRun(t *testing.T) {
	b := newBackend(t)
	b.status.Store(http.StatusUnauthorized)
	err := (&gadget{}).run(t, api.ParamValues{paramPyroscope: b.URL})
	require.ErrorContains(t, err, "--pyroscope-url "+b.URL+": 401 Unauthorized")
	require.ErrorContains(t, err, "it requires a tenant, user or token")
	err = (&gadget{}).run(t, api.ParamValues{paramOTLP: b.URL, paramProtocol: "http"})
	require.ErrorContains(t, err, "--otlp-endpoint "+b.URL+": 401")
	b.status.Store(http.StatusNotFound)
	err = (&gadget{}).run(t, api.ParamValues{paramOTLP: b.URL, paramProtocol: "http"})
	require.ErrorContains(t, err, "does not take OTLP profiles")
}

func TestParameters(t *testing.T) {
	const url = "http://pyroscope:4040"
	for _, c := range []struct {
		values api.ParamValues
		want   string
	}{
		{api.ParamValues{paramPyroscope: "pyroscope:4040"}, "--pyroscope-url: want http://HOST[:PORT]"},
		{api.ParamValues{paramOTLP: "localhost"}, "--otlp-endpoint: want http://HOST[:PORT]"},
		{api.ParamValues{paramTenant: "a"}, "--pyroscope-tenant needs --pyroscope-url"},
		{api.ParamValues{paramCompat: "true", paramOTLP: url}, "--pyroscope-compat needs --pyroscope-url"},
		{api.ParamValues{paramOTLPToken: "a", paramPyroscope: url}, "--otlp-token-file needs --otlp-endpoint"},
		{api.ParamValues{paramPyroscope: url, paramUser: "me"}, "--pyroscope-url: a user needs a password"},
		{api.ParamValues{paramPyroscope: url, paramToken: "/none"}, "--pyroscope-url: open /none"},
		{api.ParamValues{paramPyroscope: url, paramInterval: "10ms"}, "--export-interval: want a duration from 1s to 1h"},
		{api.ParamValues{paramPyroscope: url, paramInterval: "ten"}, "--export-interval: want a duration"},
		{api.ParamValues{paramPyroscope: url, paramQueue: "1"}, "--export-queue-size: want a size from 1MiB"},
		{api.ParamValues{paramPyroscope: url, paramQueue: "99999999999GiB"}, "--export-queue-size: want a size"},
		{api.ParamValues{paramPyroscope: url, paramQueue: "-5MiB"}, "--export-queue-size: want a size"},
		{api.ParamValues{paramPyroscope: url, paramPIDs: "maybe"}, "--export-pid: want true or false"},
		{api.ParamValues{paramOTLP: url, paramProtocol: "json"}, "--otlp-protocol: want grpc or http"},
	} {
		_, err := parse(c.values)
		require.ErrorContains(t, err, c.want)
	}
	for text, want := range map[string]int64{"": 64 << 20, "64MiB": 64 << 20, "1Gi": 1 << 30, "2097152": 2 << 20} {
		n, err := parseSize(text)
		require.NoError(t, err)
		require.Equal(t, want, n, text)
	}
	s, err := parse(api.ParamValues{paramPyroscope: url})
	require.NoError(t, err)
	require.Equal(t, series.Levels{Inuse: true}, s.levels)
	require.NotEmpty(t, s.node)
}

func TestSecretsOfTheEnvironment(t *testing.T) {
	t.Setenv(envUser, "me")
	t.Setenv(envPassword, "secret")
	t.Setenv(envTenant, "team")
	t.Setenv(envHeaders, "X-A=b=c, Authorization=Bearer x,X-Encoded=Basic%20YTpi%2Bc%3D%2C+")
	s, err := parse(api.ParamValues{paramPyroscope: "http://p", paramOTLP: "http://o"})
	require.NoError(t, err)
	h, err := s.pyroscope.Header()
	require.NoError(t, err)
	require.Equal(t, "Basic bWU6c2VjcmV0", h.Get("Authorization"))
	require.Equal(t, "team", h.Get("X-Scope-OrgID"))
	h, err = s.otlp.Header()
	require.NoError(t, err)
	require.Equal(t, "b=c", h.Get("X-A"))
	require.Equal(t, "Bearer x", h.Get("Authorization"))
	require.Equal(t, "Basic YTpi+c=,+", h.Get("X-Encoded"), "as OpenTelemetry's specification has it")

	// The command line overrides it.
	token := filepath.Join(t.TempDir(), "token")
	require.NoError(t, os.WriteFile(token, []byte("t"), 0o600))
	s, err = parse(api.ParamValues{paramPyroscope: "http://p", paramToken: token})
	require.NoError(t, err)
	h, err = s.pyroscope.Header()
	require.NoError(t, err)
	require.Equal(t, "Bearer t", h.Get("Authorization"))

	for value, want := range map[string]string{
		"secret":                           "entry 1: want name=value",
		"X-A=b,X-B=secret%":                "entry 2: want a percent-encoded value",
		"X-A=secret%zz":                    "entry 1: want a percent-encoded value",
		"X-A=secret%0d%0aX-B: b":           "entry 1: want a value of one line",
		"X-A=b,Authorization=secret%00%7f": "entry 2: want a value of one line",
	} {
		t.Setenv(envHeaders, value)
		_, err = parse(api.ParamValues{paramOTLP: "http://o"})
		require.ErrorContains(t, err, "$OTEL_EXPORTER_OTLP_HEADERS: "+want)
		require.NotContains(t, err.Error(), "secret")
	}
}
