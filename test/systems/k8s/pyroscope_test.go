// SPDX-License-Identifier: Apache-2.0

package k8s

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
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
)

const pyroscopeAddress = controlAddress + ":4040"

// pyroscope is one that keeps the latest profile of each series; test/systems/backends has a
// real one.
type pyroscope struct {
	mu     sync.Mutex
	latest map[string]stored // by the labels
}

type stored struct {
	labels  map[string]string
	at      time.Time // when the window ended
	profile *profile.Profile
}

func startPyroscope(t *testing.T) *pyroscope {
	t.Helper()
	p := &pyroscope{latest: map[string]stored{}}
	path, handler := pushv1connect.NewPusherServiceHandler(p)
	mux := http.NewServeMux()
	mux.Handle(path, handler)
	listener, err := net.Listen("tcp", pyroscopeAddress)
	require.NoError(t, err)
	server := &http.Server{Handler: mux}
	go server.Serve(listener)
	t.Cleanup(func() { server.Close() })
	return p
}

func (p *pyroscope) Push(_ context.Context, request *connect.Request[pushv1.PushRequest]) (*connect.Response[pushv1.PushResponse], error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, series := range request.Msg.Series {
		labels := map[string]string{}
		var names []string
		for _, l := range series.Labels {
			labels[l.Name] = l.Value
			names = append(names, l.Name+"="+l.Value)
		}
		for _, sample := range series.Samples {
			parsed, err := profile.Parse(bytes.NewReader(sample.RawProfile))
			if err != nil {
				return nil, connect.NewError(connect.CodeInvalidArgument, err)
			}
			at := time.Unix(0, parsed.TimeNanos+parsed.DurationNanos)
			if key := strings.Join(names, ","); p.latest[key].at.Before(at) {
				p.latest[key] = stored{labels, at, parsed}
			}
		}
	}
	return connect.NewResponse(&pushv1.PushResponse{}), nil
}

// inuse adds up a profile of levels.
func (s stored) inuse() (sum uint64) {
	column := slices.IndexFunc(s.profile.SampleType, func(kind *profile.ValueType) bool { return kind.Type == "inuse_space" })
	for _, sample := range s.profile.Sample {
		sum += uint64(sample.Value[column])
	}
	return sum
}

// levels are the series of levels of the latest window, as a query over one push interval
// gives them. Of memory that was freed there is none: its series ends with an older window.
func (p *pyroscope) levels() (all []stored) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var last time.Time
	for _, s := range p.latest {
		if s.at.After(last) {
			last = s.at
		}
	}
	for _, s := range p.latest {
		if s.labels["__name__"] == "cuda_inuse" && s.at.Equal(last) {
			all = append(all, s)
		}
	}
	return all
}

// inuse adds up the latest levels by pod, and returns the functions that they name.
func (p *pyroscope) inuse() (map[pod]uint64, map[string]bool) {
	sums, functions := map[pod]uint64{}, map[string]bool{}
	for _, s := range p.levels() {
		sums[pod{s.labels["namespace"], s.labels["pod"]}] += s.inuse()
		for _, sample := range s.profile.Sample {
			for _, location := range sample.Location {
				for _, line := range location.Line {
					functions[line.Function.Name] = true
				}
			}
		}
	}
	return sums, functions
}

// text is all series of levels, one a line.
func (p *pyroscope) text() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	var lines []string
	for key, s := range p.latest {
		if s.labels["__name__"] != "cuda_inuse" {
			continue
		}
		lines = append(lines, fmt.Sprintf("%s at %v: %d bytes", key, s.at.Format(time.TimeOnly), s.inuse()))
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// requireFed checks that Pyroscope has the pods' memory, and the lines that hold it.
func (c *cluster) requireFed(t *testing.T, p *pyroscope, holds map[pod]uint64) {
	t.Helper()
	c.wait("Pyroscope is fed", func() error {
		got, functions := p.inuse()
		for pod, bytes := range holds {
			if got[pod] != bytes {
				return fmt.Errorf("%v of %v are in Pyroscope:\n%s", got, holds, p.text())
			}
		}
		for _, function := range []string{"GPUModelRunner._allocate_kv_cache_tensors", "Linear.create_weights"} {
			if !functions[function] {
				return fmt.Errorf("Pyroscope has no %s: %v", function, functions)
			}
		}
		return nil
	})
}

// documentedPyroscope is where the documents have Pyroscope.
const documentedPyroscope = "http://pyroscope.observability:4040"

// daemon: docs/guides/kubernetes.md's chapter on our daemon. The other one's recording
// continues.
func daemon(t *testing.T, c *cluster) {
	p := startPyroscope(t)
	c.pushDaemon()
	c.empty(t)
	_, _ = c.try(c.admin, c.step("delete")) // of twoPods, where RecordingIsDeleted was not wanted
	c.do(t, c.step("record"))
	c.do(t, strings.ReplaceAll(c.step("daemon"), documentedPyroscope, "http://"+pyroscopeAddress))
	g := c.gadget(t, c.admin, c.step("watch")+" -o json")
	g.wait("it records", func() bool { return g.tables > 0 })
	holds := c.fill(t)
	for p, bytes := range holds {
		g.wait("what "+p.name+" holds", func() bool { return g.inuse()[p] == bytes })
		g.requireNames(p, bytes)
	}
	c.requireFed(t, p, holds)
	c.requireNoRestart(t)
}

// chart: docs/guides/kubernetes.md's chapter on the chart. Our daemon must not record the same
// data into Pyroscope twice.
func chart(t *testing.T, c *cluster) {
	if out := c.do(t, "kubectl gadget list"); strings.Contains(out, "gpu-memory") {
		c.do(t, c.step("delete"))
	}
	p := startPyroscope(t)
	c.pushProgram()
	c.empty(t)
	c.do(t, strings.ReplaceAll(c.step("chart"), documentedPyroscope, "http://"+pyroscopeAddress))
	c.do(t, "kubectl rollout status -n gpu-gadgets ds/gpu-gpu-gadgets --timeout 8m")
	c.requireFed(t, p, c.fill(t))
	if os.Getenv(capabilitiesVariable) != "" {
		t.Run("Rights", func(t *testing.T) { c.chartRights(t, p) })
	}
	c.do(t, "helm uninstall gpu --namespace gpu-gadgets --wait")
}
