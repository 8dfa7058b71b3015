// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/test/support/loopback"
	"github.com/gpu-gadgets/gpu-gadgets/test/support/subject"
)

func startExporter(t testing.TB, args ...string) *process {
	t.Helper()
	program, err := loopback.Exporter()
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

// exported is a workload on a node, and where the exporter sends what the node's daemon,
// and another's, have seen of it.
type exported struct {
	t        *testing.T
	w        *subject.Steps
	one, two *node
	network  *proxy // to the first node
	pyro     *pyroscope
	otlp     *collector
	address  string // of the metrics
	want     uint64 // bytes that the first node must have sent
}

func inNode(name string) string { return fmt.Sprintf(`k8s_node_name=%q`, name) }

func (e *exported) pid() string { return fmt.Sprint("pid=", e.w.PID()) }

func (e *exported) alloc(node string) uint64 {
	return total(sums(e.pyro.stored("cuda_alloc", "node="+node, e.pid()), "alloc_space"))
}

func (e *exported) inuse(node string) uint64 {
	all := e.pyro.stored("cuda_inuse", "node="+node, e.pid())
	if len(all) == 0 {
		return 0
	}
	return total(sums(all[len(all)-1:], "inuse_space"))
}

// metric is the sum of the workload's series on a node.
func (e *exported) metric(name, node string) float64 {
	v, _ := loopback.Sum(e.t, e.address, name, fmt.Sprintf(`process_pid="%d"`, e.w.PID()), inNode(node))
	return v
}

// requireLogs waits for so many logs of refused allocations.
func (e *exported) requireLogs(t *testing.T, n int) {
	t.Helper()
	eventually(t, "not one log of each refusal", func() bool {
		_, logs := e.otlp.read(e.w.PID())
		return len(logs) == n && strings.Contains(logs[0], "workspace") && strings.Contains(logs[0], "OUT_OF_MEMORY")
	})
}

const mib = 1 << 20

// The exporter sends what the driver did while it was connected: with the network cut,
// the daemon restarted, and another daemon that appears and disappears.
func TestExporterMatchesTheDriver(t *testing.T) {
	e := &exported{t: t, one: newNode(t), two: newNode(t)}
	e.one.start()
	require.NoError(t, e.one.create("cuda_alloc", nil))
	e.w = startSteps(t, "SIMCUDA_CAPACITY=1GiB")
	w := e.w
	e.one.waitAttached(w.PID())
	w.Do("alloc weights 4 %d", mib)
	time.Sleep(3 * time.Second) // the rows of before are read each second
	before := w.Truth()

	e.pyro, e.otlp, e.address = startPyroscope(t), startCollector(t), loopback.FreeAddress(t)
	e.network = startProxy(t, e.one.socket)
	exporter := startExporter(t, "--address", "one="+e.network.address+",two=unix://"+e.two.socket, "--instance", "memory",
		"--pyroscope-url", e.pyro.url, "--otlp-endpoint", e.otlp.url, "--metrics-listen", e.address, "--metrics-stale", "3s")
	eventually(t, "the exporter does not attach", func() bool {
		return e.metric("gpu_memory_inuse_bytes", "one") == float64(before.InUseBytes())
	})
	require.Zero(t, e.alloc("one"), "what was allocated before it came is not its to send")

	w.Do("alloc kv_cache 3 %d", 2*mib)
	w.Do("free kv_cache 1")
	w.Do("alloc staging 2 %d", 3*mib)
	seen := w.Truth()
	e.want = seen.AllocBytes - before.AllocBytes
	eventually(t, "the flow is not the driver's", func() bool { return e.alloc("one") == e.want })
	eventually(t, "the level is not the driver's", func() bool { return e.inuse("one") == seen.InUseBytes() })
	eventually(t, "the OTLP receiver has something else", func() bool {
		alloc, _ := e.otlp.read(w.PID())
		return alloc == e.want
	})
	eventually(t, "the metrics are not the driver's", func() bool {
		return e.metric("gpu_memory_allocated_bytes_total", "one") == float64(seen.AllocBytes)
	})
	byFunction := sums(e.pyro.stored("cuda_alloc", "node=one", e.pid()), "alloc_space")
	require.Equal(t, map[string]uint64{subject.Frame(t, "kv_cache"): 6 * mib, subject.Frame(t, "staging"): 6 * mib}, byFunction)

	t.Run("refused allocations are logs", func(t *testing.T) {
		require.Equal(t, "ok 1", w.Request("alloc workspace 1 %d", 1<<40))
		e.requireLogs(t, 1)
	})
	t.Run("the network is cut", e.testNetworkIsCut)
	t.Run("the daemon is restarted", e.testDaemonIsRestarted)
	t.Run("another daemon comes and goes", e.testAnotherDaemon)

	w.Do("alloc weights 1 %d", 9*mib)
	e.want += 9 * mib
	eventually(t, "the last allocation has not come", func() bool {
		return e.metric("gpu_memory_inuse_bytes", "one") == (10+15+9)*mib // since the daemon was restarted
	})
	exporter.end()
	require.Equal(t, e.want, e.alloc("one"), "nothing is lost at the end, nothing is there twice")
	alloc, logs := e.otlp.read(w.PID())
	require.Equal(t, e.want+15*mib, alloc)
	require.Len(t, logs, 2)
}

func (e *exported) testNetworkIsCut(t *testing.T) {
	e.network.cut()
	e.w.Do("alloc kv_cache 2 %d", mib)
	e.want += 2 * mib
	time.Sleep(2 * time.Second) // with windows without rows
	e.network.mend()
	eventually(t, "what was allocated meanwhile is not there, once", func() bool { return e.alloc("one") == e.want })
	require.Equal(t, "ok 1", e.w.Request("alloc workspace 1 %d", 1<<40))
	e.requireLogs(t, 2)
}

func (e *exported) testDaemonIsRestarted(t *testing.T) {
	e.one.stop()
	e.w.Do("alloc encoder_cache 7 %d", mib) // not observed
	e.one.start()
	e.one.waitAttached(e.w.PID())
	e.w.Do("alloc activations 5 %d", 2*mib)
	e.want += 10 * mib
	eventually(t, "not what was allocated before and after, once", func() bool { return e.alloc("one") == e.want })
	eventually(t, "the level has more than the daemon has seen", func() bool { return e.inuse("one") == 10*mib })
}

func (e *exported) testAnotherDaemon(t *testing.T) {
	e.two.start()
	require.NoError(t, e.two.create("cuda_alloc", nil))
	e.two.waitAttached(e.w.PID())
	e.w.Do("alloc logits 3 %d", 5*mib)
	e.want += 15 * mib
	eventually(t, "not what the new daemon has seen", func() bool {
		return e.alloc("two") == 15*mib && e.alloc("one") == e.want
	})
	eventually(t, "no metrics of the new daemon", func() bool { return e.metric("gpu_memory_inuse_bytes", "two") == 15*mib })
	e.two.stop()
	eventually(t, "metrics of a daemon that has gone", func() bool {
		_, found := loopback.Sum(t, e.address, "gpu_memory_inuse_bytes", inNode("two"))
		return !found
	})
}
