// SPDX-License-Identifier: Apache-2.0

package otlp

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pprofile/pprofileotlp"
	collector "go.opentelemetry.io/proto/otlp/collector/profiles/v1development"
	logs "go.opentelemetry.io/proto/otlp/logs/v1"
	"google.golang.org/protobuf/proto"

	"github.com/gpu-gadgets/gpu-gadgets/internal/export/faults"
	"github.com/gpu-gadgets/gpu-gadgets/internal/export/remote"
	"github.com/gpu-gadgets/gpu-gadgets/internal/export/series"
	"github.com/gpu-gadgets/gpu-gadgets/internal/export/window"
	"github.com/gpu-gadgets/gpu-gadgets/internal/profile"
	"github.com/gpu-gadgets/gpu-gadgets/internal/profile/fixture"
	"github.com/gpu-gadgets/gpu-gadgets/internal/stack"
)

var frameTypes = map[stack.Kind]string{
	stack.KindPython: "profile.frame.type=cpython", stack.KindNative: "profile.frame.type=native", stack.KindTrampoline: "profile.frame.type=native",
	stack.KindKernel: "profile.frame.type=cuda",
}

func wanted(p *profile.Profile, t profile.Type) map[string][2]int64 {
	m := map[string][2]int64{}
	for _, f := range p.Frames(t) {
		if f.Total != 0 {
			m[frameName(f.Frame.Function, f.Frame.File, int64(f.Frame.Line), frameTypes[f.Frame.Kind])] = [2]int64{f.Self, f.Total}
		}
	}
	return m
}

func windowOf(p *profile.Profile) window.Window {
	return window.Window{Start: p.Time.Add(-10 * time.Second), End: p.Time, Subject: p.Subject, Period: p.Period, Rows: p.Rows}
}

// connect gives a client of a server that trusts its certificate.
func connect(t *testing.T, protocol Protocol, r *receiver, cfg remote.Config) (*Client, *faults.Server) {
	t.Helper()
	server := faults.New(t, r.handler())
	cfg.URL, cfg.CAFile = server.URL, server.CAFile
	endpoint, err := remote.New(cfg)
	require.NoError(t, err)
	c, err := NewClient(protocol, endpoint)
	require.NoError(t, err)
	t.Cleanup(c.Close)
	return c, server
}

func TestReceivedDataMatchesTheRows(t *testing.T) {
	for _, protocol := range Protocols {
		for name, p := range map[string]*profile.Profile{"small": fixture.Small(), "large": fixture.Large(3000), "kinds": fixture.Kinds()} {
			t.Run(protocol+" "+name, func(t *testing.T) {
				r := &receiver{}
				c, _ := connect(t, Protocol(protocol), r, remote.Config{Token: "secret", Header: http.Header{"X-Scope-Orgid": {"team"}}})
				unreachable, refused := c.Check(t.Context())
				require.NoError(t, errors.Join(unreachable, refused))
				for _, request := range (&Encoder{Levels: series.Levels{Inuse: true}}).Profiles(windowOf(p)) {
					require.NoError(t, c.Profiles(t.Context(), request))
				}
				all := r.stored()
				for _, sampleType := range profile.Types() {
					require.Equal(t, wanted(p, sampleType), sums(all, sampleType.String()+" "+sampleType.Unit()), sampleType)
				}
				for _, s := range all {
					require.Equal(t, p.Time.Add(-10*time.Second).UnixNano(), s.start)
					require.Equal(t, (10 * time.Second).Nanoseconds(), s.duration)
				}
				require.Equal(t, "Bearer secret", r.header.Get("Authorization"))
				require.Equal(t, "team", r.header.Get("X-Scope-OrgID"))
			})
		}
	}
}

// receive returns a receiver's view of a request.
func receive(t *testing.T, requests []*collector.ExportProfilesServiceRequest) []stored {
	t.Helper()
	r := &receiver{}
	for _, request := range requests {
		raw, err := proto.Marshal(request)
		require.NoError(t, err)
		read := pprofileotlp.NewExportRequest()
		require.NoError(t, read.UnmarshalProto(raw))
		r.take(read)
	}
	return r.stored()
}

func TestSeriesAndProfileTypes(t *testing.T) {
	e := Encoder{Levels: series.Levels{Inuse: true}, Series: series.Config{Cluster: "c1", Node: "n1", PIDs: true, GPU: func(profile.Process, int32) string { return "GPU-1" }}}
	types := map[string]bool{}
	labels := map[string]bool{}
	for _, s := range receive(t, e.Profiles(windowOf(fixture.Small()))) {
		types[s.profile+" "+s.sampleType] = true
		labels[s.labels] = true
	}
	require.Equal(t, map[string]bool{
		"cuda_alloc bytes alloc_objects count": true, "cuda_alloc bytes alloc_space bytes": true,
		"cuda_inuse bytes inuse_objects count": true, "cuda_inuse bytes inuse_space bytes": true,
	}, types)
	require.Contains(t, labels, "service.name=server,k8s.cluster.name=c1,k8s.node.name=n1,k8s.namespace.name=ml,k8s.pod.name=llm-0,"+
		"k8s.container.name=server,hw.id=GPU-1,cuda.device=0,cuda.memory.kind=device,process.pid=4242")

	p := fixture.Small()
	p.Subject, p.Period = profile.Wall, 20*time.Millisecond
	for i := range p.Rows {
		p.Rows[i].Values = profile.Values{Samples: 2, Nanoseconds: 4e7}
	}
	for _, s := range receive(t, e.Profiles(windowOf(p))) {
		require.Equal(t, "python_wall nanoseconds", s.profile)
		require.EqualValues(t, 2e7, s.period)
	}
}

func TestNativeFramesNameTheirLibrary(t *testing.T) {
	d := newDictionary()
	d.placeStack(d.number(fixture.Small().Rows[0].Stack))
	var files []string
	for _, m := range d.out.MappingTable[1:] {
		id := ""
		for _, i := range m.AttributeIndices {
			a := d.out.AttributeTable[i]
			id += d.out.StringTable[a.KeyStrindex] + "=" + a.Value.GetStringValue()
		}
		files = append(files, d.out.StringTable[m.FilenameStrindex]+" "+id)
	}
	require.NotEmpty(t, files)
	for _, f := range files {
		require.Regexp(t, `^/.*\.so.* process\.executable\.build_id\.gnu=[0-9a-f]+$`, f)
	}
}

func TestSameWindowGivesTheSameBytes(t *testing.T) {
	first, second := (&Encoder{}).Profiles(windowOf(fixture.Small())), (&Encoder{}).Profiles(windowOf(fixture.Small()))
	require.True(t, proto.Equal(first[0], second[0]))
	require.Empty(t, (&Encoder{}).Profiles(window.Window{}))
}

// State of earlier requests does not show in later ones.
func TestEarlierRequestsDoNotShow(t *testing.T) {
	used := &Encoder{Levels: series.Levels{Inuse: true}}
	for _, p := range []*profile.Profile{fixture.Large(300), fixture.Small(), fixture.Spans(), fixture.Large(500), fixture.Small()} {
		again, first := used.Profiles(windowOf(p)), (&Encoder{Levels: series.Levels{Inuse: true}}).Profiles(windowOf(p))
		require.Len(t, again, len(first))
		for i := range first {
			require.True(t, proto.Equal(first[i], again[i]))
		}
	}
}

func TestRequestsStayBelowTheServersLimit(t *testing.T) {
	p := fixture.Large(12000)
	for i := range p.Rows {
		p.Rows[i].Stack = slices.Clone(p.Rows[i].Stack)
		p.Rows[i].Stack[0].Function = fmt.Sprintf("%d %s", i, strings.Repeat("x", 800))
	}
	requests := (&Encoder{}).Profiles(windowOf(p))
	require.Greater(t, len(requests), 2)
	for _, r := range requests {
		require.LessOrEqual(t, proto.Size(r), maxBytes)
	}
	require.Equal(t, wanted(p, profile.AllocSpace), sums(receive(t, requests), "alloc_space bytes"))
}

func TestInvalidUTF8NamesAreSent(t *testing.T) {
	p := fixture.Small()
	p.Rows[0].Stack = stack.Stack{{Kind: stack.KindNative, Function: "\xff", File: "\xfe"}, {}}
	p.Rows[0].Process.Container = "\xfd"
	p.Rows[1].Stack = nil
	require.NotEmpty(t, receive(t, (&Encoder{}).Profiles(windowOf(p))))
}

func TestOOMIsALog(t *testing.T) {
	small := fixture.Small()
	o := profile.OOM{
		Time: small.Time, Process: small.Rows[0].Process, Stack: small.Rows[0].Stack, API: "cuMemAlloc_v2", Error: "CUDA_ERROR_OUT_OF_MEMORY",
		Device: 3, RequestedBytes: 1 << 30, InuseBytes: 12 << 20, Holders: []profile.Holder{{Stack: small.Rows[1].Stack, Bytes: 12 << 20}},
	}
	for _, protocol := range Protocols {
		t.Run(protocol, func(t *testing.T) {
			r := &receiver{}
			c, _ := connect(t, Protocol(protocol), r, remote.Config{})
			require.NoError(t, c.Logs(t.Context(), (&Encoder{}).OOM(o)))
			require.Len(t, r.logs, 1)
			resource := map[string]string{}
			for _, a := range r.logs[0].ResourceLogs[0].Resource.Attributes {
				resource[a.Key] = a.Value.GetStringValue()
			}
			require.Equal(t, "python3", resource["service.name"])
			require.Equal(t, fmt.Sprint(small.Rows[0].Process.PID), resource["process.pid"])
			record := r.logs[0].ResourceLogs[0].ScopeLogs[0].LogRecords[0]
			require.Equal(t, uint64(small.Time.UnixNano()), record.TimeUnixNano)
			require.Equal(t, EventOOM, record.EventName)
			require.Equal(t, "ERROR", record.SeverityText)
			require.Contains(t, record.Body.GetStringValue(), "cuMemAlloc_v2 of 1.00 GiB on GPU 3 at ")
			attributes := map[string]string{}
			for _, a := range record.Attributes {
				attributes[a.Key] = a.Value.String()
				if s := a.Value.GetStringValue(); s != "" {
					attributes[a.Key] = s
				}
			}
			require.Equal(t, o.Stack.Self().Function, attributes["code.function.name"])
			require.Contains(t, attributes["cuda.device"], "3")
			require.Contains(t, attributes["cuda.memory.requested"], "1073741824")
			require.Contains(t, attributes["cuda.memory.holders"], "12582912")
		})
	}
}

func TestAnAllocationThatFailsForAnotherReasonIsAWarning(t *testing.T) {
	sent := (&Encoder{}).OOM(profile.OOM{API: "cuMemCreate", Error: "CUDA_ERROR_NOT_PERMITTED"})
	record := sent.ResourceLogs[0].ScopeLogs[0].LogRecords[0]
	require.Equal(t, EventFailed, record.EventName)
	require.Equal(t, "WARN", record.SeverityText)
	require.Equal(t, logs.SeverityNumber_SEVERITY_NUMBER_WARN, record.SeverityNumber)
}

// A log has no other account of what the pool had before ig-gpu attached.
func TestALogOfAPoolHasItsOwnAccount(t *testing.T) {
	sent := (&Encoder{}).OOM(profile.OOM{API: profile.PoolAPI, Error: "CUDA_ERROR_OUT_OF_MEMORY", Device: 3, InuseBytes: 2 << 30, PoolBytes: 78 << 30})
	record := sent.ResourceLogs[0].ScopeLogs[0].LogRecords[0]
	body := record.Body.GetStringValue()
	require.Contains(t, body, "torch on GPU 3 at ")
	require.Contains(t, body, "; it held 78.0 GiB on that GPU; the lines of 76.0 GiB of it are unknown")
	numbers := map[string]int64{}
	for _, a := range record.Attributes {
		numbers[a.Key] = a.Value.GetIntValue()
	}
	require.Equal(t, int64(78<<30), numbers["cuda.memory.pool"])
	require.Equal(t, int64(2<<30), numbers["cuda.memory.inuse"])
	for _, a := range (&Encoder{}).OOM(profile.OOM{API: "cuMemAlloc_v2"}).ResourceLogs[0].ScopeLogs[0].LogRecords[0].Attributes {
		require.NotEqual(t, "cuda.memory.pool", a.Key, "it is not known")
	}
}
