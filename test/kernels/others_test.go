// SPDX-License-Identifier: Apache-2.0

package kernels

import (
	"maps"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestStockLaunches: cuda_kernel on ig itself counts launches and copies, and names the
// lines that asked for them.
func TestStockLaunches(t *testing.T) {
	library := stockLibrary(t)
	g := start(t, stockWith(t, "cuda_kernel"), unsigned("cuda_kernel")...)
	g.wait("all is attached", func() bool { return g.tables > 1 })
	w := launch(t, "python3", "testdata/launches.py", library)
	w.expect("done")
	want := map[string]int64{"cuLaunchKernel": 300, "cuMemcpyHtoDAsync_v2": 100}
	lines := map[string]string{"cuLaunchKernel": "decode (launches.py:11)", "cuMemcpyHtoDAsync_v2": "load (launches.py:15)"}
	var named, other int64
	g.wait("the calls", func() bool {
		got := map[string]int64{}
		named, other = 0, 0
		for _, r := range g.others {
			if want[r.API] == 0 {
				continue
			}
			got[r.API] += r.Calls
			if r.Frame == lines[r.API] {
				named += r.Calls
			} else {
				other += r.Calls // a page was not in memory: docs/stock-ig.md
			}
		}
		return maps.Equal(got, want)
	})
	require.Greater(t, named, 9*other, "calls with their line, and without: %+v", g.others)
	g.interrupt()
	tell(t, "rows", "exact, %d of %d with their line", named, named+other)
}

// TestStockRanks: nccl_trace on ig itself sees every communicator with all its ranks, and
// that they have come equally far.
func TestStockRanks(t *testing.T) {
	library := stockLibrary(t)
	nccl := "/usr/lib/x86_64-linux-gnu/libnccl.so.2"
	run(t, "cp", built(t, "build/simnccl/libnccl.so.2"), nccl)
	run(t, "ldconfig")
	g := start(t, stockWith(t, "nccl_trace"), unsigned("nccl_trace")...)
	g.wait("all is attached", func() bool { return g.tables > 1 })
	w := launch(t, "python3", "../nccl/workload.py", "--libcuda", library, "--libnccl", nccl, "--ranks", "2", "--calls", "100")
	w.expect("ready")
	communicators := 0
	g.wait("two communicators of all", func() bool {
		ranks, issued := map[uint64]int{}, map[uint64]map[uint64]bool{}
		for _, r := range g.others {
			if r.Size != 2 || r.Collectives == 0 {
				continue
			}
			ranks[r.Identity]++
			if issued[r.Identity] == nil {
				issued[r.Identity] = map[uint64]bool{}
			}
			issued[r.Identity][r.Collectives] = true
		}
		communicators = 0
		for identity, n := range ranks {
			if identity != 0 && n == 2 && len(issued[identity]) == 1 {
				communicators++
			}
		}
		return communicators >= 2
	})
	g.interrupt()
	tell(t, "rows", "%d communicators, their ranks equally far", communicators)
}
