// SPDX-License-Identifier: Apache-2.0

package follow

import (
	"context"
	"errors"
	"io"
	"testing"
	"time"

	"github.com/inspektor-gadget/inspektor-gadget/pkg/datasource"
	gadgetcontext "github.com/inspektor-gadget/inspektor-gadget/pkg/gadget-context"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/gadget-service/api"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/gpu-gadgets/gpu-gadgets/cmd/gpu-exporter/internal/feed"
	"github.com/gpu-gadgets/gpu-gadgets/operators/send/metrics"
)

// sends is a daemon whose attachments send these events, and end.
type sends struct {
	api.GadgetManagerClient
	events func(yield func(*api.GadgetEvent) bool)
}

type stream struct {
	grpc.ClientStream
	events chan *api.GadgetEvent
}

func (s sends) RunGadget(ctx context.Context, _ ...grpc.CallOption) (api.GadgetManager_RunGadgetClient, error) {
	events := make(chan *api.GadgetEvent)
	go func() {
		defer close(events)
		for e := range s.events {
			select {
			case events <- e:
			case <-ctx.Done():
				return
			}
		}
	}()
	return stream{events: events}, nil
}

func (stream) Send(*api.GadgetControlRequest) error { return nil }

func (s stream) Recv() (*api.GadgetEvent, error) {
	e, ok := <-s.events
	if !ok {
		return nil, io.EOF
	}
	return e, nil
}

// described returns the event that a daemon sends first.
func described(t *testing.T) *api.GadgetEvent {
	t.Helper()
	gc := gadgetcontext.New(t.Context(), "cuda_alloc")
	ds, err := gc.RegisterDataSource(datasource.TypeArray, "allocs")
	require.NoError(t, err)
	proc, err := ds.AddField("proc", api.Kind_Invalid)
	require.NoError(t, err)
	_, err = proc.AddSubField("pid", api.Kind_Uint32)
	require.NoError(t, err)
	fields := map[string]api.Kind{"process": api.Kind_Uint64, "stack_id": api.Kind_Uint64, "kind": api.Kind_String,
		"device": api.Kind_Int32, "stack": api.Kind_String}
	for _, counter := range []string{"alloc_bytes", "alloc_objects", "freed_bytes", "freed_objects", "implicit_bytes",
		"implicit_objects", "inuse_bytes", "inuse_objects", "peak_bytes"} {
		fields[counter] = api.Kind_Uint64
	}
	for name, kind := range fields {
		_, err = ds.AddField(name, kind)
		require.NoError(t, err)
	}
	info, err := gc.SerializeGadgetInfo(false)
	require.NoError(t, err)
	info.DataSources[0].Id = 1
	payload, err := proto.Marshal(info)
	require.NoError(t, err)
	return &api.GadgetEvent{Type: api.EventTypeGadgetInfo, Payload: payload}
}

// attachTo reads what a daemon sends, once.
func attachTo(t *testing.T, n *node, events func(yield func(*api.GadgetEvent) bool)) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	f := feed.New(feed.Config{Store: &metrics.Store{}, Node: "a", Gadget: "cuda_alloc", Texts: &feed.Texts{}})
	return (&session{node: n, gadgets: sends{events: events}}).read(ctx, "1", f)
}

func limitedTo(perSecond int64) *node {
	return &node{cfg: Config{Limit: perSecond, Stats: &Stats{}}, limits: newLimits(perSecond)}
}

// after sends the description, and then an event so many times.
func after(first *api.GadgetEvent, times int, e *api.GadgetEvent) func(yield func(*api.GadgetEvent) bool) {
	return func(yield func(*api.GadgetEvent) bool) {
		for n := -1; n < times; n++ {
			if n < 0 && !yield(first) || n >= 0 && !yield(e) {
				return
			}
		}
	}
}

// TestWhateverADaemonSendsIsCharged: packets that nothing announced, messages of the gadget's log,
// and fields that we do not know.
func TestWhateverADaemonSendsIsCharged(t *testing.T) {
	const MiB = 1 << 20
	unknown := &api.GadgetEvent{Type: api.EventTypeGadgetPayload, DataSourceID: 1}
	unknown.ProtoReflect().SetUnknown(protowire.AppendBytes(protowire.AppendTag(nil, 1000, protowire.BytesType), make([]byte, MiB)))
	first := described(t)
	for name, c := range map[string]struct {
		first, event *api.GadgetEvent
		times        int
	}{
		"not announced":   {first, &api.GadgetEvent{Type: api.EventTypeGadgetPayload, DataSourceID: 4711}, 10_000},
		"large, the same": {first, &api.GadgetEvent{Type: api.EventTypeGadgetPayload, DataSourceID: 4711, Payload: make([]byte, MiB)}, 1000},
		"logs":            {first, &api.GadgetEvent{Type: 1 << api.EventLogShift, Payload: make([]byte, MiB)}, 1000},
		"before the rest": {&api.GadgetEvent{Type: 1 << api.EventLogShift}, &api.GadgetEvent{Type: 1 << api.EventLogShift, Payload: make([]byte, MiB)}, 1000},
		"unknown fields":  {first, unknown, 1000},
	} {
		err := attachTo(t, limitedTo(MiB), after(c.first, c.times, c.event))
		untrusted := (*feed.Untrusted)(nil)
		require.ErrorAs(t, err, &untrusted, name)
		require.Equal(t, feed.Flood, untrusted.Reason, name)
	}
}

// TestAttachmentsShareTheLimit: a daemon that ends them has no more each time.
func TestAttachmentsShareTheLimit(t *testing.T) {
	n := limitedTo(1 << 20)
	packets := after(described(t), 100, &api.GadgetEvent{Type: api.EventTypeGadgetPayload, DataSourceID: 1})
	large := after(described(t), 100, &api.GadgetEvent{Type: api.EventTypeGadgetPayload, DataSourceID: 4711, Payload: make([]byte, 1<<20)})
	require.ErrorContains(t, attachTo(t, n, packets), "has ended")
	untrusted := (*feed.Untrusted)(nil)
	for range 2 {
		require.ErrorContains(t, attachTo(t, n, large), "has ended")
	}
	for range 10 {
		if errors.As(attachTo(t, n, large), &untrusted) {
			break
		}
	}
	require.NotNil(t, untrusted)
	require.Equal(t, feed.Flood, untrusted.Reason)
}

// TestADescriptionComesOnce: another one would begin another replay.
func TestADescriptionComesOnce(t *testing.T) {
	first := described(t)
	require.ErrorContains(t, attachTo(t, limitedTo(64<<20), after(first, 1, first)), "twice")
}

// TestAReplayOfFullTablesFits, as a stock daemon has them.
func TestAReplayOfFullTablesFits(t *testing.T) {
	l, now := newLimits(64<<20), time.Now()
	table := &api.GadgetEvent{Type: api.EventTypeGadgetPayload, Payload: make([]byte, 65_536*500)}
	drops := &api.GadgetEvent{Type: api.EventTypeGadgetPayload}
	for range 512 {
		require.NoError(t, l.charge(table, true, now))
		require.NoError(t, l.charge(drops, true, now))
	}
	require.NoError(t, l.charge(table, false, now), "later ones have their own limit")
}
