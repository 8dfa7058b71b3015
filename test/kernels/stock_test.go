// SPDX-License-Identifier: Apache-2.0

package kernels

import (
	"bytes"
	"encoding/json"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/operators/stack"
	"github.com/gpu-gadgets/gpu-gadgets/test/exact/compare"
)

// stockWith is the program ig with the image of a gadget in its store.
func stockWith(t *testing.T, gadget string) string {
	t.Helper()
	// ig attaches nothing, not even to the host, where it finds no runtime.
	run(t, "cp", "/bin/true", "/usr/bin/runc")
	ig := built(t, "build/vm/ig")
	run(t, ig, "image", "import", built(t, "build/images/"+gadget+".tar"), "--auto-mount-filesystems")
	return ig
}

// requireNames: each row's stack is one of the truth, and the rows of a stack are
// its sums, but for what is in stacks that say that they lack frames: ig's programs
// may not wait for a page of the interpreter that is not in memory.
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
	t.Logf("%d rows name the stacks of %d allocations exactly, %d lack frames; the last: %s",
		len(whole), all-incomplete, incomplete, g.rows[len(g.rows)-1].Stack)
}

// TestStockPython: a profile of py_stack on ig itself has names.
func TestStockPython(t *testing.T) {
	requireInside(t)
	ig := stockWith(t, "py_stack")
	w := exec.Command("python3", "../stock/testdata/busy.py")
	require.NoError(t, w.Start())
	t.Cleanup(func() { w.Process.Kill(); w.Wait() })
	out, err := exec.Command(ig, "run", "ghcr.io/gpu-gadgets/py_stack:latest", "--verify-image=false", "--pull", "never",
		"--auto-mount-filesystems", "--host", "-o", "json", "--timeout", "10").CombinedOutput()
	require.NoError(t, err, "%s", out)
	for line := range bytes.Lines(out) {
		var rows []row
		if !bytes.Contains(line, []byte(`"gil_samples":`)) || json.Unmarshal(line, &rows) != nil {
			continue
		}
		for _, r := range rows {
			if int(r.Proc.PID) == w.Process.Pid && r.Stack == "<module> (busy.py:14); main (busy.py:11); Model.forward (busy.py:7)" {
				require.Equal(t, "Model.forward (busy.py:7)", r.Frame)
				t.Log(r.Stack)
				return
			}
		}
	}
	require.Fail(t, "no row names the stack", "%s", out)
}
