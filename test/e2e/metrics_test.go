// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// scraped is what a scrape says of one process: metric → sum over its series.
// Prometheus text has one series per line, and the value behind the last blank.
func scraped(t *testing.T, address string, pid int) map[string]uint64 {
	t.Helper()
	response, err := http.Get("http://" + address + "/metrics")
	require.NoError(t, err)
	defer response.Body.Close()
	sums := map[string]uint64{}
	lines := bufio.NewScanner(response.Body)
	for lines.Scan() {
		series, value, ok := cutLast(lines.Text())
		name, labels, _ := strings.Cut(series, "{")
		if !ok || strings.HasPrefix(series, "#") || !strings.Contains(labels, fmt.Sprintf(`pid="%d"`, pid)) {
			continue
		}
		v, err := strconv.ParseFloat(value, 64)
		require.NoError(t, err, lines.Text())
		sums[name] += uint64(v)
	}
	require.NoError(t, lines.Err())
	return sums
}

func cutLast(line string) (before, after string, ok bool) {
	i := strings.LastIndexByte(line, ' ')
	if i < 0 {
		return line, "", false
	}
	return line[:i], line[i+1:], true
}

func freeAddress(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer listener.Close()
	return listener.Addr().String()
}

func TestMetricsAreTheDriversSums(t *testing.T) {
	t.Parallel()
	const mib = 1 << 20
	w := startWorkload(t, "SIMCUDA_CAPACITY=100MiB")
	w.do("load %s", driver(t))
	address := freeAddress(t)
	r := start(t, "--metrics-listen", address, "--metrics-compat", "--metrics-nvml", "off")
	r.waitAttached(w.pid())

	w.do("alloc weights 3 %d", 10*mib)
	w.do("alloc kv_cache 2 %d", 5*mib)
	w.do("free weights 2")
	require.Equal(t, "ok 1", w.tell("alloc logits 1 %d", 90*mib))
	var got map[string]uint64
	r.wait("the frees and the refusal in a scrape", func() bool {
		got = scraped(t, address, w.pid())
		return got["gpu_memory_frees_total"] == 2 && got["gpu_memory_failures_total"] == 1 && got["gpu_memory_allocations_total"] == 5
	})
	truth := w.truth()
	want := map[string]uint64{
		"gpu_memory_allocated_bytes_total": truth.AllocBytes, "gpu_memory_allocations_total": truth.AllocObjects,
		"gpu_memory_freed_bytes_total": truth.FreedBytes, "gpu_memory_frees_total": truth.FreedObjects,
		"gpu_memory_implicitly_freed_bytes_total": 0, "gpu_memory_implicit_frees_total": 0,
		"gpu_memory_inuse_bytes": truth.InUseBytes(), "gpu_memory_inuse_objects": truth.InUseObjects(),
		"gpu_memory_failures_total": truth.OOMs, "gpu_memory_failed_bytes_total": 90 * mib,
		"mem_alloc_bytes_total": truth.AllocBytes, "mem_free_bytes_total": truth.FreedBytes, "mem_implicit_free_bytes_total": 0,
	}
	require.EqualValues(t, 20*mib, want["gpu_memory_inuse_bytes"])
	// Reads are a second apart: the peak lies between the largest stack's and all.
	require.GreaterOrEqual(t, got["gpu_memory_peak_bytes"], uint64(30*mib))
	require.LessOrEqual(t, got["gpu_memory_peak_bytes"], truth.PeakBytes)
	delete(got, "gpu_memory_peak_bytes")
	require.Equal(t, want, got)

	// One scrape has what the process left behind, the next one nothing of it.
	w.end()
	r.wait("the end of the process in a scrape", func() bool {
		got = scraped(t, address, w.pid())
		return got["gpu_memory_implicitly_freed_bytes_total"] == 20*mib
	})
	require.Zero(t, got["gpu_memory_inuse_bytes"])
	require.Empty(t, scraped(t, address, w.pid()))
	code, _ := r.interrupt()
	require.Zero(t, code)
}
