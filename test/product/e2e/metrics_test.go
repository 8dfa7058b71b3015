// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/test/support/loopback"
	"github.com/gpu-gadgets/gpu-gadgets/test/support/subject"
)

// scraped is a scrape's data of one process: metric → sum over its series.
func scraped(t *testing.T, address string, pid int) map[string]uint64 {
	t.Helper()
	all, err := loopback.Scrape(t, address)
	require.NoError(t, err)
	sums := map[string]uint64{}
	for _, s := range all {
		if s.Has(fmt.Sprintf(`pid="%d"`, pid)) {
			sums[s.Name] += uint64(s.Value)
		}
	}
	return sums
}

func TestMetricsAreTheDriversSums(t *testing.T) {
	t.Parallel()
	w := subject.StartSteps(t, "SIMCUDA_CAPACITY=100MiB")
	w.Load()
	address := loopback.FreeAddress(t)
	r := start(t, "--metrics-listen", address, "--metrics-compat", "--metrics-nvml", "off")
	r.waitAttached(w.PID())

	w.Do("alloc weights 3 %d", 10*mib)
	w.Do("alloc kv_cache 2 %d", 5*mib)
	w.Do("free weights 2")
	require.Equal(t, "ok 1", w.Request("alloc logits 1 %d", 90*mib))
	var got map[string]uint64
	r.wait("the frees and the refusal in a scrape", func() bool {
		got = scraped(t, address, w.PID())
		return got["gpu_memory_frees_total"] == 2 && got["gpu_memory_failures_total"] == 1 && got["gpu_memory_allocations_total"] == 5
	})
	truth := w.Truth()
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

	// One scrape has the last values of the ended process, the next one none of it.
	w.End()
	r.wait("the end of the process in a scrape", func() bool {
		got = scraped(t, address, w.PID())
		return got["gpu_memory_implicitly_freed_bytes_total"] == 20*mib
	})
	require.Zero(t, got["gpu_memory_inuse_bytes"])
	require.Empty(t, scraped(t, address, w.PID()))
	code, _ := r.interrupt()
	require.Zero(t, code)
}
