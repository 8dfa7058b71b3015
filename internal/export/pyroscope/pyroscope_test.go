// SPDX-License-Identifier: Apache-2.0

package pyroscope

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
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

	"github.com/gpu-gadgets/gpu-gadgets/internal/export/faults"
	"github.com/gpu-gadgets/gpu-gadgets/internal/export/queue"
	"github.com/gpu-gadgets/gpu-gadgets/internal/export/remote"
	"github.com/gpu-gadgets/gpu-gadgets/internal/export/series"
	"github.com/gpu-gadgets/gpu-gadgets/internal/export/window"
	gpu "github.com/gpu-gadgets/gpu-gadgets/internal/profile"
	"github.com/gpu-gadgets/gpu-gadgets/internal/profile/fixture"
)

// receiver is a Pyroscope that only remembers.
type receiver struct {
	mu     sync.Mutex
	pushed []*pushv1.RawProfileSeries
	header http.Header
}

func (r *receiver) Push(_ context.Context, request *connect.Request[pushv1.PushRequest]) (*connect.Response[pushv1.PushResponse], error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.pushed = append(r.pushed, request.Msg.Series...)
	r.header = request.Header()
	return connect.NewResponse(&pushv1.PushResponse{}), nil
}

func (r *receiver) handler() http.Handler {
	_, handler := pushv1connect.NewPusherServiceHandler(r)
	return handler
}

// stored is one pprof with its labels as text.
type stored struct {
	labels string
	*profile.Profile
}

func (r *receiver) stored(t *testing.T) (all []stored) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range r.pushed {
		var labels []string
		for _, l := range s.Labels {
			labels = append(labels, l.Name+"="+l.Value)
		}
		for _, sample := range s.Samples {
			p, err := profile.Parse(bytes.NewReader(sample.RawProfile))
			require.NoError(t, err)
			require.Len(t, sample.ID, 36)
			all = append(all, stored{strings.Join(labels, ","), p})
		}
	}
	return all
}

// name identifies a function of a profile.
func name(function, file string, line int64) string {
	return fmt.Sprintf("%s %s:%d", function, file, line)
}

// sums are self and total by function of one sample type, over all profiles.
func sums(all []stored, sampleType string) map[string][2]int64 {
	m := map[string][2]int64{}
	for _, p := range all {
		column := slices.IndexFunc(p.SampleType, func(v *profile.ValueType) bool { return v.Type == sampleType })
		if column < 0 {
			continue
		}
		for _, s := range p.Sample {
			seen := map[string]bool{}
			for i, l := range s.Location {
				n := name(l.Line[0].Function.Name, l.Line[0].Function.Filename, l.Line[0].Line)
				v := m[n]
				if i == 0 {
					v[0] += s.Value[column]
				}
				if !seen[n] {
					v[1] += s.Value[column]
				}
				seen[n] = true
				m[n] = v
			}
		}
	}
	return m
}

func wanted(p *gpu.Profile, t gpu.Type) map[string][2]int64 {
	m := map[string][2]int64{}
	for _, f := range p.Frames(t) {
		if f.Total != 0 {
			m[name(f.Frame.Function, f.Frame.File, int64(f.Frame.Line))] = [2]int64{f.Self, f.Total}
		}
	}
	return m
}

func windowOf(p *gpu.Profile) window.Window {
	return window.Window{Start: p.Time.Add(-10 * time.Second), End: p.Time, Subject: p.Subject, Period: p.Period, Rows: p.Rows}
}

func push(t *testing.T, e *Encoder, windows ...window.Window) *receiver {
	t.Helper()
	r := &receiver{}
	server := httptest.NewServer(r.handler())
	defer server.Close()
	endpoint, err := remote.New(remote.Config{URL: server.URL, Header: http.Header{"X-Scope-Orgid": {"team"}}})
	require.NoError(t, err)
	c := NewClient(endpoint)
	defer c.Close()
	for _, w := range windows {
		requests, err := e.Encode(w)
		require.NoError(t, err)
		for _, request := range requests {
			require.NoError(t, c.Push(t.Context(), request))
		}
	}
	return r
}

func TestStoredDataMatchesTheRows(t *testing.T) {
	for name, p := range map[string]*gpu.Profile{"small": fixture.Small(), "large": fixture.Large(3000)} {
		t.Run(name, func(t *testing.T) {
			r := push(t, &Encoder{Levels: series.Levels{Inuse: true}}, windowOf(p))
			all := r.stored(t)
			for _, sampleType := range gpu.Types() {
				require.Equal(t, wanted(p, sampleType), sums(all, sampleType.String()), sampleType)
			}
			require.Equal(t, "team", r.header.Get("X-Scope-OrgID"))
			for _, s := range all {
				require.Equal(t, (10 * time.Second).Nanoseconds(), s.DurationNanos)
				require.Equal(t, p.Time.Add(-10*time.Second).UnixNano(), s.TimeNanos)
				for _, sample := range s.Sample {
					require.Empty(t, sample.Label, "each would be a series")
					require.Empty(t, sample.NumLabel)
				}
			}
		})
	}
}

func TestSeriesAndProfileTypes(t *testing.T) {
	r := push(t, &Encoder{Series: series.Config{Cluster: "c1", Node: "n1"}, Levels: series.Levels{Inuse: true}, Compat: true}, windowOf(fixture.Small()))
	types := map[string]string{}
	var server []string
	for _, s := range r.stored(t) {
		id := ""
		for _, v := range s.SampleType {
			id += v.Type + ":" + v.Unit + " "
		}
		if s.PeriodType != nil {
			id += s.PeriodType.Type + ":" + s.PeriodType.Unit
		}
		name, _, _ := strings.Cut(s.labels, ",")
		types[name] = id
		if strings.Contains(s.labels, "kind=device") && strings.Contains(s.labels, "pod=llm-0") && strings.Contains(s.labels, "device=0,") {
			server = append(server, s.labels)
		}
	}
	require.Equal(t, map[string]string{
		"__name__=cuda_alloc":  "alloc_objects:count alloc_space:bytes space:bytes",
		"__name__=cuda_inuse":  "inuse_objects:count inuse_space:bytes space:bytes",
		"__name__=process_cpu": "malloc:bytes :",
	}, types)
	rest := ",cluster=c1,container=server,device=0,k8s_namespace=ml,k8s_podName=llm-0,kind=device,namespace=ml,node=n1,pod=llm-0,service_name=server"
	require.Equal(t, []string{"__name__=cuda_alloc" + rest, "__name__=cuda_inuse" + rest, "__name__=process_cpu" + rest}, server)
}

func TestSamplesAreTimeOfTheirOwnProfile(t *testing.T) {
	p := fixture.Small()
	p.Subject, p.Period = gpu.CPU, 10*time.Millisecond
	for i := range p.Rows {
		p.Rows[i].Values = gpu.Values{Samples: int64(i + 1), Nanoseconds: int64(i+1) * 1e7}
	}
	all := push(t, &Encoder{Levels: series.Levels{Inuse: true}, Compat: true}, windowOf(p)).stored(t)
	require.Equal(t, wanted(p, gpu.CPUTime), sums(all, "cpu"))
	for _, s := range all {
		require.Contains(t, s.labels, "__name__=python_cpu")
		require.Equal(t, int64(1e7), s.Period)
	}
}

func TestSameWindowGivesTheSameBytes(t *testing.T) {
	first, err := (&Encoder{Levels: series.Levels{Inuse: true}}).Encode(windowOf(fixture.Small()))
	require.NoError(t, err)
	second, err := (&Encoder{Levels: series.Levels{Inuse: true}}).Encode(windowOf(fixture.Small()))
	require.NoError(t, err)
	require.Equal(t, first[0].Push.String(), second[0].Push.String())
	none, err := (&Encoder{}).Encode(window.Window{})
	require.NoError(t, err)
	require.Empty(t, none)
}

// Names of processes and libraries can be any bytes.
func TestInvalidUTF8NamesAreSent(t *testing.T) {
	p := fixture.Small()
	for i := range p.Rows {
		p.Rows[i].Process.Comm = "a\xff\x00b"
		p.Rows[i].Process.Container = ""
		p.Rows[i].Stack = slices.Clone(p.Rows[i].Stack)
		p.Rows[i].Stack[0].Function += "\xfe"
		p.Rows[i].Stack[0].File = "/lib/\xfd"
	}
	all := push(t, &Encoder{}, windowOf(p)).stored(t)
	require.NotEmpty(t, all)
	require.Contains(t, all[0].labels, "service_name=a\uFFFD\x00b")
	for _, s := range all {
		for _, f := range s.Function {
			require.Equal(t, strings.ToValidUTF8(f.Name, ""), f.Name)
		}
	}
}

// After any fault in the middle of many windows, all of them arrive.
func TestNothingIsLostInAnOutageWithinTheLimit(t *testing.T) {
	for name, fault := range faults.Faults {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := &receiver{}
			server := faults.New(t, r.handler())
			endpoint, err := remote.New(remote.Config{URL: server.URL, CAFile: server.CAFile})
			require.NoError(t, err)
			c := NewClient(endpoint)
			defer c.Close()
			q := queue.New(queue.Config[Request]{
				Name: "Pyroscope", Send: c.Push, MaxBytes: 1 << 20,
				Timeout: fault.Timeout(), MinBackoff: time.Millisecond, MaxBackoff: 20 * time.Millisecond,
				Warn: t.Logf,
			})
			const windows = 30
			p := fixture.Small()
			for i := range windows {
				switch i {
				case 10:
					require.Eventually(t, func() bool { return q.Stats().SentItems == 10 }, faults.Timeout, time.Millisecond)
					server.Fail(fault)
				case 25:
					require.Eventually(t, func() bool { return server.Refused.Load() >= 3 }, faults.Timeout, time.Millisecond)
					require.EqualValues(t, 15, q.Stats().QueuedItems)
					server.Fail(faults.None)
				}
				w := windowOf(p)
				w.Start, w.End = w.Start.Add(time.Duration(i)*10*time.Second), w.End.Add(time.Duration(i)*10*time.Second)
				requests, err := (&Encoder{}).Encode(w)
				require.NoError(t, err)
				require.Len(t, requests, 1)
				q.Put(requests[0], requests[0].Bytes)
			}
			ctx, cancel := context.WithTimeout(t.Context(), faults.Timeout)
			defer cancel()
			stats := q.Close(ctx)
			require.Zero(t, stats.Lost())
			require.EqualValues(t, windows, stats.SentItems)
			require.GreaterOrEqual(t, stats.Failures, int64(3))
			want := wanted(p, gpu.AllocSpace)
			for n, v := range want {
				want[n] = [2]int64{v[0] * windows, v[1] * windows}
			}
			require.Equal(t, want, sums(r.stored(t), "alloc_space"))
		})
	}
}

func TestMemoryIsBoundedInALongOutage(t *testing.T) {
	server := faults.New(t, (&receiver{}).handler())
	server.Fail(faults.Unavailable)
	endpoint, err := remote.New(remote.Config{URL: server.URL, CAFile: server.CAFile})
	require.NoError(t, err)
	c := NewClient(endpoint)
	defer c.Close()
	requests, err := (&Encoder{}).Encode(windowOf(fixture.Large(200)))
	require.NoError(t, err)
	const limit = 4 << 20
	q := queue.New(queue.Config[Request]{Name: "Pyroscope", Send: c.Push, MaxBytes: limit, MinBackoff: time.Millisecond})
	used := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := used()
	puts := int(20*limit/requests[0].Bytes) + 1
	for range puts {
		// A copy each, as windows are.
		raw := bytes.Clone(requests[0].Push.Series[0].Samples[0].RawProfile)
		again := make([]byte, requests[0].Bytes-int64(len(raw)))
		q.Put(Request{&pushv1.PushRequest{Series: []*pushv1.RawProfileSeries{{Samples: []*pushv1.RawSample{{RawProfile: append(raw, again...)}}}}}, requests[0].Bytes, 0}, requests[0].Bytes)
	}
	require.Less(t, int64(used())-int64(before), int64(2*limit))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	stats := q.Close(ctx)
	require.EqualValues(t, puts, stats.Lost())
	require.GreaterOrEqual(t, stats.LostFull, int64(puts)*18/20)
}

func TestAnswers(t *testing.T) {
	for _, c := range []struct {
		status          int
		rejected, later bool
		refusedAtStart  string
	}{
		{status: 400, rejected: true}, {status: 413, rejected: true, refusedAtStart: "413"}, {status: 422, rejected: true, refusedAtStart: "422"},
		{status: 401, refusedAtStart: "tenant, user or token"}, {status: 403, refusedAtStart: "do not allow writing"},
		{status: 404, refusedAtStart: "is it the base URL"}, {status: 307, refusedAtStart: "307"},
		{status: 408}, {status: 429, later: true}, {status: 500}, {status: 502}, {status: 503, later: true}, {status: 504},
	} {
		t.Run(fmt.Sprint(c.status), func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
				if c.later {
					w.Header().Set("Retry-After", "7")
				}
				w.Header().Set("Location", "http://127.0.0.1:1/")
				http.Error(w, "<html>no</html>", c.status)
			}))
			defer server.Close()
			endpoint, err := remote.New(remote.Config{URL: server.URL})
			require.NoError(t, err)
			client := NewClient(endpoint)
			err = client.Push(t.Context(), Request{Push: &pushv1.PushRequest{}})
			var rejected *queue.RejectedError
			var later *queue.LaterError
			if c.rejected {
				require.ErrorAs(t, err, &rejected)
			} else {
				require.False(t, errors.As(err, &rejected), err)
			}
			if c.later {
				require.ErrorAs(t, err, &later)
				require.Equal(t, 7*time.Second, later.After)
			}
			var answered *queue.AnsweredError
			require.Equal(t, c.status == 429 || c.status == 500, errors.As(err, &answered), err)
			require.ErrorContains(t, err, fmt.Sprint(c.status))
			unreachable, refused := client.Check(t.Context())
			if c.refusedAtStart == "" {
				require.NoError(t, refused)
				require.Equal(t, c.status != 400, unreachable != nil)
			} else {
				require.ErrorContains(t, refused, c.refusedAtStart)
			}
		})
	}
}

func TestServerThatIsNotUpYetIsNotARefusal(t *testing.T) {
	endpoint, err := remote.New(remote.Config{URL: "http://127.0.0.1:1"})
	require.NoError(t, err)
	unreachable, refused := NewClient(endpoint).Check(t.Context())
	require.ErrorContains(t, unreachable, "connection refused")
	require.NoError(t, refused)
}
