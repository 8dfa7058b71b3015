// SPDX-License-Identifier: Apache-2.0

package devicetimes

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestParcagpuItself: the real library, which $PARCAGPU names, on the simulated CUPTI: the
// reports of its compiled probes match those of CUPTI.
func TestParcagpuItself(t *testing.T) {
	library := os.Getenv("PARCAGPU")
	if library == "" {
		t.Skip("PARCAGPU is not set to a libparcagpucupti.so: examples/simcupti/README.md")
	}
	cupti := built(t, "simcupti/cupti/libcupti.so")
	w := startWith(t, cupti, []string{"CUDA_INJECTION64_PATH=" + library, "LD_LIBRARY_PATH=" + filepath.Dir(cupti),
		"PARCAGPU_RATE_LIMIT=1000000", "PARCAGPU_GRAPH_RATE_LIMIT=1000000"})
	w.listeners()
	require.Empty(t, truth(w.reported(), method), "there was no listener")
	r := w.trace("--device-times")
	a := r.wait(filepath.Base(library), driverName)
	require.Equal(t, 2, a.Symbols)
	require.Contains(t, a.Note, "2 semaphores")
	w.step()
	w.listeners()
	w.step()
	w.listeners()
	all := w.reported()
	r.end()
	w.step()
	w.listeners()
	w.step()
	w.listeners()

	want := truth(all, method)
	delete(want, "early of [launch not seen]") // the library keeps kernels of launches that it did not report
	require.Len(t, want, 3+nodes)
	require.Equal(t, want, r.kernels("kernel"))
	require.EqualValues(t, [2]int64{steps, steps * 1300}, want["gemm of Work.forward"])
	require.Empty(t, r.kernels("unseen"))
	require.Equal(t, truth(all, method), truth(w.reported(), method), "we have detached, and there is no listener")
	for _, reason := range []string{"launch_not_seen", "device_time_missing", "device_time_unknown", "event_lost", "argument_unreadable"} {
		require.Zero(t, r.drops[reason], reason)
	}
}
