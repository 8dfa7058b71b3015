// SPDX-License-Identifier: Apache-2.0

package feed

import (
	"errors"
	"testing"
	"time"

	"github.com/inspektor-gadget/inspektor-gadget/pkg/datasource"
	gadgetcontext "github.com/inspektor-gadget/inspektor-gadget/pkg/gadget-context"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/gadget-service/api"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	"github.com/gpu-gadgets/gpu-gadgets/internal/export/window"
	"github.com/gpu-gadgets/gpu-gadgets/internal/ig"
	"github.com/gpu-gadgets/gpu-gadgets/internal/profile"
	"github.com/gpu-gadgets/gpu-gadgets/operators/send/metrics"
)

// daemon emits the data of one gadget instance: rows of one process with one stack.
type daemon struct {
	t      testing.TB
	ds     datasource.DataSource
	oomDS  datasource.DataSource
	info   *api.GadgetInfo
	sent   []*api.GadgetEvent // since the instance began
	fields map[string]datasource.FieldAccessor

	namespace, pod, stack, span string // in rows
}

var counters = []string{"alloc_bytes", "alloc_objects", "freed_bytes", "freed_objects", "implicit_bytes",
	"implicit_objects", "inuse_bytes", "inuse_objects", "peak_bytes"}

func newDaemon(t testing.TB) *daemon {
	t.Helper()
	d := &daemon{t: t, stack: "<module> (serve.py:3); grow (cache.py:88)", fields: map[string]datasource.FieldAccessor{}}
	gc := gadgetcontext.New(t.Context(), "cuda_alloc")
	add := func(kind datasource.Type, name string, fields map[string]api.Kind) datasource.DataSource {
		ds, err := gc.RegisterDataSource(kind, name)
		require.NoError(t, err)
		proc, err := ds.AddField("proc", api.Kind_Invalid)
		require.NoError(t, err)
		pid, err := proc.AddSubField("pid", api.Kind_Uint32)
		require.NoError(t, err)
		d.fields[name+"/pid"] = pid
		for field, kind := range fields {
			d.fields[name+"/"+field], err = ds.AddField(field, kind)
			require.NoError(t, err)
		}
		return ds
	}
	rows := map[string]api.Kind{"process": api.Kind_Uint64, "stack_id": api.Kind_Uint64, "kind": api.Kind_String,
		"device": api.Kind_Int32, "stack": api.Kind_String, "span_id": api.Kind_String}
	for _, name := range counters {
		rows[name] = api.Kind_Uint64
	}
	d.ds = add(datasource.TypeArray, "allocs", rows)
	k8s, err := d.ds.AddField("k8s", api.Kind_Invalid)
	require.NoError(t, err)
	for _, name := range []string{"namespace", "podName"} {
		d.fields["allocs/"+name], err = k8s.AddSubField(name, api.Kind_String)
		require.NoError(t, err)
	}
	d.oomDS = add(datasource.TypeSingle, "ooms", map[string]api.Kind{"process": api.Kind_Uint64, "stack_id": api.Kind_Uint64,
		"stack": api.Kind_String, "timestamp_raw": api.Kind_Uint64, "requested_bytes": api.Kind_Uint64, "inuse_bytes": api.Kind_Uint64,
		"error": api.Kind_String})
	info, err := gc.SerializeGadgetInfo(false)
	require.NoError(t, err)
	for i, ds := range info.DataSources {
		ds.Id = uint32(i + 1)
	}
	d.info = info
	return d
}

func (d *daemon) id(name string) uint32 {
	for _, ds := range d.info.DataSources {
		if ds.Name == name {
			return ds.Id
		}
	}
	return 0
}

func (d *daemon) emit(name string, p datasource.Packet) {
	payload, err := proto.Marshal(p.Raw())
	require.NoError(d.t, err)
	d.sent = append(d.sent, &api.GadgetEvent{Type: api.EventTypeGadgetPayload, DataSourceID: d.id(name), Payload: payload})
}

// allocated emits a reading: bytes allocated so far, in objects of one byte, none freed.
func (d *daemon) allocated(bytes uint64) {
	d.t.Helper()
	p, err := d.ds.NewPacketArray()
	require.NoError(d.t, err)
	row := p.New()
	put := func(name string, v uint64) { require.NoError(d.t, d.fields["allocs/"+name].PutUint64(row, v)) }
	put("process", 7)
	put("stack_id", 9)
	require.NoError(d.t, d.fields["allocs/pid"].PutUint32(row, 4242))
	require.NoError(d.t, d.fields["allocs/kind"].PutString(row, "device"))
	require.NoError(d.t, d.fields["allocs/namespace"].PutString(row, d.namespace))
	require.NoError(d.t, d.fields["allocs/podName"].PutString(row, d.pod))
	require.NoError(d.t, d.fields["allocs/stack"].PutString(row, d.stack))
	require.NoError(d.t, d.fields["allocs/span_id"].PutString(row, d.span))
	for _, name := range counters {
		v := bytes
		if name[:5] == "freed" || name[:5] == "impli" {
			v = 0
		}
		put(name, v)
	}
	p.Append(row)
	d.emit("allocs", p)
}

func (d *daemon) refused(at time.Time) { d.failed(at, "CUDA_ERROR_OUT_OF_MEMORY") }

func (d *daemon) failed(at time.Time, reason string) {
	d.t.Helper()
	p, err := d.oomDS.NewPacketSingle()
	require.NoError(d.t, err)
	require.NoError(d.t, errors.Join(d.fields["ooms/process"].PutUint64(p, 7), d.fields["ooms/stack_id"].PutUint64(p, 9),
		d.fields["ooms/pid"].PutUint32(p, 4242), d.fields["ooms/timestamp_raw"].PutUint64(p, uint64(at.UnixNano())),
		d.fields["ooms/requested_bytes"].PutUint64(p, 1<<40),
		d.fields["ooms/error"].PutString(p, reason)))
	d.emit("ooms", p)
}

// attach sends the ring again, as a daemon does, and waits until it is quiet.
func (d *daemon) attach(f *Feed, now time.Time) *connection {
	d.t.Helper()
	c, err := f.Connect(d.info)
	require.NoError(d.t, err)
	connected := &connection{d: d, c: c}
	for _, e := range d.sent[max(0, len(d.sent)-ring):] {
		connected.take(e, now)
	}
	require.NoError(d.t, c.Settle(now))
	return connected
}

type connection struct {
	d   *daemon
	c   *Connection
	seq uint32
}

func (c *connection) take(e *api.GadgetEvent, now time.Time) {
	c.seq++
	numbered := proto.Clone(e).(*api.GadgetEvent)
	numbered.Seq = c.seq
	require.NoError(c.d.t, c.c.Take(numbered, now))
}

// next passes the newest packet on.
func (c *connection) next(now time.Time) { c.take(c.d.sent[len(c.d.sent)-1], now) }

// sender adds up windows.
type sender struct {
	alloc, inuse int64
	ooms         int
	stack        string
	span         profile.Span
}

func (*sender) Interval() time.Duration            { return time.Second }
func (s *sender) Offer(close func() window.Window) { s.Put(close()) }
func (s *sender) OOM(profile.OOM)                  { s.ooms++ }
func (s *sender) Put(w window.Window) {
	s.inuse = 0
	for _, r := range w.Rows {
		s.alloc += r.AllocBytes
		s.inuse += r.InuseBytes
		s.stack, s.span = r.Stack.Folded(), r.Span
	}
}

func setup(t *testing.T, isNew bool) (*daemon, *Feed, *sender, time.Time) {
	s := &sender{}
	return newDaemon(t), New(Config{Sender: s, Store: &metrics.Store{}, Node: "a", Gadget: "cuda_alloc", Texts: &Texts{}, IsNew: isNew}), s, time.Now()
}

func TestEarlierCountsAreNotSent(t *testing.T) {
	d, f, s, now := setup(t, false)
	for i := range 10 {
		d.allocated(uint64(100 * (i + 1)))
	}
	c := d.attach(f, now)
	d.allocated(1500)
	c.next(now.Add(2 * time.Second))
	require.EqualValues(t, 500, s.alloc)
	require.EqualValues(t, 1500, s.inuse, "levels are as of now")
	require.Equal(t, "<module> (serve.py:3); grow (cache.py:88)", s.stack)
}

// A daemon knows the names of a library seconds after the row.
func TestNamesThatComeLaterAreSent(t *testing.T) {
	d, f, s, now := setup(t, true)
	d.stack = "0x100"
	d.allocated(100)
	c := d.attach(f, now)
	d.allocated(200)
	c.next(now.Add(2 * time.Second))
	require.Equal(t, "0x100", s.stack)
	d.stack = "gemm (libx.so)"
	d.allocated(300)
	c.next(now.Add(4 * time.Second))
	require.Equal(t, "gemm (libx.so)", s.stack)
	require.EqualValues(t, 300, s.alloc)
	require.Equal(t, "gemm (libx.so)", f.Stack(0, 0, 9).Stack.Folded(), "of refused allocations too")
}

func TestEverythingOfANewInstanceIsSent(t *testing.T) {
	d, f, s, now := setup(t, true)
	d.allocated(300)
	c := d.attach(f, now)
	d.allocated(400)
	c.next(now.Add(time.Second))
	require.EqualValues(t, 400, s.alloc)
}

// Our daemons keep no rows while no client is attached.
func TestCountingStartsWithTheFirstRows(t *testing.T) {
	d, f, s, now := setup(t, false)
	c := d.attach(f, now)
	d.allocated(700)
	c.next(now.Add(time.Second))
	d.allocated(800)
	c.next(now.Add(4 * time.Second))
	require.EqualValues(t, 100, s.alloc)
}

// The daemon was running before, and unreachable for a while: its ring is full.
func TestNothingOldIsSentOfAnInstanceThatOnlySeemsNew(t *testing.T) {
	d, f, s, now := setup(t, true)
	for i := range 3 * ring {
		d.allocated(uint64(i + 1))
	}
	c := d.attach(f, now)
	d.allocated(3*ring + 5)
	c.next(now.Add(2 * time.Second))
	require.EqualValues(t, 5, s.alloc)
}

func TestALostConnectionLosesNothing(t *testing.T) {
	for _, before := range []int{1, 2 * ring} {
		d, f, s, now := setup(t, false)
		for range before {
			d.allocated(1000)
		}
		c := d.attach(f, now)
		d.allocated(1100)
		c.next(now.Add(time.Second))
		f.Disconnected(now.Add(2 * time.Second))
		d.allocated(1250) // no client is attached
		c = d.attach(f, now.Add(10*time.Second))
		d.allocated(1300)
		c.next(now.Add(11 * time.Second))
		f.Disconnected(now.Add(12 * time.Second))
		require.EqualValues(t, 300, s.alloc, "%d packets", before)
	}
}

// The counters of a daemon that was restarted begin at zero, and may be larger than
// the old ones when we see them first.
func TestARestartedDaemonIsNoticed(t *testing.T) {
	for _, after := range []uint64{50, 5000} {
		d, f, s, now := setup(t, false)
		for range 100 {
			d.allocated(1000)
		}
		c := d.attach(f, now)
		d.allocated(1200)
		c.next(now.Add(time.Second))
		f.Disconnected(now.Add(2 * time.Second))
		d.sent = nil
		d.allocated(0)
		d.allocated(after)
		c = d.attach(f, now.Add(5*time.Second))
		d.allocated(after + 10)
		c.next(now.Add(6 * time.Second))
		f.Disconnected(now.Add(7 * time.Second))
		require.EqualValues(t, 200+after+10, s.alloc)
		require.EqualValues(t, after+10, s.inuse)
	}
}

// Our daemon keeps no tables, so the number of packets means nothing; it identifies the
// run of the gadget instead.
func TestADaemonWithoutTablesIdentifiesItsRuns(t *testing.T) {
	d, f, s, now := setup(t, false)
	d.info.Annotations = map[string]string{ig.AnnotationInstance: "1"}
	d.allocated(1000)
	c := d.attach(f, now)
	for i := range uint64(20) {
		d.allocated(1005 + 5*i)
		c.next(now.Add(time.Second))
	}
	for attempt := range uint64(3) {
		f.Disconnected(now.Add(2 * time.Second))
		d.sent = nil
		d.allocated(1200 + 20*attempt)
		c = d.attach(f, now.Add(5*time.Second))
		d.allocated(1210 + 20*attempt)
		c.next(now.Add(6 * time.Second))
	}
	f.Disconnected(now.Add(7 * time.Second))
	require.EqualValues(t, 250, s.alloc, "the counters go on")

	d.info.Annotations[ig.AnnotationInstance] = "2"
	d.sent = nil
	d.allocated(5000)
	d.attach(f, now.Add(10*time.Second))
	f.Disconnected(now.Add(12 * time.Second))
	require.EqualValues(t, 250+5000, s.alloc, "they have begun again")
}

// TestWhatFailsForAnotherReasonIsNoMemoryFailure: it is sent, and sets off no alert.
func TestWhatFailsForAnotherReasonIsNoMemoryFailure(t *testing.T) {
	d, f, s, now := setup(t, false)
	reader := f.cfg.Store.NewReader()
	d.allocated(1)
	c := d.attach(f, now)
	d.refused(now.Add(time.Second))
	c.next(now.Add(time.Second))
	d.failed(now.Add(2*time.Second), "CUDA_ERROR_NOT_PERMITTED")
	c.next(now.Add(2 * time.Second))
	require.Equal(t, 2, s.ooms)
	var failed int64
	for _, sample := range reader.Read().Samples {
		failed += sample.Failed
	}
	require.EqualValues(t, 1, failed)
}

func TestMetricsNameTheNodeAndGoWithIt(t *testing.T) {
	d, f, _, now := setup(t, false)
	reader := f.cfg.Store.NewReader()
	d.allocated(100)
	d.attach(f, now)
	samples := reader.Read().Samples
	require.Len(t, samples, 1)
	require.Equal(t, "a", samples[0].Process.Node)
	require.EqualValues(t, 100, samples[0].InuseBytes)
	require.NotEqualValues(t, 7, samples[0].Process.ID, "another node can have the same id")
	f.Hide()
	require.Empty(t, reader.Read().Samples)
}

// TestAProcessStaysInItsPod: the rows of an exited process remain on a stock daemon, which names
// them by a mount namespace whose number the next container gets. Its namespace must not see them.
func TestAProcessStaysInItsPod(t *testing.T) {
	d, f, _, now := setup(t, false)
	reader := f.cfg.Store.NewReader()
	for _, c := range []struct{ namespace, pod, want string }{
		{"", "", "/"}, // its container is not known yet
		{"team-a", "chat-0", "team-a/chat-0"},
		{"", "", "team-a/chat-0"},
		{"team-b", "search-0", "team-a/chat-0"},
	} {
		d.namespace, d.pod = c.namespace, c.pod
		d.allocated(100)
		d.attach(f, now)
		samples := reader.Read().Samples
		require.Len(t, samples, 1)
		require.Equal(t, c.want, samples[0].Process.Namespace+"/"+samples[0].Process.Pod)
	}
}

func TestAGadgetWithoutRowsIsNotFollowed(t *testing.T) {
	_, f, _, _ := setup(t, false)
	_, err := f.Connect(&api.GadgetInfo{})
	require.ErrorIs(t, err, ErrNoRows)
}

func TestADaemonThatSendsSomethingElseIsAnError(t *testing.T) {
	d, f, _, now := setup(t, false)
	d.allocated(100)
	for _, payload := range [][]byte{{0xff}, mustMarshal(t, &api.GadgetDataArray{DataArray: []*api.DataElement{{Payload: [][]byte{{1}}}}}),
		mustMarshal(t, &api.GadgetDataArray{DataArray: []*api.DataElement{{}, nil}})} {
		c, err := f.Connect(d.info)
		require.NoError(t, err)
		err = c.Take(&api.GadgetEvent{Seq: 1, DataSourceID: d.id("allocs"), Payload: payload}, now)
		if err == nil {
			err = c.Settle(now)
		}
		require.Error(t, err)
	}
}

func mustMarshal(t *testing.T, m proto.Message) []byte {
	t.Helper()
	b, err := proto.Marshal(m)
	require.NoError(t, err)
	return b
}
