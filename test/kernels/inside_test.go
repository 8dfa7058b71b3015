// SPDX-License-Identifier: Apache-2.0

package kernels

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/test/exact/compare"
)

// inside tells the tests of this file and of load_test.go that they run on the
// kernel to be tested.
const inside = "GPU_GADGETS_KERNEL_TEST"

// pythonsVariable names the interpreters that run the workload.
const pythonsVariable = "GPU_GADGETS_PYTHONS"

func requireInside(t *testing.T) {
	t.Helper()
	if os.Getenv(inside) == "" {
		t.Skip("for the virtual machine that TestKernels starts (" + inside + " is empty)")
	}
}

// built returns a file that make has built for the machine's processor.
func built(t *testing.T, file string) string {
	t.Helper()
	if os.Getenv(inside) == "arm64" {
		file = "build/arm64/" + strings.TrimPrefix(strings.TrimPrefix(file, "bin/"), "build/")
	}
	path, err := filepath.Abs("../../" + file)
	require.NoError(t, err)
	require.FileExists(t, path)
	return path
}

// TestProduct: bin/ig-gpu counts to the byte and names every Python frame, of each
// python that the variable names.
func TestProduct(t *testing.T) {
	requireInside(t)
	for _, python := range strings.Fields(os.Getenv(pythonsVariable)) {
		t.Run(python, func(t *testing.T) {
			w := startWorkload(t, python, built(t, "build/simcuda/libcuda.so.1"), "--calls", "4000")
			g := startProduct(t, w)
			w.tell("holding")
			requireTruth(t, g, expected(t, w.dir), func(rows []compare.Row) []compare.Row { return rows })
			w.tell("done")
			t.Logf("ended %v after Ctrl-C", g.interrupt().Round(100*time.Millisecond))
			require.Empty(t, g.drops)
		})
	}
}

// startProduct waits until bin/ig-gpu is attached to the workload.
func startProduct(t *testing.T, w *workload) *gadget {
	t.Helper()
	pid := w.cmd.Process.Pid
	g := start(t, built(t, "bin/ig-gpu"), "run", "cuda_alloc", "--host", "--pid", strconv.Itoa(pid), "-o", "json")
	g.wait("the library is attached", func() bool { return g.attached[uint32(pid)] })
	t.Logf("attached %v after the start", time.Since(g.began).Round(100*time.Millisecond))
	return g
}

// TestNative: functions that call each other by frame pointers are named, also when
// their return addresses are signed, as on arm64.
func TestNative(t *testing.T) {
	requireInside(t)
	w := startProgram(t, built(t, "build/native"), built(t, "build/simcuda/libcuda.so.1"))
	g := startProduct(t, w)
	signed := w.tell("holding")
	require.Equal(t, runtime.GOARCH == "arm64", signed == `{"holding": 1}`, "return addresses are signed")
	g.wait("the allocation", func() bool { return len(g.rows) > 0 && g.rows[0].AllocObjects == 1 })
	t.Log(g.rows[0].Stack)
	require.Regexp(t, `main[^;]*; outer[^;]*; middle[^;]*; inner[^;]*; cuMemAlloc_v2[^;]*$`, g.rows[0].Stack)
	w.tell("done")
	g.interrupt()
}

// TestStock: the same image on Inspektor Gadget's own ig, which finds the library
// by ld.so.cache. Its WASM module names the stacks.
func TestStock(t *testing.T) {
	requireInside(t)
	if _, err := os.Stat("/sys/bus/event_source/devices/kprobe"); err != nil {
		t.Skipf("ig opens a library with the help of kprobes, which this kernel lacks: %v", err)
	}
	library := "/usr/lib/x86_64-linux-gnu/libcuda.so.1"
	run(t, "cp", built(t, "build/simcuda/libcuda.so.1"), library)
	run(t, "ldconfig")
	ig := stockWith(t, "cuda_alloc")

	w := startWorkload(t, "python3", library, "--calls", "1000")
	g := start(t, ig, "run", "ghcr.io/gpu-gadgets/cuda_alloc:latest", "--verify-image=false", "--pull", "never",
		"--auto-mount-filesystems", "--host", "-o", "json")
	g.wait("all is attached", func() bool { return g.tables > 1 })
	t.Logf("attached %v after the start", time.Since(g.began).Round(100*time.Millisecond))

	w.tell("holding")
	want := expected(t, w.dir)
	requireTruth(t, g, want, withoutStacks)
	requireNames(t, g, want)
	w.tell("done")
	t.Logf("ended %v after Ctrl-C", g.interrupt().Round(100*time.Millisecond))
	// ig's programs may not wait for a page that is not in memory: such a stack
	// lacks frames, and says so. Its bytes are counted, see above.
	delete(g.drops, "python_unreadable")
	require.Empty(t, g.drops)
}

// requireTruth waits for the table that shows the last call. Before, there are
// differences, and these are shown if it does not come.
func requireTruth(t *testing.T, g *gadget, want []compare.Row, see func([]compare.Row) []compare.Row) {
	t.Helper()
	want = see(want)
	var diffs []compare.Difference
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); time.Sleep(100 * time.Millisecond) {
		g.mu.Lock()
		diffs = compare.Diff(want, see(g.got()))
		g.mu.Unlock()
		if len(diffs) == 0 {
			t.Logf("%d rows are exact: %+v", len(want), compare.Total(want))
			return
		}
	}
	var table strings.Builder
	compare.Print(&table, diffs, 5)
	t.Errorf("%s\ndrops: %v", table.String(), g.drops)
}

func run(t *testing.T, program string, args ...string) {
	t.Helper()
	out, err := exec.Command(program, args...).CombinedOutput()
	require.NoError(t, err, "%s %v: %s", program, args, out)
}
