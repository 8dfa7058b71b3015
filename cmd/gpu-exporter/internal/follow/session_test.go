// SPDX-License-Identifier: Apache-2.0

package follow

import (
	"context"
	"testing"
	"time"

	"github.com/inspektor-gadget/inspektor-gadget/pkg/gadget-service/api"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/gpu-gadgets/gpu-gadgets/cmd/gpu-exporter/internal/feed"
	"github.com/gpu-gadgets/gpu-gadgets/operators/send/metrics"
)

func TestAnInstanceThatFailsIsTriedAgainSoon(t *testing.T) {
	var s skipped
	now := time.Unix(1000, 0)
	var pauses []time.Duration
	for range 7 {
		s = s.again(time.Second, retryInstance, now)
		pauses = append(pauses, s.until.Sub(now))
		now = s.until
	}
	require.Equal(t, []time.Duration{time.Second, 2 * time.Second, 4 * time.Second, 8 * time.Second, 16 * time.Second, retryInstance, retryInstance}, pauses)
}

// describes is a daemon with one instance, to which clients may attach.
type describes struct {
	api.GadgetInstanceManagerClient
	sends
	first    *api.GadgetEvent
	attached int
}

func (d *describes) ListGadgetInstances(context.Context, *api.ListGadgetInstancesRequest, ...grpc.CallOption) (*api.ListGadgetInstanceResponse, error) {
	return &api.ListGadgetInstanceResponse{GadgetInstances: []*api.GadgetInstance{{Id: "1", GadgetConfig: &api.GadgetRunRequest{ImageName: "cuda_alloc"},
		State: &api.GadgetInstanceState{Status: api.GadgetInstanceStatus_StatusRunning}}}}, nil
}

func (d *describes) GetGadgetInfo(context.Context, *api.GetGadgetInfoRequest, ...grpc.CallOption) (*api.GetGadgetInfoResponse, error) {
	info := &api.GadgetInfo{}
	return &api.GetGadgetInfoResponse{GadgetInfo: info}, proto.Unmarshal(d.first.Payload, info)
}

func (d *describes) RunGadget(ctx context.Context, options ...grpc.CallOption) (api.GadgetManager_RunGadgetClient, error) {
	d.attached++
	return d.sends.RunGadget(ctx, options...)
}

// unstarted is a daemon that lists no instances and has one that does not start.
type unstarted struct {
	api.GadgetInstanceManagerClient
	api.GadgetManagerClient
	lists     bool
	requested int
}

func (d *unstarted) ListGadgetInstances(context.Context, *api.ListGadgetInstancesRequest, ...grpc.CallOption) (*api.ListGadgetInstanceResponse, error) {
	if !d.lists {
		return nil, status.Error(codes.Unknown, "getting instance status: gadget not found")
	}
	return &api.ListGadgetInstanceResponse{GadgetInstances: []*api.GadgetInstance{{Id: "1", Name: "kernels",
		State: &api.GadgetInstanceState{Status: api.GadgetInstanceStatus_StatusRunning}}}}, nil
}

func (d *unstarted) GetGadgetInfo(context.Context, *api.GetGadgetInfoRequest, ...grpc.CallOption) (*api.GetGadgetInfoResponse, error) {
	d.requested++
	return nil, status.Error(codes.DeadlineExceeded, "context deadline exceeded")
}

// TestAnInstanceThatNeverStartsIsRequestedSeldom, as each request stays in its daemon.
func TestAnInstanceThatNeverStartsIsRequestedSeldom(t *testing.T) {
	for _, lists := range []bool{false, true} {
		d := &unstarted{lists: lists}
		n := limitedTo(64 << 20)
		n.cfg.MinBackoff, n.cfg.Log, n.cfg.Instances = time.Minute, noLog{}, []string{"kernels"}
		s := &session{node: n, instances: d, gadgets: d, attached: map[string]*attachment{}, skip: map[string]skipped{}, unstarted: map[string]skipped{}}
		paused, id := s.unstarted, "kernels"
		if lists {
			paused, id = s.skip, "1"
		}
		for day := time.Duration(0); day < 24*time.Hour; {
			before := d.requested
			require.NoError(t, s.poll(t.Context()))
			require.NoError(t, s.poll(t.Context()))
			require.Equal(t, before+1, d.requested)
			day += paused[id].pause
			paused[id] = skipped{pause: paused[id].pause} // the time has come
		}
		require.Less(t, d.requested, 32, "in a day")
	}
}

type noLog struct{}

func (noLog) Infof(string, ...any)  {}
func (noLog) Warnf(string, ...any)  {}
func (noLog) Debugf(string, ...any) {}

// TestAnAttachmentThatFailsSoonIsTriedAgainLater, as its daemon sends all that it has kept each time.
func TestAnAttachmentThatFailsSoonIsTriedAgainLater(t *testing.T) {
	first := described(t)
	d := &describes{first: first, sends: sends{events: after(first, 1, first)}} // an error
	n := limitedTo(64 << 20)
	n.cfg.MinBackoff, n.cfg.Store, n.cfg.Log = time.Minute, &metrics.Store{}, noLog{}
	n.names, n.texts, n.feeds = &nodeNames{}, &feed.Texts{}, map[string]*feed.Feed{}
	s := &session{node: n, instances: d, gadgets: d, attached: map[string]*attachment{}, skip: map[string]skipped{}, wake: make(chan struct{}, 1)}
	polls := func(times int) int {
		before := d.attached
		for range times {
			require.NoError(t, s.poll(t.Context()))
			if a := s.attached["1"]; a != nil {
				require.ErrorContains(t, a.wait(), "twice")
			}
		}
		return d.attached - before
	}
	require.Equal(t, 1, polls(5))
	s.skip["1"] = skipped{pause: time.Second} // the time has come
	require.Equal(t, 1, polls(5))
	require.Equal(t, retryInstance, s.skip["1"].pause)

	s.retry("1", retryInstance)
	require.Equal(t, 1, polls(1), "at once after a long one")
}
