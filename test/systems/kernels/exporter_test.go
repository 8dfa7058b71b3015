// SPDX-License-Identifier: Apache-2.0

package kernels

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/google/pprof/profile"
	pushv1 "github.com/grafana/pyroscope/api/gen/proto/go/push/v1"
	"github.com/grafana/pyroscope/api/gen/proto/go/push/v1/pushv1connect"
	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/internal/stack"
	"github.com/gpu-gadgets/gpu-gadgets/test/support/compare"
	"github.com/gpu-gadgets/gpu-gadgets/test/support/loopback"
)

// TestStockExported: gpu-exporter with Inspektor Gadget's own daemon sends the driver's
// allocations, with the names that the image's WASM module adds.
func TestStockExported(t *testing.T) {
	library := stockLibrary(t)
	run(t, "ip", "link", "set", "lo", "up")
	image := image("cuda_alloc")
	ig := stockWith(t, image)
	require.NoError(t, os.MkdirAll("/var/lib/ig/gadgets", 0o700))
	const id = "0123456789abcdef0123456789abcdef"
	require.NoError(t, os.WriteFile("/var/lib/ig/gadgets/"+id+".gadget", fmt.Appendf(nil,
		`{"gadgetInstance": {"id": %q, "name": "memory", "gadgetConfig": {"imageName": "ghcr.io/gpu-gadgets/%s:latest", "version": 1,
			"paramValues": {"operator.LocalManager.host": "true", "operator.oci.pull": "never"}}}}`, id, image), 0o600))
	const socket = "unix:///tmp/ig.sock"
	launchQuietly(t, ig, "daemon", "-H", socket, "--tls-insecure", "--verify-image=false", "--auto-mount-filesystems")

	pyro := &pyroscope{alloc: map[string]int64{}}
	mux := http.NewServeMux()
	mux.Handle(pushv1connect.NewPusherServiceHandler(pyro))
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	const address = "127.0.0.1:9464"
	exporter := launchQuietly(t, built(t, "build/daemon/"+runtime.GOARCH+"/gpu-exporter"), "--address", "vm="+socket,
		"--pyroscope-url", server.URL, "--metrics-listen", address, "--export-interval", "2s")

	w := startWorkload(t, "python3", library, "--calls", "1000")
	became(t, "all is attached", func() bool {
		_, found := loopback.Sum(t, address, "gpu_gadgets_drops_total")
		return found
	})
	time.Sleep(3 * time.Second) // probes are there before the first table
	w.resume("holding")
	want := compare.Total(expected(t, w.dir))
	became(t, "the metrics are the driver's", func() bool {
		alloc, _ := loopback.Sum(t, address, "gpu_memory_allocated_bytes_total")
		inuse, _ := loopback.Sum(t, address, "gpu_memory_inuse_bytes")
		return int64(alloc) == want.AllocBytes && int64(inuse) == want.InUseBytes
	})
	became(t, "the profiles add up to what the driver gave", func() bool { return pyro.sum() == want.AllocBytes })
	names := pyro.names()
	named := int64(0)
	for function, bytes := range names {
		if function != stack.Truncated && function != stack.Unknown {
			named += bytes
		}
	}
	require.Greater(t, named, want.AllocBytes*9/10, "%v", names)
	t.Logf("%+v in %d functions", want, len(names))
	record(t, "bytes", "exact")
	w.resume("done")
	require.NoError(t, exporter.Process.Signal(os.Interrupt))
}

// launchQuietly starts a program whose output is only shown if the test fails.
func launchQuietly(t *testing.T, program string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(program, args...)
	out, err := os.CreateTemp(t.TempDir(), "output")
	require.NoError(t, err)
	cmd.Stdout, cmd.Stderr = out, out
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
		if text, err := os.ReadFile(out.Name()); t.Failed() && err == nil {
			t.Logf("%s\n%s", cmd, text)
		}
	})
	return cmd
}

func became(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(waitLimit); !holds(); time.Sleep(200 * time.Millisecond) {
		require.True(t, time.Now().Before(deadline), "%v are not enough for %s", waitLimit, what)
	}
}

// pyroscope adds up alloc_space by innermost function.
type pyroscope struct {
	mu    sync.Mutex
	alloc map[string]int64
}

func (p *pyroscope) Push(_ context.Context, request *connect.Request[pushv1.PushRequest]) (*connect.Response[pushv1.PushResponse], error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, series := range request.Msg.Series {
		for _, s := range series.Samples {
			parsed, err := profile.Parse(bytes.NewReader(s.RawProfile))
			if err != nil {
				return nil, connect.NewError(connect.CodeInvalidArgument, err)
			}
			for column, kind := range parsed.SampleType {
				if kind.Type != "alloc_space" {
					continue
				}
				for _, sample := range parsed.Sample {
					p.alloc[sample.Location[0].Line[0].Function.Name] += sample.Value[column]
				}
			}
		}
	}
	return connect.NewResponse(&pushv1.PushResponse{}), nil
}

func (p *pyroscope) sum() (sum int64) {
	for _, v := range p.names() {
		sum += v
	}
	return sum
}

func (p *pyroscope) names() map[string]int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := map[string]int64{}
	for name, v := range p.alloc {
		all[name] = v
	}
	return all
}
