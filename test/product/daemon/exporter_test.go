// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"fmt"
	"io"
	"net"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/test/support/loopback"
	"github.com/gpu-gadgets/gpu-gadgets/test/support/subject"
)

var buildExporter = sync.OnceValues(func() (string, error) {
	path, err := filepath.Abs("../../../build/daemon/test/gpu-exporter")
	if err != nil {
		return "", err
	}
	out, err := exec.Command("go", "build", "-buildvcs=false", "-o", path, "../../../cmd/gpu-exporter").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("build gpu-exporter: %w: %s", err, out)
	}
	return path, nil
})

func startExporter(t testing.TB, args ...string) *process {
	t.Helper()
	program, err := buildExporter()
	require.NoError(t, err)
	return start(t, program, append(args, "--export-interval=1s", "--export-pid", "--verbose")...)
}

// proxy is a network between exporter and daemon that can be cut.
type proxy struct {
	t       testing.TB
	address string
	to      string // unix socket

	mu    sync.Mutex
	isCut bool
	conns []net.Conn
}

func startProxy(t testing.TB, to string) *proxy {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	p := &proxy{t: t, to: to, address: "tcp://" + listener.Addr().String()}
	t.Cleanup(func() {
		listener.Close()
		p.cut()
	})
	go func() {
		for {
			in, err := listener.Accept()
			if err != nil {
				return
			}
			go p.pass(in)
		}
	}()
	return p
}

func (p *proxy) pass(in net.Conn) {
	defer in.Close()
	p.mu.Lock()
	isCut := p.isCut
	p.mu.Unlock()
	out, err := net.Dial("unix", p.to)
	if err != nil {
		return
	}
	defer out.Close()
	if isCut {
		return
	}
	p.mu.Lock()
	p.conns = append(p.conns, in, out)
	p.mu.Unlock()
	go func() {
		_, _ = io.Copy(out, in)
		out.Close()
	}()
	_, _ = io.Copy(in, out)
}

func (p *proxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.isCut = true
	for _, c := range p.conns {
		c.Close()
	}
	p.conns = nil
}

func (p *proxy) mend() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.isCut = false
}

// The exporter sends what the driver did while it was connected: with the network cut,
// the daemon restarted, and another daemon that appears and disappears.
func TestExporterMatchesTheDriver(t *testing.T) {
	const mib = 1 << 20
	one, two := newNode(t), newNode(t)
	one.start()
	require.NoError(t, one.create("cuda_alloc", nil))
	w := startSteps(t, "SIMCUDA_CAPACITY=1GiB")
	one.waitAttached(w.PID())
	w.Do("alloc weights 4 %d", mib)
	time.Sleep(3 * time.Second) // the rows of before are read each second
	before := w.Truth()

	pyro, otlp, address := startPyroscope(t), startCollector(t), loopback.FreeAddress(t)
	network := startProxy(t, one.socket)
	e := startExporter(t, "--address", "one="+network.address+",two=unix://"+two.socket, "--instance", "memory",
		"--pyroscope-url", pyro.url, "--otlp-endpoint", otlp.url, "--metrics-listen", address, "--metrics-stale", "3s")
	pid := fmt.Sprint("pid=", w.PID())
	label := fmt.Sprintf(`process_pid="%d"`, w.PID())
	inNode := func(node string) string { return fmt.Sprintf(`k8s_node_name=%q`, node) }
	exported := func(node string) uint64 {
		return total(sums(pyro.stored("cuda_alloc", "node="+node, pid), "alloc_space"))
	}
	inuse := func(node string) uint64 {
		all := pyro.stored("cuda_inuse", "node="+node, pid)
		if len(all) == 0 {
			return 0
		}
		return total(sums(all[len(all)-1:], "inuse_space"))
	}

	eventually(t, "the exporter does not attach", func() bool {
		v, _ := loopback.Sum(t, address, "gpu_memory_inuse_bytes", label, inNode("one"))
		return v == float64(before.InUseBytes())
	})
	require.Zero(t, exported("one"), "what was allocated before it came is not its to send")

	w.Do("alloc kv_cache 3 %d", 2*mib)
	w.Do("free kv_cache 1")
	w.Do("alloc staging 2 %d", 3*mib)
	seen := w.Truth()
	want := seen.AllocBytes - before.AllocBytes
	eventually(t, "the flow is not the driver's", func() bool { return exported("one") == want })
	eventually(t, "the level is not the driver's", func() bool { return inuse("one") == seen.InUseBytes() })
	eventually(t, "the OTLP receiver has something else", func() bool {
		alloc, _ := otlp.read(w.PID())
		return alloc == want
	})
	eventually(t, "the metrics are not the driver's", func() bool {
		v, _ := loopback.Sum(t, address, "gpu_memory_allocated_bytes_total", label, inNode("one"))
		return v == float64(seen.AllocBytes)
	})
	byFunction := sums(pyro.stored("cuda_alloc", "node=one", pid), "alloc_space")
	require.Equal(t, map[string]uint64{subject.Frame(t, "kv_cache"): 6 * mib, subject.Frame(t, "staging"): 6 * mib}, byFunction)

	t.Run("refused allocations are logs", func(t *testing.T) {
		require.Equal(t, "ok 1", w.Request("alloc workspace 1 %d", 1<<40))
		eventually(t, "no log", func() bool {
			_, logs := otlp.read(w.PID())
			return len(logs) == 1 && strings.Contains(logs[0], "workspace") && strings.Contains(logs[0], "OUT_OF_MEMORY")
		})
	})

	t.Run("the network is cut", func(t *testing.T) {
		network.cut()
		w.Do("alloc kv_cache 2 %d", mib)
		want += 2 * mib
		time.Sleep(2 * time.Second) // with windows without rows
		network.mend()
		eventually(t, "what was allocated meanwhile is not there, once", func() bool { return exported("one") == want })
		require.Equal(t, "ok 1", w.Request("alloc workspace 1 %d", 1<<40))
		eventually(t, "not one log of each refusal", func() bool {
			_, logs := otlp.read(w.PID())
			return len(logs) == 2
		})
	})

	t.Run("the daemon is restarted", func(t *testing.T) {
		one.stop()
		w.Do("alloc encoder_cache 7 %d", mib) // not observed
		one.start()
		one.waitAttached(w.PID())
		w.Do("alloc activations 5 %d", 2*mib)
		want += 10 * mib
		eventually(t, "not what was allocated before and after, once", func() bool { return exported("one") == want })
		eventually(t, "the level has more than the daemon has seen", func() bool { return inuse("one") == 10*mib })
	})

	t.Run("another daemon comes and goes", func(t *testing.T) {
		two.start()
		require.NoError(t, two.create("cuda_alloc", nil))
		two.waitAttached(w.PID())
		w.Do("alloc logits 3 %d", 5*mib)
		want += 15 * mib
		eventually(t, "not what the new daemon has seen", func() bool {
			return exported("two") == 15*mib && exported("one") == want
		})
		eventually(t, "no metrics of the new daemon", func() bool {
			v, _ := loopback.Sum(t, address, "gpu_memory_inuse_bytes", label, inNode("two"))
			return v == 15*mib
		})
		two.stop()
		eventually(t, "metrics of a daemon that has gone", func() bool {
			_, found := loopback.Sum(t, address, "gpu_memory_inuse_bytes", inNode("two"))
			return !found
		})
	})

	w.Do("alloc weights 1 %d", 9*mib)
	want += 9 * mib
	time.Sleep(2 * time.Second)
	e.end()
	require.Equal(t, want, exported("one"), "nothing is lost at the end, nothing is there twice")
	alloc, logs := otlp.read(w.PID())
	require.Equal(t, want+15*mib, alloc)
	require.Len(t, logs, 2)
}
