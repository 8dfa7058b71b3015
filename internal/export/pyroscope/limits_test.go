// SPDX-License-Identifier: Apache-2.0

package pyroscope

import (
	"context"
	"errors"
	"fmt"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"
	pushv1 "github.com/grafana/pyroscope/api/gen/proto/go/push/v1"
	"github.com/grafana/pyroscope/api/gen/proto/go/push/v1/pushv1connect"
	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/internal/export/queue"
	"github.com/gpu-gadgets/gpu-gadgets/internal/export/remote"
	"github.com/gpu-gadgets/gpu-gadgets/internal/profile/fixture"
)

// full is a Pyroscope that has all the series it takes: it stores those that it has, and refuses
// the others of the same request.
type full struct {
	mu    sync.Mutex
	known map[string]bool // containers
	times map[string]int  // that a container's profiles were stored
	asked int
}

func (f *full) Push(_ context.Context, request *connect.Request[pushv1.PushRequest]) (*connect.Response[pushv1.PushResponse], error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked++
	refused := false
	for _, s := range request.Msg.Series {
		for _, l := range s.Labels {
			switch {
			case l.Name != "container":
			case f.known[l.Value]:
				f.times[l.Value]++
			default:
				refused = true
			}
		}
	}
	if refused {
		return nil, connect.NewError(connect.CodeResourceExhausted, errors.New("Maximum active series limit exceeded (5000/5000), reduce the number of active streams")) //nolint:staticcheck // as it is there
	}
	return connect.NewResponse(&pushv1.PushResponse{}), nil
}

// A new pod's series are beyond the limit: those of all others arrive, after the first window once.
func TestSeriesBeyondTheLimitStopNoOthers(t *testing.T) {
	f := &full{known: map[string]bool{}, times: map[string]int{}}
	_, handler := pushv1connect.NewPusherServiceHandler(f)
	server := httptest.NewServer(handler)
	defer server.Close()
	endpoint, err := remote.New(remote.Config{URL: server.URL})
	require.NoError(t, err)
	c := NewClient(endpoint)
	defer c.Close()
	q := queue.New(queue.Config[Request]{Name: "Pyroscope", Send: c.Push, Split: Split, MaxBytes: 1 << 20, Warn: t.Logf})

	const windows, pods = 10, 5
	p := fixture.Large(pods)
	for i := range p.Rows {
		p.Rows[i].Process.ID, p.Rows[i].Process.Container = uint64(i), fmt.Sprint(i)
		f.known[fmt.Sprint(i)] = i > 0
	}
	send := func(want int) {
		requests, err := (&Encoder{Apart: c.Refused}).Encode(windowOf(p))
		require.NoError(t, err)
		require.Len(t, requests, want)
		for _, r := range requests {
			q.Put(r, r.Bytes)
		}
	}
	waiting := func(n int64) {
		require.Eventually(t, func() bool { s := q.Stats(); return s.QueuedItems == n && s.Failures == 1+n }, 10*time.Second, time.Millisecond)
	}
	send(1)
	waiting(1)
	for range windows {
		send(2) // the refused one is on its own
	}
	waiting(1 + windows)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.EqualValues(t, 1+windows, q.Close(ctx).LostAtEnd, "the refused series waited")
	f.mu.Lock()
	require.Len(t, f.times, pods-1)
	for container, times := range f.times {
		// The first answer did not say what was refused.
		require.Equal(t, 2+windows, times, container)
	}
	require.LessOrEqual(t, f.asked, 1+pods+2*windows)
	f.known["0"] = true // there is room
	f.mu.Unlock()
	refused, err := (&Encoder{Apart: c.Refused}).Encode(windowOf(p))
	require.NoError(t, err)
	require.NoError(t, c.Push(t.Context(), refused[0]))
	all, err := (&Encoder{Apart: c.Refused}).Encode(windowOf(p))
	require.NoError(t, err)
	require.Len(t, all, 1)
}
