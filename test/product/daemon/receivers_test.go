// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"connectrpc.com/connect"
	"github.com/google/pprof/profile"
	pushv1 "github.com/grafana/pyroscope/api/gen/proto/go/push/v1"
	"github.com/grafana/pyroscope/api/gen/proto/go/push/v1/pushv1connect"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pprofile/pprofileotlp"
	logsv1 "go.opentelemetry.io/proto/otlp/collector/logs/v1"
	"google.golang.org/grpc"
	_ "google.golang.org/grpc/encoding/gzip" // to accept compressed requests

	"github.com/gpu-gadgets/gpu-gadgets/test/support/loopback"
)

// pyroscope only remembers.
type pyroscope struct {
	t   testing.TB
	url string

	mu     sync.Mutex
	pushed []*pushv1.RawProfileSeries
}

func startPyroscope(t testing.TB) *pyroscope {
	t.Helper()
	p := &pyroscope{t: t}
	path, handler := pushv1connect.NewPusherServiceHandler(p)
	p.url = loopback.Serve(t, path, handler)
	return p
}

func (p *pyroscope) Push(_ context.Context, request *connect.Request[pushv1.PushRequest]) (*connect.Response[pushv1.PushResponse], error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.pushed = append(p.pushed, request.Msg.Series...)
	return connect.NewResponse(&pushv1.PushResponse{}), nil
}

// stored are the profiles of one name that have the labels, in the order of their
// arrival.
func (p *pyroscope) stored(name string, labels ...string) (all []*profile.Profile) {
	p.t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, s := range p.pushed {
		var have []string
		for _, l := range s.Labels {
			have = append(have, l.Name+"="+l.Value)
		}
		missing := slices.ContainsFunc(append(labels, "__name__="+name), func(l string) bool { return !slices.Contains(have, l) })
		for _, sample := range s.Samples {
			if parsed, err := profile.Parse(bytes.NewReader(sample.RawProfile)); err == nil && !missing {
				all = append(all, parsed)
			} else if err != nil {
				p.t.Errorf("a profile that cannot be read: %v", err)
			}
		}
	}
	return all
}

// sums are the values of one sample type by innermost Python function and line.
func sums(all []*profile.Profile, sampleType string) map[string]uint64 {
	m := map[string]uint64{}
	for _, p := range all {
		column := slices.IndexFunc(p.SampleType, func(v *profile.ValueType) bool { return v.Type == sampleType })
		for _, s := range p.Sample {
			i := slices.IndexFunc(s.Location, func(l *profile.Location) bool { return strings.HasSuffix(l.Line[0].Function.Filename, ".py") })
			function := "[native]"
			if i >= 0 {
				l := s.Location[i].Line[0]
				function = fmt.Sprintf("%s (%s:%d)", l.Function.Name, path.Base(l.Function.Filename), l.Line)
			}
			m[function] += uint64(s.Value[column])
		}
	}
	return m
}

func total(m map[string]uint64) (sum uint64) {
	for _, v := range m {
		sum += v
	}
	return sum
}

// collector counts the data it receives by OTLP.
type collector struct {
	pprofileotlp.UnimplementedGRPCServer
	url string

	mu    sync.Mutex
	alloc map[string]int64 // the sum of alloc_space by pid: others use the driver, too
	logs  []string
}

type logCollector struct {
	logsv1.UnimplementedLogsServiceServer
	*collector
}

func startCollector(t testing.TB) *collector {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	c := &collector{url: "http://" + listener.Addr().String(), alloc: map[string]int64{}}
	server := grpc.NewServer()
	pprofileotlp.RegisterGRPCServer(server, c)
	logsv1.RegisterLogsServiceServer(server, logCollector{collector: c})
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)
	return c
}

func (c *collector) Export(_ context.Context, request pprofileotlp.ExportRequest) (pprofileotlp.ExportResponse, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	dictionary := request.Profiles().Dictionary()
	for _, r := range request.Profiles().ResourceProfiles().All() {
		for _, s := range r.ScopeProfiles().All() {
			for _, p := range s.Profiles().All() {
				if dictionary.StringTable().At(int(p.SampleType().TypeStrindex())) != "alloc_space" {
					continue
				}
				for _, sample := range p.Samples().All() {
					for _, i := range sample.AttributeIndices().All() {
						attribute := dictionary.AttributeTable().At(int(i))
						if dictionary.StringTable().At(int(attribute.KeyStrindex())) == "process.pid" {
							c.alloc[attribute.Value().Str()] += sample.Values().At(0)
						}
					}
				}
			}
		}
	}
	return pprofileotlp.NewExportResponse(), nil
}

func (c logCollector) Export(_ context.Context, request *logsv1.ExportLogsServiceRequest) (*logsv1.ExportLogsServiceResponse, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, r := range request.ResourceLogs {
		for _, s := range r.ScopeLogs {
			for _, l := range s.LogRecords {
				c.logs = append(c.logs, l.String())
			}
		}
	}
	return &logsv1.ExportLogsServiceResponse{}, nil
}

// read is the data received of one process.
func (c *collector) read(pid int) (alloc uint64, logs []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, l := range c.logs {
		if strings.Contains(l, strconv.Itoa(pid)) {
			logs = append(logs, l)
		}
	}
	return uint64(c.alloc[strconv.Itoa(pid)]), logs
}
