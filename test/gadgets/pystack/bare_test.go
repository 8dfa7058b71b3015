// SPDX-License-Identifier: Apache-2.0

package pystack

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/internal/stack"
)

// TestTheInnermostFrameIsNoNeighbourOfAFunction: where functions have no unwind information, nothing says where they begin.
func TestTheInnermostFrameIsNoNeighbourOfAFunction(t *testing.T) {
	library := filepath.Join(t.TempDir(), "bare.so")
	out, err := exec.Command("gcc", "-shared", "-fPIC", "-o", library, "testdata/bare.c").CombinedOutput()
	require.NoError(t, err, "%s", out)
	w := start(t, newest(pythons(t), 1)[0], "-c", `
import ctypes, sys, time
spin = ctypes.CDLL(sys.argv[1]).bare_second
spin.argtypes = [ctypes.c_ulong]
print("[]", flush=True)
for line in sys.stdin:
    end = time.thread_time() + float(line)
    while time.thread_time() < end:
        spin(1000000)
    print("[]", flush=True)`, library)
	w.read(t, nil)
	second := functionOf(t, uint32(w.Process.Pid), library, "bare_second")

	c, _ := loadNative(t, onCPU, w.Process.Pid)
	if !countsChanges(t) {
		t.Skip("the kernel counts no changes of mappings (Linux 6.4): samples have no native frames")
	}
	stop := sample(t, c, 1999)
	fmt.Fprintln(w.in, 1) // second of a processor
	w.read(t, nil)
	stop()
	samples, leaves := uint64(0), map[uint64]bool{}
	for k, r := range rows(t, c) {
		native, flags := nativeOf(t, c, k.Stack)
		if flags&stack.NativeNoRules == 0 || len(native) == 0 {
			continue // not yet, or no longer there
		}
		require.Len(t, native, 1)
		require.True(t, second.has(native[0]), "%#x is not in bare_second, %#x", native[0], second)
		samples += r.Samples
		leaves[native[0]] = true
	}
	require.Greater(t, samples, uint64(20))
	require.LessOrEqual(t, len(leaves), int(second.to-second.from+15)/16, "not each instruction is a stack of its own")
}

// functionOf is where a process has a function of a library.
func functionOf(t *testing.T, pid uint32, library, name string) span {
	t.Helper()
	at, ok := symbolsOf(t, mappingsOf(t, pid), library)[name]
	require.True(t, ok, "%s is not mapped", name)
	return at
}
