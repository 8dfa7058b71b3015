// SPDX-License-Identifier: Apache-2.0

package kernels

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/internal/stack"
	"github.com/gpu-gadgets/gpu-gadgets/test/support/compare"
)

// stockLibrary is where Inspektor Gadget's own ig finds the driver: by ld.so.cache. It
// opens a library with the help of kprobes.
func stockLibrary(t *testing.T) string {
	t.Helper()
	requireKprobes(t)
	library := libraries + "libcuda.so.1"
	run(t, "cp", built(t, "build/simcuda/libcuda.so.1"), library)
	run(t, "ldconfig")
	return library
}

func requireKprobes(t *testing.T) {
	t.Helper()
	requireInside(t)
	if _, err := os.Stat("/sys/bus/event_source/devices/kprobe"); err != nil {
		t.Skipf("ig opens a library with the help of kprobes, which are missing in this kernel: %v", err)
	}
}

// stockIG is the program ig.
func stockIG(t *testing.T) string {
	t.Helper()
	// ig attaches nothing, not even to the host, where it finds no runtime.
	run(t, "cp", "/bin/true", "/usr/bin/runc")
	return built(t, "build/vm/ig")
}

// image is the name of a gadget's image for this kernel.
func image(gadget string) string { return gadget + os.Getenv(variantVariable) }

// stockWith is the program ig with the image of a gadget in its store.
func stockWith(t *testing.T, gadget string) string {
	t.Helper()
	ig := stockIG(t)
	run(t, ig, "image", "import", built(t, "build/images/"+gadget+".tar"), "--auto-mount-filesystems")
	return ig
}

// unsigned are the arguments that run an image of ig's store.
func unsigned(gadget string) []string {
	return []string{"run", "ghcr.io/gpu-gadgets/" + gadget + ":latest", "--verify-image=false", "--pull", "never",
		"--auto-mount-filesystems", "--host", "-o", "json"}
}

// TestStock: the same image on Inspektor Gadget's own ig, which pulls it from a registry
// and verifies its signature. Its WASM module names the stacks.
func TestStock(t *testing.T) {
	library := stockLibrary(t)
	image := image("cuda_alloc")
	ig, args := stockIG(t), signedImage(t, image)

	w := startWorkload(t, "python3", library, "--calls", "1000")
	g := start(t, ig, args...)
	g.wait("all is attached", func() bool { return g.tables > 1 })
	t.Logf("attached %v after the start", time.Since(g.began).Round(100*time.Millisecond))

	w.resume("holding")
	want := expected(t, w.dir)
	requireTruth(t, g, want, withoutStacks)
	requireNames(t, g, want)
	w.resume("done")
	t.Logf("ended %v after Ctrl-C", g.interrupt().Round(100*time.Millisecond))
	// ig's programs may not wait for a page that is not in memory: such a stack has
	// missing frames, and is marked. Its bytes are counted, see above.
	delete(g.drops, "python_unreadable")
	require.Empty(t, g.drops)
	record(t, "rows", "%d", len(want))
}

// requireNames checks that each row's stack is one of the truth, and the rows of a stack
// are its sums, except for stacks that are marked as incomplete: ig's programs may not
// wait for a page of the interpreter that is not in memory.
func requireNames(t *testing.T, g *gadget, want []compare.Row) {
	t.Helper()
	g.mu.Lock()
	defer g.mu.Unlock()
	whole, incomplete := []compare.Row{}, int64(0)
	for i, r := range g.got() {
		text := g.rows[i].Stack
		if strings.Contains(text, stack.Truncated) || strings.Contains(text, stack.Unreadable) {
			incomplete += r.AllocObjects
			continue
		}
		require.NotEmpty(t, r.Stack, "%q", text)
		require.Equal(t, text[strings.LastIndex(text, "; ")+len("; "):], g.rows[i].Frame)
		whole = append(whole, r)
	}
	require.LessOrEqual(t, uint64(incomplete), g.drops["python_unreadable"])
	all := compare.Total(want).AllocObjects
	require.Less(t, incomplete, all/10, "allocations whose stacks lack frames")
	var missing int64
	for _, d := range compare.Diff(want, whole) {
		require.Less(t, d.Got.AllocObjects, d.AllocObjects, "%+v", d)
		missing += d.AllocObjects - d.Got.AllocObjects
	}
	require.Equal(t, incomplete, missing)
	record(t, "names", "%d of %d", all-incomplete, all)
	t.Logf("%d rows name the stacks of %d allocations exactly, %d lack frames; the last: %s",
		len(whole), all-incomplete, incomplete, g.rows[len(g.rows)-1].Stack)
}

// TestStockPython: a profile of py_stack on ig itself has names, with an image that is
// not signed and with one that is.
func TestStockPython(t *testing.T) {
	requireInside(t)
	ig := stockWith(t, "py_stack")
	w := exec.Command("python3", "../stock/testdata/busy.py")
	require.NoError(t, w.Start())
	t.Cleanup(func() { w.Process.Kill(); w.Wait() })
	for _, args := range [][]string{unsigned("py_stack"), signedImage(t, "py_stack")} {
		requireProfile(t, w.Process.Pid, ig, args)
	}
	record(t, "names", "yes")
}

func requireProfile(t *testing.T, pid int, ig string, args []string) {
	t.Helper()
	out, err := exec.Command(ig, append(args, "--timeout", "10")...).CombinedOutput()
	require.NoError(t, err, "%s", out)
	for line := range bytes.Lines(out) {
		var rows []row
		if !bytes.Contains(line, []byte(`"gil_samples":`)) || json.Unmarshal(line, &rows) != nil {
			continue
		}
		for _, r := range rows {
			if int(r.Proc.PID) == pid && r.Stack == "<module> (busy.py:14); main (busy.py:11); Model.forward (busy.py:7)" {
				require.Equal(t, "Model.forward (busy.py:7)", r.Frame)
				t.Log(r.Stack)
				return
			}
		}
	}
	require.Fail(t, "no row names the stack", "%s", out)
}
