// SPDX-License-Identifier: Apache-2.0

package kernels

import (
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/test/support/compare"
)

// TestHIP: bin/ig-gpu counts the memory of AMD's GPUs to the byte, by stack, and each launch
// and copy with its line and the name of its kernel.
func TestHIP(t *testing.T) {
	requireInside(t)
	library := built(t, "build/simhip/libamdhip64.so.6")
	t.Run("memory", func(t *testing.T) {
		w := startHIP(t, library, 4000)
		g := startProductOf(t, "hip_alloc", w, nil)
		w.resume("holding")
		want := expected(t, w.dir)
		requireTruth(t, g, want, func(rows []compare.Row) []compare.Row { return rows })
		w.resume("done")
		g.interrupt()
		require.Empty(t, g.drops)
		record(t, "rows", "%d", len(want))
	})
	t.Run("launches", func(t *testing.T) {
		w := startProgram(t, "python3", "testdata/hip_launches.py", library)
		g := startProductOf(t, "hip_kernel", w, nil)
		w.resume("done")
		named, all := requireHIPLaunches(t, g)
		require.Equal(t, all, named)
		g.interrupt()
		require.Empty(t, g.drops)
		record(t, "calls", "%d of %d", named, all)
	})
}

// startHIP starts the random workload. What is held by an address range is not known on 5.10.
func startHIP(t *testing.T, library string, calls int) *workload {
	t.Helper()
	if os.Getenv(variantVariable) != "" {
		t.Setenv("SIMHIP_HELD", "0")
	}
	return startWorkload(t, "python3", library, "--hip", library, "--calls", strconv.Itoa(calls))
}

// requireHIPLaunches waits for all calls of testdata/hip_launches.py, and counts those whose
// rows have the line that calls.
func requireHIPLaunches(t *testing.T, g *gadget) (named, all int64) {
	t.Helper()
	const script = "testdata/hip_launches.py"
	want := map[string]int64{"hipLaunchKernel": 300, "hipMemcpyHtoD": 100}
	lines := map[string]string{
		"hipLaunchKernel": "decode" + place(t, script, "hip.hipLaunchKernel("),
		"hipMemcpyHtoD":   "load" + place(t, script, "hip.hipMemcpyHtoD("),
	}
	g.wait("the calls", func() bool {
		got := map[string]int64{}
		named, all = 0, 0
		for _, r := range g.calls {
			if want[r.API] == 0 {
				continue
			}
			got[r.API] += r.Calls
			all += r.Calls
			if r.Frame == lines[r.API] {
				named += r.Calls
			}
			if r.API == "hipLaunchKernel" && !strings.Contains(r.Kernel, "vectorized") {
				return false
			}
		}
		return maps.Equal(got, want)
	})
	return named, all
}

// TestStockHIP: hip_alloc and hip_kernel on Inspektor Gadget's own ig.
func TestStockHIP(t *testing.T) {
	requireKprobes(t)
	library := libraries + "libamdhip64.so.6"
	run(t, "cp", built(t, "build/simhip/libamdhip64.so.6"), library)
	run(t, "ldconfig")
	t.Run("memory", func(t *testing.T) {
		gadget := image("hip_alloc")
		ig := stockWith(t, gadget)
		w := startHIP(t, library, 1000)
		g := start(t, ig, unsigned(gadget)...)
		g.wait("all is attached", func() bool { return g.tables > 1 })
		w.resume("holding")
		want := expected(t, w.dir)
		requireTruth(t, g, want, withoutStacks)
		requireNames(t, g, want)
		w.resume("done")
		g.interrupt()
		delete(g.drops, "python_unreadable") // as in TestStock
		require.Empty(t, g.drops)
		record(t, "rows", "%d", len(want))
	})
	t.Run("launches", func(t *testing.T) {
		gadget := image("hip_kernel")
		ig := stockWith(t, gadget)
		w := startProgram(t, "python3", "testdata/hip_launches.py", library)
		g := start(t, ig, unsigned(gadget)...)
		g.wait("all is attached", func() bool { return g.tables > 1 })
		w.resume("done")
		named, all := requireHIPLaunches(t, g)
		require.Greater(t, 10*named, 9*all, "calls with their line, and all: %+v", g.calls)
		g.interrupt()
		record(t, "calls", "%d of %d", named, all)
	})
}

// withoutHIP are the tests for arm64: HIP is for x86-64.
func withoutHIP(tests []string) []string {
	return slices.DeleteFunc(slices.Clone(tests), func(name string) bool { return strings.HasSuffix(name, "HIP") })
}
