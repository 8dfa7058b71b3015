// SPDX-License-Identifier: Apache-2.0

package nccl

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/internal/ig/attachpoint"
	"github.com/gpu-gadgets/gpu-gadgets/operators/decode/nccl"
	"github.com/gpu-gadgets/gpu-gadgets/test/support/bpftest"
)

// variable has the paths of real libraries: `make test-nccl` fetches them, 600 MB.
const variable = "NCCL_LIBRARIES"

// missing are the functions that were added later.
var missing = map[string][]string{
	"NCCL 2.22.3": {"ncclAlltoAll", "ncclGather", "ncclScatter", "ncclCommInitRankScalable", "ncclCommShrink"},
	"NCCL 2.29.7": nil,
}

func realLibraries(t *testing.T) []string {
	paths := strings.Fields(os.Getenv(variable))
	if len(paths) == 0 {
		t.Skipf("%s is not set: make test-nccl sets it", variable)
	}
	return paths
}

// TestRealLibrariesHaveTheTable: every function resolves or is reported as missing, both
// names of one have the same address, and the fields of communicators are found.
func TestRealLibrariesHaveTheTable(t *testing.T) {
	points, err := attachpoint.Parse(bpftest.Spec(t, source, "-mcpu=v3").Maps[".rodata.attach"])
	require.NoError(t, err)
	var wanted []string
	for _, p := range points {
		if p.Library == "libnccl" && strings.HasPrefix(p.Symbol, "nccl") {
			wanted = append(wanted, p.Symbol)
		}
	}
	for _, path := range realLibraries(t) {
		f, err := os.Open(path)
		require.NoError(t, err)
		defer f.Close()
		st, err := f.Stat()
		require.NoError(t, err)
		library, err := nccl.Inspect(f, st.Size(), wanted)
		require.NoError(t, err)
		t.Logf("%s: %s, %d functions", path, library, library.Has)
		require.Contains(t, missing, library.String(), "a version that this test does not know")
		require.ElementsMatch(t, missing[library.String()], library.Missing)
		require.NoError(t, library.Layout())
		symbols, err := symbolsOf(path)
		require.NoError(t, err)
		for _, name := range wanted {
			require.Equal(t, symbols[name], symbols["p"+name], "%s and p%s", name, name)
		}
	}
}

// calls are the functions that can be called without a GPU.
const calls = `
import ctypes, sys
lib = ctypes.CDLL(sys.argv[1])
class Id(ctypes.Structure):
    _fields_ = [("internal", ctypes.c_char * 128)]
comm, id_ = ctypes.c_void_p(), Id()
lib.ncclCommInitRank.argtypes = [ctypes.c_void_p, ctypes.c_int, Id, ctypes.c_int]
assert lib.ncclCommInitRank(ctypes.byref(comm), 1, id_, 0) != 0, "there is a GPU"
class SimInfo(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("magic", ctypes.c_uint), ("version", ctypes.c_uint), ("time", ctypes.c_float)]
info = SimInfo(ctypes.sizeof(SimInfo), 0x74685283, 22200, 0)
for prefix in ("nccl", "pnccl"):
    simulate = getattr(lib, prefix + "GroupSimulateEnd")
    assert lib.ncclGroupStart() == 0 and simulate(ctypes.byref(info)) == 0
    assert simulate(ctypes.byref(info)) == 5, "the group has ended"
    assert lib.ncclGroupStart() == 0 and simulate(ctypes.byref(SimInfo())) == 4, "not initialized: refused …"
    assert simulate(ctypes.byref(info)) == 5, "… and ended"
    assert getattr(lib, prefix + "GroupStart")() == 0
    assert getattr(lib, prefix + "GroupStart")() == 0
    assert getattr(lib, prefix + "GroupEnd")() == 0
    assert getattr(lib, prefix + "GroupEnd")() == 0
    assert getattr(lib, prefix + "AllReduce")(None, None, ctypes.c_size_t(1), 7, 0, None, None) != 0
`

// TestRealLibrariesWithoutGPU: both names of a function are counted once, and a refused
// call is not an operation.
func TestRealLibrariesWithoutGPU(t *testing.T) {
	for _, path := range realLibraries(t) {
		tr := start(t, map[string]string{"libnccl": path}, options{})
		// With the loader and the C library of its own suite, which may be newer than ours.
		dir := filepath.Dir(path)
		python, err := exec.Command("python3", "-c", "import sys; print(sys.executable)").Output()
		require.NoError(t, err)
		cmd := exec.Command(filepath.Join(dir, "ld-linux-x86-64.so.2"), "--library-path", dir,
			strings.TrimSpace(string(python)), "-c", calls, path)
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", out)
		ends := uint64(0)
		for _, s := range tr.operations() {
			require.Equal(t, "GroupEnd", s.Op, "%+v", s)
			ends += s.Calls
		}
		require.EqualValues(t, 2, ends, "outermost ends of groups")
		require.Empty(t, tr.communicators())
		require.Empty(t, tr.drops())
	}
}

// TestRealLibrariesSpeakTheRASProtocol that internal/collective/ras does: 2.28.9 and later have its
// commands and the names in its answer; those without RAS have none of it.
func TestRealLibrariesSpeakTheRASProtocol(t *testing.T) {
	for _, path := range realLibraries(t) {
		b, err := os.ReadFile(path)
		require.NoError(t, err)
		f, err := os.Open(path)
		require.NoError(t, err)
		defer f.Close()
		library, err := nccl.Inspect(f, int64(len(b)), []string{"ncclAllReduce"})
		require.NoError(t, err)
		for _, text := range []string{"client protocol ", "SERVER PROTOCOL ", "timeout ", "set format ", "NCCL_RAS_ADDR", "localhost:28028",
			`"communicators": [`, `"hash": "`, `"size": %d`, `"ranks": [`, `"rank": %d`, `"host": "%s"`, `"pid": %d`, `"collective_counts": {`, `"abort_flag": %s`,
			`"missing_ranks": [`, `"unresponsive": %s`, `"considered_dead": %s`} {
			has := bytes.Contains(b, []byte(text))
			if library.Version >= 22809 {
				require.True(t, has, "%s has no %q", library, text)
			} else if library.Version < 22400 && strings.Contains(text, "PROTOCOL") {
				require.False(t, has, "%s has %q", library, text)
			}
		}
	}
}
