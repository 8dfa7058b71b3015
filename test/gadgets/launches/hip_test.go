// SPDX-License-Identifier: Apache-2.0

package launches

import (
	"os/exec"
	"runtime"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/test/support/simulated"
	"github.com/gpu-gadgets/gpu-gadgets/test/support/subject"
	"github.com/gpu-gadgets/gpu-gadgets/test/support/tracer"
)

// hipLibrary is a simulated libamdhip64 of this test alone.
func hipLibrary(t *testing.T) string {
	t.Helper()
	if runtime.GOARCH != "amd64" {
		t.Skip("HIP is for x86-64")
	}
	return simulated.Copy(t, t.TempDir(), "simhip", "libamdhip64.so.6")
}

// TestEveryCallOfHIP is TestEveryCall for hip_kernel: each function of its table.
func TestEveryCallOfHIP(t *testing.T) {
	lib, dir := hipLibrary(t), t.TempDir()
	calls := number(t, subject.Volume(15000, 40000))
	g := startHIP(t, lib, tracer.Options{Edit: withRoom(calls)}, map[string]any{"events": true})
	ring := g.follow()
	workload(t, lib, dir, func() {
		tr := readTruth(t, dir)
		g.requireRows(tr)
		g.requireEvents(tr, ring.stop())
	}, []string{"SIMHIP_FAIL_EVERY=97", "SIMHIP_DEVICES=2"}, "--calls", strconv.Itoa(calls))
	require.Empty(t, g.Drops())
}

const hipPrelude = `
import ctypes, sys
from ctypes import c_char_p, c_size_t, c_uint64
hip = ctypes.CDLL(sys.argv[1])
class Dim3(ctypes.Structure):
    _fields_ = [(n, ctypes.c_uint) for n in "xyz"]
def register(handle, name):
    getattr(hip, "__hipRegisterFunction")(None, c_uint64(handle), c_char_p(name), c_char_p(name), 0, None, None, None, None, None)
def launch(handle):
    return hip.hipLaunchKernel(c_uint64(handle), Dim3(4, 1, 1), Dim3(64, 1, 1), None, c_size_t(0), c_uint64(0))
`

// launchedHIP is how often each kernel was, by the name that is known of it.
func (g *gadget) launchedHIP() map[string]uint64 {
	all := map[string]uint64{}
	for _, row := range g.rows() {
		name, _, ok := g.name(row.Function)
		if !ok && row.Function&stub != 0 {
			name = "handle " + strconv.FormatUint(row.Function&^stub, 16)
		}
		all[name] += row.Calls
	}
	return all
}

// TestKernelsThatAProgramRegisters: a name is that of the last registration at a handle; kernels
// registered before attach have their handle.
func TestKernelsThatAProgramRegisters(t *testing.T) {
	lib := hipLibrary(t)
	cmd := exec.Command("python3", "-c", hipPrelude+`
first, second = b"_Z5firstv", b"_Z6secondv"
register(0x5000, b"before")
print("ready", flush=True)
sys.stdin.readline()
launch(0x5000)
register(0x6000, first)
launch(0x6000)
launch(0x6000)
register(0x6000, second) # of another library, at the same address
launch(0x6000)
`, lib)
	var g *gadget
	hold(t, cmd, func(string) { g = startHIP(t, lib, tracer.Options{}, nil) })
	require.Equal(t, map[string]uint64{"handle 5000": 1, "_Z5firstv": 2, "_Z6secondv": 1}, g.launchedHIP())
	require.Empty(t, g.Drops())
}

// TestAllKernelsThatATorchrunRegistersHaveNames: its processes, of one container, register those of all architectures when
// they import PyTorch, within about a second.
func TestAllKernelsThatATorchrunRegistersHaveNames(t *testing.T) {
	lib := hipLibrary(t)
	cmd := exec.Command("python3", "-c", hipPrelude+`
print("ready", flush=True)
sys.stdin.readline()
call, name, none = getattr(hip, "__hipRegisterFunction"), c_char_p(b"_Z6kernelv"), None
for handle in range(0x100000, 0x100000 + 16 * 256000, 16):
    call(none, c_uint64(handle), name, name, 0, none, none, none, none, none)
for n in range(0, 256000, 1000):
    launch(0x100000 + 16 * n)
`, lib)
	var g *gadget
	hold(t, cmd, func(string) { g = startHIP(t, lib, tracer.Options{}, nil) })
	require.Equal(t, map[string]uint64{"_Z6kernelv": 256}, g.launchedHIP())
	require.Empty(t, g.Drops())
}
