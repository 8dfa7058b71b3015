// SPDX-License-Identifier: Apache-2.0

package scale

import (
	"bytes"
	"context"
	"maps"
	"slices"
	"sync"
	"testing"

	"connectrpc.com/connect"
	"github.com/google/pprof/profile"
	pushv1 "github.com/grafana/pyroscope/api/gen/proto/go/push/v1"
	"github.com/grafana/pyroscope/api/gen/proto/go/push/v1/pushv1connect"
	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/test/support/loopback"
)

// pyroscope adds up the allocated bytes that it receives, by node.
type pyroscope struct {
	t     testing.TB
	url   string
	mu    sync.Mutex
	nodes map[string]uint64
	bytes int64 // of profiles, as they are sent
	// isCounted: only bytes are counted, as reading profiles takes longer than making them.
	isCounted bool
}

func startPyroscope(t testing.TB) *pyroscope {
	t.Helper()
	p := &pyroscope{t: t, nodes: map[string]uint64{}}
	path, handler := pushv1connect.NewPusherServiceHandler(p)
	p.url = loopback.Serve(t, path, handler)
	return p
}

// Push implements pushv1connect.PusherServiceHandler.
func (p *pyroscope) Push(_ context.Context, request *connect.Request[pushv1.PushRequest]) (*connect.Response[pushv1.PushResponse], error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, s := range request.Msg.Series {
		labels := map[string]string{}
		for _, l := range s.Labels {
			labels[l.Name] = l.Value
		}
		for _, sample := range s.Samples {
			p.bytes += int64(len(sample.RawProfile))
			if labels["__name__"] != "cuda_alloc" || p.isCounted {
				continue
			}
			parsed, err := profile.Parse(bytes.NewReader(sample.RawProfile))
			if err != nil {
				p.t.Errorf("a profile that cannot be read: %v", err)
				continue
			}
			column := slices.IndexFunc(parsed.SampleType, func(v *profile.ValueType) bool { return v.Type == "alloc_space" })
			for _, sample := range parsed.Sample {
				p.nodes[labels["node"]] += uint64(sample.Value[column])
			}
		}
	}
	return connect.NewResponse(&pushv1.PushResponse{}), nil
}

// allocated bytes of each node so far.
func (p *pyroscope) allocated() map[string]uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return maps.Clone(p.nodes)
}

// series of some metrics, with their values.
func series(t testing.TB, address string, names ...string) map[string]float64 {
	t.Helper()
	all, err := loopback.Scrape(t, address)
	require.NoError(t, err)
	out := map[string]float64{}
	for _, s := range all {
		if slices.Contains(names, s.Name) {
			out[s.Name+"{"+s.Labels+"}"] = s.Value
		}
	}
	return out
}
