// SPDX-License-Identifier: Apache-2.0

package nccl

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/internal/elf/module"
	"github.com/gpu-gadgets/gpu-gadgets/internal/elf/placement"
	"github.com/gpu-gadgets/gpu-gadgets/internal/ig/attachpoint"
	"github.com/gpu-gadgets/gpu-gadgets/test/support/bpftest"
	"github.com/gpu-gadgets/gpu-gadgets/test/support/simulated"
	"github.com/gpu-gadgets/gpu-gadgets/test/support/subject"
)

const rcclScript = `
import ctypes, sys
from ctypes import byref, c_int, c_size_t, c_void_p
hip, rccl = ctypes.CDLL(sys.argv[1], ctypes.RTLD_GLOBAL), ctypes.CDLL(sys.argv[2])
class Id(ctypes.Structure):
    _fields_ = [("internal", ctypes.c_char * 128)]
stream, comm, id_ = c_void_p(), c_void_p(), Id()
print("ready", flush=True)
sys.stdin.readline()
hip.hipSetDevice(1)
hip.hipStreamCreate(byref(stream))
rccl.ncclGetUniqueId(byref(id_))
rccl.ncclCommInitRankMulti.argtypes = [c_void_p, c_int, Id, c_int, c_int]
assert rccl.ncclCommInitRankMulti(byref(comm), 1, id_, 0, 0) == 0
for _ in range(3):
    assert rccl.ncclAllReduce(None, None, c_size_t(100), 7, 0, comm, stream) == 0
for _ in range(2):
    assert rccl.ncclAllToAll(None, None, c_size_t(10), 7, comm, stream) == 0
assert rccl.ncclAllToAllv(None, None, None, None, None, None, 7, comm, stream) == 0
hip.hipStreamSynchronize(stream)
assert rccl.ncclAllReduce(None, None, c_size_t(100), 7, 0, comm, stream) == 0
print("issued", flush=True)
sys.stdin.readline()
a, b = ctypes.create_string_buffer(8), ctypes.create_string_buffer(8)
def copy(size, kind):
    assert hip.hipMemcpyWithStream(a, b, c_size_t(size), kind, stream) == 0
copy(8, 3) # between devices
copy(8, 4) # which HIP derives from the addresses
copy(0, 2)
print("copied", flush=True)
sys.stdin.readline()
copy(8, 2)
print("waited", flush=True)
sys.stdin.readline()
assert rccl.ncclAllReduce(None, None, c_size_t(100), 7, 0, comm, stream) == 0
hip.hipDeviceSynchronize()
print("synchronized", flush=True)
sys.stdin.readline()
`

// TestCallsOfRCCL: AMD's functions beside NCCL's; HIP's waits say what is done.
func TestCallsOfRCCL(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		t.Skip("HIP is for x86-64")
	}
	dir := t.TempDir()
	hip, rccl := simulated.Copy(t, dir, "simhip", "libamdhip64.so.6"), simulated.Copy(t, dir, "simnccl", "librccl.so.1")
	tr := start(t, map[string]string{"libamdhip64": hip, "librccl": rccl}, options{})
	cmd := exec.Command("python3", "-c", rcclScript, hip, rccl)
	cmd.Env = append(os.Environ(), "SIMNCCL_DIR="+dir)
	p := subject.Start(t, cmd)
	require.Equal(t, "ready", p.Line())
	require.Equal(t, "issued", p.Request(""))
	all := tr.communicators()
	require.Len(t, all, 1)
	require.EqualValues(t, []int32{0, 1, 1}, []int32{all[0].Rank, all[0].Size, all[0].Device})
	require.EqualValues(t, []uint64{7, 6}, []uint64{all[0].Seq, all[0].DoneSeq}, "the last one was not waited for")
	require.False(t, all[0].Late)
	require.Equal(t, "copied", p.Request(""))
	require.EqualValues(t, 6, tr.communicators()[0].DoneSeq, "these copies do not wait")
	require.Equal(t, "waited", p.Request(""))
	require.EqualValues(t, 7, tr.communicators()[0].DoneSeq, "PyTorch waits in a copy to the host")
	require.Equal(t, "synchronized", p.Request(""))
	require.EqualValues(t, 8, tr.communicators()[0].DoneSeq)
	calls, elements := map[string]int{}, map[string]uint64{}
	for _, e := range tr.settled() {
		if e.What == "issued" {
			calls[e.Op]++
			elements[e.Op] += e.Count
		}
	}
	require.Equal(t, map[string]int{"AllReduce": 5, "AlltoAll": 3}, calls)
	require.Equal(t, map[string]uint64{"AllReduce": 500, "AlltoAll": 20}, elements, "the counts of ncclAllToAllv are not read")
	p.Say("")
	p.Wait()
	require.Empty(t, tr.drops())
}

// TestRealRCCLHasTheTable: every function of Debian's library resolves, but for those that came
// later, and probes are placed where they are cheap.
func TestRealRCCLHasTheTable(t *testing.T) {
	found, _ := filepath.Glob("../../../build/fixtures/librccl/root/usr/lib/*/librccl.so.*.*")
	if len(found) == 0 {
		t.Skip("no build/fixtures/librccl: run test/support/fixtures/librccl.sh")
	}
	points, err := attachpoint.Parse(bpftest.Spec(t, source, "-mcpu=v3").Maps[".rodata.attach"])
	require.NoError(t, err)
	symbols, err := symbolsOf(found[0])
	require.NoError(t, err)
	f, err := os.Open(found[0])
	require.NoError(t, err)
	defer f.Close()
	st, err := f.Stat()
	require.NoError(t, err)
	m, err := module.Open(f, st.Size())
	require.NoError(t, err)
	var missing []string
	there, offsets := 0, map[uint64]int{}
	for _, p := range points {
		if p.Library != "librccl" || !strings.HasPrefix(p.Symbol, "nccl") {
			continue
		}
		if symbols[p.Symbol] == 0 {
			missing = append(missing, p.Symbol)
			continue
		}
		there++
		require.Zero(t, symbols["p"+p.Symbol], "this version has one name for each")
		code, err := m.Code(symbols[p.Symbol], placement.Window)
		require.NoError(t, err)
		offsets[placement.Offset(m.Machine(), code)]++
	}
	t.Logf("%s: %d functions, by the offset of the probe %v, without %s", found[0], there, offsets, strings.Join(missing, ", "))
	require.Greater(t, offsets[4], there/2, "most begin with an instruction that would be stepped")
	require.ElementsMatch(t, []string{"ncclAlltoAll", "ncclMemAlloc", "ncclMemFree", "ncclCommInitRankConfig", "ncclCommInitRankScalable",
		"ncclCommSplit", "ncclCommShrink", "ncclCommFinalize", "ncclGroupSimulateEnd"}, missing)
}
