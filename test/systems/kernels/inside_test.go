// SPDX-License-Identifier: Apache-2.0

package kernels

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/test/support/compare"
)

// inside is set if the tests of this file and of load_test.go run on the kernel to be
// tested.
const (
	inside = "GPU_GADGETS_KERNEL_TEST"
	// variantVariable has the suffix of image names for this kernel.
	variantVariable = "GPU_GADGETS_VARIANT"
)

// pythonsVariable names the interpreters that run the workload.
const pythonsVariable = "GPU_GADGETS_PYTHONS"

func requireInside(t *testing.T) {
	t.Helper()
	if os.Getenv(inside) == "" {
		t.Skip("for the virtual machine that TestKernels starts (" + inside + " is empty)")
	}
}

// forAll are directories of files that are built for several architectures.
var forAll = regexp.MustCompile(`^build/(images|daemon)/`)

// built returns a file that make has built for the machine's processor.
func built(t *testing.T, file string) string {
	t.Helper()
	if os.Getenv(inside) == "arm64" && !forAll.MatchString(file) {
		file = "build/arm64/" + strings.TrimPrefix(strings.TrimPrefix(file, "bin/"), "build/")
	}
	path, err := filepath.Abs("../../../" + file)
	require.NoError(t, err)
	require.FileExists(t, path)
	return path
}

// libraries is the directory of the system's libraries.
var libraries = map[string]string{"amd64": "/usr/lib/x86_64-linux-gnu/", "arm64": "/usr/lib/aarch64-linux-gnu/"}[runtime.GOARCH]

// TestProduct: bin/ig-gpu counts to the byte and names every Python frame, of each
// python that the variable names.
func TestProduct(t *testing.T) {
	requireInside(t)
	var exact []string
	for _, python := range strings.Fields(os.Getenv(pythonsVariable)) {
		t.Run(python, func(t *testing.T) {
			library := built(t, "build/simcuda/libcuda.so.1")
			w := startWorkload(t, python, library, "--calls", "4000")
			d := startDeep(t, python, library)
			g := startProduct(t, w, d.pid)
			w.resume("holding")
			want := expected(t, w.dir)
			requireTruth(t, g, want, func(rows []compare.Row) []compare.Row { return rows })
			d.check(t, g)
			w.resume("done")
			t.Logf("ended %v after Ctrl-C", g.interrupt().Round(100*time.Millisecond))
			require.Empty(t, g.drops)
			logged := strings.Count(g.stderr.String(), "running cuda_alloc for Linux 5.10")
			if os.Getenv(variantVariable) != "" {
				require.Equal(t, 1, logged, g.stderr.String())
			} else {
				require.Zero(t, logged, g.stderr.String())
			}
			exact = append(exact, fmt.Sprint(len(want)))
		})
	}
	record(t, "rows", "%s", strings.Join(exact, ", "))
}

// startProduct waits until cuda_alloc of bin/ig-gpu is attached to the workload and to others.
func startProduct(t *testing.T, w *workload, others ...uint32) *gadget {
	t.Helper()
	return startProductOf(t, "cuda_alloc", w, nil, others...)
}

func startProductOf(t *testing.T, gadget string, w *workload, options []string, others ...uint32) *gadget {
	t.Helper()
	pids := append([]uint32{uint32(w.cmd.Process.Pid)}, others...)
	list := strings.Trim(strings.Join(strings.Fields(fmt.Sprint(pids)), ","), "[]")
	g := start(t, built(t, "bin/ig-gpu"), append([]string{"run", gadget, "--host", "--pid", list, "-o", "json"}, options...)...)
	g.wait("the library is attached", func() bool {
		return !slices.ContainsFunc(pids, func(pid uint32) bool { return !g.attached[pid] })
	})
	t.Logf("attached %v after the start", time.Since(g.began).Round(100*time.Millisecond))
	return g
}

// nativeStack is that of native.c. By unwind information it begins with the process.
var nativeStack = map[string]*regexp.Regexp{
	"pointers": regexp.MustCompile(`(^|; )main[^;]*; outer[^;]*; middle[^;]*; inner[^;]*; cuMemAlloc_v2[^;]*$`),
	"auto":     regexp.MustCompile(`^_start[^;]*; .*; main[^;]*; outer[^;]*; middle[^;]*; inner[^;]*; cuMemAlloc_v2[^;]*$`),
}

// TestNative: functions that call each other are named, by frame pointers and by unwind information, also
// when their return addresses are signed, as on arm64. The first stacks by unwind information are cut.
func TestNative(t *testing.T) {
	requireInside(t)
	for _, stacks := range []string{"pointers", "auto"} {
		t.Run(stacks, func(t *testing.T) {
			w := startProgram(t, built(t, "build/native"), built(t, "build/simcuda/libcuda.so.1"))
			g := startProductOf(t, "cuda_alloc", w, []string{"--native-stacks", stacks})
			calls, whole := int64(0), false
			for calls < 50 && !whole {
				signed := w.resume("holding")
				require.Equal(t, runtime.GOARCH == "arm64", signed == `{"holding": 1}`, "return addresses are signed")
				calls++
				var rows []row
				g.wait("the allocation", func() bool {
					var all int64
					for _, r := range g.rows {
						all += r.AllocObjects
					}
					rows = slices.Clone(g.rows)
					return all == calls
				})
				whole = slices.ContainsFunc(rows, func(r row) bool { return nativeStack[stacks].MatchString(r.Stack) })
				if whole || calls == 50 {
					t.Logf("after %d calls: %q", calls, rows[0].Stack)
				}
			}
			require.True(t, whole, "%d calls", calls)
			g.interrupt()
		})
	}
	record(t, "names", "yes")
}

// TestRefused: a gadget without a variant for this kernel is refused with one line.
func TestRefused(t *testing.T) {
	requireInside(t)
	cmd := exec.Command(built(t, "bin/ig-gpu"), "run", "py_stack", "--host", "--timeout", "5")
	out, err := cmd.CombinedOutput()
	require.Error(t, err)
	require.True(t, strings.HasPrefix(string(out), "Error: py_stack needs Linux 6.1 or newer, this is "), string(out))
	require.Equal(t, 1, strings.Count(string(out), "\n"), string(out))
	record(t, "refused", "py_stack")
}

// requireTruth waits for the table that shows the last call. Earlier tables differ, and
// the differences are shown if it does not arrive.
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
