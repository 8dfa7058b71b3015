// SPDX-License-Identifier: Apache-2.0

package exact

import (
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/test/support/simulated"
	"github.com/gpu-gadgets/gpu-gadgets/test/support/subject"
	"github.com/gpu-gadgets/gpu-gadgets/test/support/tracer"
)

// forks is the beginning of a program that forks workers.
const forks = `
import ctypes, os, sys
lib = ctypes.CDLL(sys.argv[1])
lib.simtorch_malloc.restype = ctypes.c_void_p
def block(device): return lib.simtorch_malloc(device, ctypes.c_uint64(2 << 20))
def free(device, p): assert lib.simtorch_free(device, ctypes.c_void_p(p)) == 0
def step():
    print("ready", flush=True)
    sys.stdin.readline()
def worker(work):
    if pid := os.fork():
        assert os.waitpid(pid, 0)[1] == 0
        return
    work()
    step()
    os._exit(0)
`

// torchScript starts a program on the simulated allocator of PyTorch; attach sets the probes.
func torchScript(t *testing.T, text string) (p *subject.Process, attach func() *tracer.Tracer) {
	t.Helper()
	libraries := t.TempDir()
	lib := simulated.Copy(t, libraries, "simcuda", "libcuda.so.1")
	cuda := simulated.Copy(t, libraries, "simtorch", "libc10_cuda.so")
	c10 := simulated.Copy(t, libraries, "simtorch", "libc10.so")
	cmd := exec.Command("python3", "-c", forks+text, cuda)
	cmd.Env = append(os.Environ(), "LD_LIBRARY_PATH="+libraries, "SIMCUDA_DEVICES=2")
	p = subject.Start(t, cmd)
	p.Expect("ready")
	return p, func() *tracer.Tracer {
		tr := tracer.Start(t, lib, tracer.Options{Offset: 10})
		tr.AttachTorch(c10)
		return tr
	}
}

// A worker that a training process forks has copies of its tensors, which the worker's garbage collector deletes:
// PyTorch reports that with what the parent had allocated at the fork.
func TestWhatAForkedWorkerDeletesIsItsParents(t *testing.T) {
	p, attach := torchScript(t, `
step()
a, b = block(0), block(0)
worker(lambda: free(0, a))
step()
`)
	tr := attach()
	next(p)
	all := pools(t, tr)
	require.Len(t, all, 1)
	require.Equal(t, 1, tr.Len("torch_pools"), "the worker has none")
	require.EqualValues(t, 4<<20, all[0].Allocated)
	require.Zero(t, all[0].BackBlocks, "the parent still has its tensor")
	require.Equal(t, 1, tr.Len("processes_by_id"))
	next(p)
	p.Say("")
	p.End()
	require.Empty(t, tr.Drops())
}

// One that was forked before CUDA was initialised has memory of its own.
func TestAForkedServerHasAPoolOfItsOwn(t *testing.T) {
	for name, c := range map[string]struct {
		parent, server string
		pools          int
	}{
		"its parent has none":                   {"", "free(0, a)", 1},
		"its parent has one of another device":  {"block(1)", "free(0, a)", 2},
		"its parent has one of the same device": {"block(0)", "free(0, a); block(0)", 2},
	} {
		t.Run(name, func(t *testing.T) {
			p, attach := torchScript(t, `
(begun, begin), (go_on, let) = os.pipe(), os.pipe()
if not os.fork():
    a = block(0)
    os.write(begin, b"a")
    os.read(go_on, 1)
    `+c.server+`
    step()
    os._exit(0)
os.read(begun, 1)
step()
`+c.parent+`
os.write(let, b"a")
os.wait()
`)
			tr := attach()
			next(p)
			require.Equal(t, c.pools, tr.Len("torch_pools"))
			p.Say("")
			p.End()
			require.Empty(t, tr.Drops())
		})
	}
}
