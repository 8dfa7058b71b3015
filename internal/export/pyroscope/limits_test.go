// SPDX-License-Identifier: Apache-2.0

package pyroscope

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/google/pprof/profile"
	pushv1 "github.com/grafana/pyroscope/api/gen/proto/go/push/v1"
	"github.com/grafana/pyroscope/api/gen/proto/go/push/v1/pushv1connect"
	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/internal/export/queue"
	"github.com/gpu-gadgets/gpu-gadgets/internal/export/remote"
	"github.com/gpu-gadgets/gpu-gadgets/internal/export/series"
	gpu "github.com/gpu-gadgets/gpu-gadgets/internal/profile"
	"github.com/gpu-gadgets/gpu-gadgets/internal/profile/fixture"
)

// Pyroscope's limits are of what it has unpacked: a series that needs more than the tenant's bucket
// holds is never accepted.
func TestRequestsAndProfilesStayBelowTheServersLimits(t *testing.T) {
	const burst = 2 << 20
	long := fixture.Large(3000)
	for i := range long.Rows {
		long.Rows[i].Stack = slices.Clone(long.Rows[i].Stack)
		long.Rows[i].Stack[0].Function = strings.Repeat(fmt.Sprintf("kernel<%d>::", i), 300)
	}
	many := fixture.Large(3000)
	for i := range many.Rows {
		many.Rows[i].Process.ID, many.Rows[i].Process.Container = uint64(i), fmt.Sprint(i)
	}
	for name, p := range map[string]*gpu.Profile{"one process": fixture.Large(40000), "long names": long, "many containers": many} {
		t.Run(name, func(t *testing.T) {
			requests, err := (&Encoder{Levels: series.Levels{Inuse: true}}).Encode(windowOf(p))
			require.NoError(t, err)
			require.Greater(t, len(requests), 1)
			rows, whole := 0, 0
			for _, r := range requests {
				size := 0
				for _, s := range r.Push.Series {
					parsed, err := profile.ParseData(s.Samples[0].RawProfile)
					require.NoError(t, err)
					require.LessOrEqual(t, len(parsed.Sample), maxRows)
					rows += len(parsed.Sample)
					size += unpacked(t, s.Samples[0].RawProfile)
					for _, l := range s.Labels {
						size += len(l.Name) + len(l.Value)
					}
				}
				require.Less(t, size, burst)
				whole += size
			}
			require.Equal(t, 2*len(p.Rows), rows)
			require.LessOrEqual(t, len(requests), 2+whole/(maxBytes/2), "they are no smaller than they have to be")
		})
	}
}

func unpacked(t *testing.T, raw []byte) int {
	zip, err := gzip.NewReader(bytes.NewReader(raw))
	require.NoError(t, err)
	plain, err := io.ReadAll(zip)
	require.NoError(t, err)
	return len(plain)
}

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
		return nil, connect.NewError(connect.CodeResourceExhausted, errors.New("Maximum active series limit exceeded (5000/5000), reduce the number of active streams"))
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

// bucket is a Pyroscope with the limits of a tenant: what a series needs is taken out of a bucket of 2 MiB that
// fills by 4 MiB each second.
type bucket struct {
	t        *testing.T
	mu       sync.Mutex
	has      float64
	last     time.Time
	refused  int
	accepted map[string]int
}

func (b *bucket) Push(_ context.Context, request *connect.Request[pushv1.PushRequest]) (*connect.Response[pushv1.PushResponse], error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	isRefused := false
	for _, s := range request.Msg.Series {
		b.has = min(2<<20, b.has+time.Since(b.last).Seconds()*(4<<20))
		b.last = time.Now()
		size := float64(unpacked(b.t, s.Samples[0].RawProfile))
		if size > b.has {
			isRefused = true
			continue
		}
		b.has -= size
		b.accepted[keyOf(s.Labels)+s.Samples[0].ID]++
	}
	if isRefused {
		b.refused++
		return nil, connect.NewError(connect.CodeResourceExhausted, errors.New("push rate limit (4.0 MiB) exceeded while adding 13 KiB"))
	}
	return connect.NewResponse(&pushv1.PushResponse{}), nil
}

// The windows of a busy node are larger than the bucket: all arrive, and after the first of them once.
func TestWindowsLargerThanTheBucketArrive(t *testing.T) {
	b := &bucket{t: t, accepted: map[string]int{}, has: 2 << 20, last: time.Now()}
	_, handler := pushv1connect.NewPusherServiceHandler(b)
	server := httptest.NewServer(handler)
	defer server.Close()
	endpoint, err := remote.New(remote.Config{URL: server.URL})
	require.NoError(t, err)
	c := NewClient(endpoint)
	defer c.Close()
	q := queue.New(queue.Config[Request]{Name: "Pyroscope", Send: c.Push, Split: Split, MaxBytes: 64 << 20, Warn: t.Logf})
	p := fixture.Large(5000)
	for i := range p.Rows {
		p.Rows[i].Process.ID, p.Rows[i].Process.Container = uint64(i%200), fmt.Sprint(i%200)
	}
	put := func() {
		requests, err := (&Encoder{}).Encode(windowOf(p))
		require.NoError(t, err)
		require.Greater(t, len(requests), 2)
		for _, r := range requests {
			q.Put(r, r.Bytes)
		}
	}
	put()
	require.Eventually(t, func() bool { return q.Stats().QueuedItems == 0 }, time.Minute, time.Millisecond)
	b.mu.Lock()
	first := b.refused
	clear(b.accepted)
	b.mu.Unlock()
	put()
	require.Eventually(t, func() bool { return q.Stats().QueuedItems == 0 }, time.Minute, time.Millisecond)
	b.mu.Lock()
	defer b.mu.Unlock()
	require.Equal(t, first, b.refused)
	require.Len(t, b.accepted, 400)
	for _, times := range b.accepted {
		require.Equal(t, 1, times)
	}
}
