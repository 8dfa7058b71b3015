// SPDX-License-Identifier: Apache-2.0

package backends

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/test/support/loopback"
	"github.com/gpu-gadgets/gpu-gadgets/test/support/subject/usage"
)

// probes are the eBPF programs of a gadget, whose run time the kernel counts while
// kernel.bpf_stats_enabled is 1.
type probes []*ebpf.Program

func probesOf(t *testing.T, pid int) (p probes) {
	t.Helper()
	ids, err := usage.Programs(pid)
	require.NoError(t, err)
	for _, id := range ids {
		program, err := ebpf.NewProgramFromID(id)
		require.NoError(t, err)
		info, err := program.Info()
		require.NoError(t, err)
		if !strings.HasPrefix(info.Name, "call_enter") && !strings.HasPrefix(info.Name, "call_exit") {
			program.Close()
			continue
		}
		t.Cleanup(func() { program.Close() })
		p = append(p, program)
	}
	require.NotEmpty(t, p, "ig-gpu has no eBPF programs named call_enter and call_exit")
	return p
}

func (p probes) runs(t *testing.T) (count uint64, spent time.Duration) {
	t.Helper()
	for _, program := range p {
		s, err := program.Stats()
		require.NoError(t, err)
		count += s.RunCount
		spent += s.Runtime
	}
	return count, spent
}

// watch measures the cost of a run, once a second.
type watch struct {
	probes
	pid  int
	ns   []float64 // of an enter and an exit, by second
	rss  []int64   // bytes
	last struct {
		count uint64
		spent time.Duration
	}
}

func startWatch(t *testing.T, g *gadget) *watch {
	t.Helper()
	w := &watch{probes: probesOf(t, g.cmd.Process.Pid), pid: g.cmd.Process.Pid}
	w.last.count, w.last.spent = w.runs(t)
	return w
}

var resident = regexp.MustCompile(`VmRSS:\s+(\d+) kB`)

// look takes one reading.
func (w *watch) look(t *testing.T) {
	t.Helper()
	count, spent := w.runs(t)
	if n := count - w.last.count; n > 100 {
		w.ns = append(w.ns, 2*float64(spent-w.last.spent)/float64(n))
	}
	w.last.count, w.last.spent = count, spent
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", w.pid))
	require.NoError(t, err)
	m := resident.FindSubmatch(status)
	require.NotNil(t, m)
	kib, err := strconv.ParseInt(string(m[1]), 10, 64)
	require.NoError(t, err)
	w.rss = append(w.rss, kib<<10)
}

// until takes a reading once a second, at least five, until done returns true, and
// returns them as a part.
func (w *watch) until(t *testing.T, done func() bool) (nsPerPair float64, mostBytes int64) {
	t.Helper()
	for i := 0; i < 5 || !done(); i++ {
		time.Sleep(time.Second)
		w.look(t)
	}
	return w.part(t)
}

// part returns the readings so far, 0 ns if no calls were traced, and starts again.
func (w *watch) part(t *testing.T) (nsPerPair float64, mostBytes int64) {
	t.Helper()
	if len(w.ns) > 0 {
		nsPerPair = median(w.ns)
	}
	mostBytes = slices.Max(w.rss)
	w.ns, w.rss = nil, nil
	return nsPerPair, mostBytes
}

func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	n := len(sorted)
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}

// scrape is ig-gpu's own metrics of one exporter: name without prefix → value.
func scrape(t *testing.T, address, exporter string) map[string]int64 {
	t.Helper()
	series, err := loopback.Scrape(t, address)
	require.NoError(t, err)
	all := map[string]int64{}
	for _, s := range series {
		name, isExport := strings.CutPrefix(s.Name, "gpu_gadgets_export_")
		if isExport && s.Has(fmt.Sprintf(`exporter=%q`, exporter)) {
			all[name] = int64(s.Value)
		}
	}
	require.NotEmpty(t, all, "no metrics of %s", exporter)
	return all
}
