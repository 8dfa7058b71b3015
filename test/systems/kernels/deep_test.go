// SPDX-License-Identifier: Apache-2.0

package kernels

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/internal/stack"
)

const (
	keptFrames = 128 // STACK_PYTHON_FRAMES of bpf/stack/stack.h
	deepFrames = 200
	// deep allocates once, many calls below main.
	deep = `
import ctypes, sys
cuda = ctypes.CDLL(sys.argv[1])
assert cuda.cuInit(0) == 0
context, pointer = ctypes.c_void_p(), ctypes.c_void_p()
assert cuda.cuCtxCreate_v2(ctypes.byref(context), 0, 0) == 0
def descend(n):
    if n:
        return descend(n - 1)
    return cuda.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(12345))
print("ready", flush=True)
sys.stdin.readline()
assert descend(%d - 2) == 0
print("done", flush=True)
sys.stdin.readline()
`
)

// deepProcess is a process with a stack deeper than is kept.
type deepProcess struct {
	pid uint32
	in  io.Writer
	out io.Reader
}

func startDeep(t *testing.T, python, library string) *deepProcess {
	t.Helper()
	cmd := exec.Command(python, "-c", fmt.Sprintf(deep, deepFrames), library)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	d := &deepProcess{pid: uint32(cmd.Process.Pid), in: in, out: out}
	d.expect(t, "ready")
	return d
}

func (d *deepProcess) expect(t *testing.T, word string) {
	t.Helper()
	var got string
	_, err := fmt.Fscan(d.out, &got)
	require.NoError(t, err)
	require.Equal(t, word, got)
}

// check lets it allocate: the innermost frames are kept, and the rest is marked as
// missing.
func (d *deepProcess) check(t *testing.T, g *gadget) {
	t.Helper()
	fmt.Fprintln(d.in)
	d.expect(t, "done")
	var text string
	g.wait("the deep stack", func() bool {
		for _, r := range g.rows {
			if r.Proc.PID == d.pid && r.AllocBytes == 12345 {
				text = r.Stack
			}
		}
		return text != ""
	})
	frames := strings.Split(text, "; ")
	require.Equal(t, stack.Truncated, frames[0], "the root is missing")
	require.Equal(t, keptFrames, strings.Count(text, "descend ("), text)
	require.Equal(t, keptFrames-1, strings.Count(text, "descend (<string>:9)"), text)
	require.Equal(t, 1, strings.Count(text, "descend (<string>:10)"), text)
}
