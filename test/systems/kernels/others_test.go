// SPDX-License-Identifier: Apache-2.0

package kernels

import (
	"fmt"
	"maps"
	"os"
	"path"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// startBoth runs an image on ig itself twice at the same time, from ig's store without a
// signature and from a registry with one. Both are attached when it returns.
func startBoth(t *testing.T, image string) map[string]*gadget {
	t.Helper()
	ig := stockWith(t, image)
	signed := signedImage(t, image)
	both := map[string]*gadget{"unsigned": start(t, ig, unsigned(image)...), "signed": start(t, ig, signed...)}
	for name, g := range both {
		g.wait("all is attached, "+name, func() bool { return g.tables > 1 })
		t.Logf("%s: attached %v after the start", name, time.Since(g.began).Round(time.Second))
	}
	return both
}

// TestStockLaunches: cuda_kernel on ig itself counts launches and copies, and names the
// calling lines.
func TestStockLaunches(t *testing.T) {
	library := stockLibrary(t)
	both := startBoth(t, image("cuda_kernel"))
	w := launch(t, "python3", "testdata/launches.py", library)
	w.expect("done")
	want := map[string]int64{"cuLaunchKernel": 300, "cuMemcpyHtoDAsync_v2": 100}
	lines := map[string]string{
		"cuLaunchKernel":       "decode" + place(t, "testdata/launches.py", "driver.launch("),
		"cuMemcpyHtoDAsync_v2": "load" + place(t, "testdata/launches.py", "driver.to_device("),
	}
	for name, g := range both {
		var named, other int64
		g.wait("the calls, "+name, func() bool {
			got := map[string]int64{}
			named, other = 0, 0
			for _, r := range g.calls {
				if want[r.API] == 0 {
					continue
				}
				got[r.API] += r.Calls
				if r.Frame == lines[r.API] {
					named += r.Calls
				} else {
					other += r.Calls // a page was not in memory: docs/reference/stock-ig.md
				}
			}
			return maps.Equal(got, want)
		})
		require.Greater(t, named, 9*other, "%s: calls with their line, and without: %+v", name, g.calls)
		record(t, name, "%d of %d", named, named+other)
	}
	for _, g := range both {
		g.interrupt()
	}
}

// TestStockRanks: nccl_trace on ig itself sees every communicator with all its ranks,
// their progress and their lines.
func TestStockRanks(t *testing.T) {
	library := stockLibrary(t)
	nccl := libraries + "libnccl.so.2"
	run(t, "cp", built(t, "build/simnccl/libnccl.so.2"), nccl)
	run(t, "ldconfig")
	both := startBoth(t, image("nccl_trace"))
	w := launch(t, "python3", "testdata/ranks.py", library, nccl)
	w.expect("ready")

	const bindings = "../../../examples/collectives/nccl.py"
	call := "NCCL.__call__" + place(t, bindings, "result = function(*args)")
	stack := func(function, text, method, call2 string) string {
		return strings.Join([]string{
			"rank" + place(t, "testdata/ranks.py", function+"(nccl, buffer, w"),
			function + place(t, "testdata/ranks.py", text),
			"NCCL." + method + place(t, bindings, call2), call,
		}, "; ")
	}
	want := map[string]string{ // by the newest operation
		fmt.Sprint("", " AllReduce ", 100):       stack("step", "nccl.all_reduce(", "all_reduce", `self("AllReduce"`),
		fmt.Sprint("weights", " Broadcast ", 10): stack("publish", "nccl.broadcast(", "broadcast", `self("Broadcast"`),
	}
	for name, g := range both {
		g.wait("both communicators in both ranks, "+name, func() bool { return equallyFar(g.communicators, want) })
		for _, r := range g.communicators {
			require.Equal(t, call, r.Frame, "%s: rank %d of %q: %v", name, r.Rank, r.Name, g.drops)
			require.Equal(t, want[newest(r)], innermost(r.Stack, 4), "%s: rank %d of %q", name, r.Rank, r.Name)
		}
		record(t, name, "%d communicators of %d ranks", len(want), 2)
	}
	for _, g := range both {
		g.interrupt()
	}
}

// newest identifies a row for TestStockRanks: name, newest operation, count.
func newest(r communicatorRow) string { return fmt.Sprint(r.Name, " ", r.Op, " ", r.Collectives) }

// equallyFar reports whether the rows are those of all ranks of the expected communicators,
// and one identity is one communicator.
func equallyFar[T any](rows []communicatorRow, want map[string]T) bool {
	ranks, identities := map[string]map[int]bool{}, map[uint64]string{}
	for _, r := range rows {
		key := newest(r)
		if _, ok := want[key]; !ok || r.Size != 2 || r.Identity == 0 {
			return false
		}
		if other, ok := identities[r.Identity]; ok && other != key {
			return false
		}
		identities[r.Identity] = key
		if ranks[key] == nil {
			ranks[key] = map[int]bool{}
		}
		ranks[key][r.Rank] = true
	}
	for key := range want {
		if !maps.Equal(ranks[key], map[int]bool{0: true, 1: true}) {
			return false
		}
	}
	return len(identities) == len(want) && len(rows) == 2*len(want)
}

// innermost are the last frames of a stack.
func innermost(stack string, n int) string {
	frames := strings.Split(stack, "; ")
	return strings.Join(frames[max(0, len(frames)-n):], "; ")
}

// place is " (file:line)" of the one line of a Python file that has a text, and is not a
// definition.
func place(t *testing.T, file, text string) string {
	t.Helper()
	source, err := os.ReadFile(file)
	require.NoError(t, err)
	found := 0
	for i, line := range strings.Split(string(source), "\n") {
		if strings.Contains(line, text) && !strings.Contains(line, "def ") {
			require.Zero(t, found, "%s has %q in more than one line", file, text)
			found = i + 1
		}
	}
	require.NotZero(t, found, "%s has no %q", file, text)
	return fmt.Sprintf(" (%s:%d)", path.Base(file), found)
}
