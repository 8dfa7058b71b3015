// SPDX-License-Identifier: Apache-2.0

// Package drivercalls tests the simulated runtime: its behaviour for programs, and the
// driver calls that it makes.
package drivercalls

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/examples/simcuda/counts"
	"github.com/gpu-gadgets/gpu-gadgets/examples/simcuda/journal"
	"github.com/gpu-gadgets/gpu-gadgets/test/support/simulated"
)

// scenario runs one scenario of the C test, and gives the driver's calls and journal.
func scenario(t *testing.T, name string) (counts.Counts, *journal.Journal) {
	t.Helper()
	runtime, driver, out := simulated.Build(t, "simcudart"), filepath.Dir(simulated.Driver(t)), t.TempDir()
	cmd := exec.Command(filepath.Join(runtime, "runtime_test"), name)
	cmd.Env = append(os.Environ(), "LD_LIBRARY_PATH="+runtime+":"+driver, "SIMCUDA_COUNTS="+out,
		"SIMCUDA_JOURNAL="+out, "SIMCUDA_INIT_MS=0", "SIMCUDA_DEVICES=2", "SIMCUDA_FAIL_EVERY=", "SIMCUDA_CAPACITY=")
	text, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", text)
	calls, err := counts.Read(out, cmd.Process.Pid)
	require.NoError(t, err)
	journals, err := journal.ReadDir(out)
	require.NoError(t, err)
	require.Len(t, journals, 1)
	return calls, journals[0]
}

// only leaves the counts of some functions, with 0 for those that were not called.
func only(calls counts.Counts, want counts.Counts) counts.Counts {
	some := counts.Counts{}
	for name := range want {
		some[name] = calls[name]
	}
	return some
}

func TestFirstLaunchLoadsAndLaterOnesOnlyLaunch(t *testing.T) {
	calls, j := scenario(t, "launches")
	want := counts.Counts{"cuLaunchKernel": 11, "cuLibraryLoadData": 1, "cuLibraryGetModule": 2,
		"cuModuleGetFunction": 2, "cuCtxPushCurrent_v2": 2, "cuCtxPopCurrent_v2": 2, "cuFuncGetAttribute": 16,
		"cuModuleLoadData": 0, "cuLaunchKernelEx": 0}
	require.Equal(t, want, only(calls, want))
	var order []string
	for _, r := range j.Records {
		switch api := j.APIs[r.API]; api {
		case "cuLibraryLoadData", "cuCtxPushCurrent_v2", "cuCtxPopCurrent_v2", "cuModuleGetFunction", "cuLaunchKernel":
			order = append(order, api)
		}
	}
	require.Equal(t, []string{"cuLibraryLoadData", "cuCtxPushCurrent_v2", "cuCtxPopCurrent_v2",
		"cuModuleGetFunction", "cuLaunchKernel", "cuLaunchKernel"}, order[:6])
}

func TestDeviceIsQueriedFromTheDriverEachTime(t *testing.T) {
	calls, _ := scenario(t, "devices")
	require.GreaterOrEqual(t, calls["cuCtxGetDevice"], uint64(1000))
	require.LessOrEqual(t, calls["cuCtxGetDevice"], uint64(1010))
}

func TestMemoryKeepsWhatIsCopiedThere(t *testing.T) {
	calls, j := scenario(t, "memory")
	want := counts.Counts{"cuMemcpyHtoD_v2": 1, "cuMemcpyDtoDAsync_v2": 1, "cuMemcpyDtoHAsync_v2": 1,
		"cuMemcpyDtoH_v2": 1, "cuMemsetD8_v2": 1, "cuMemAlloc_v2": 3, "cuMemFree_v2": 3}
	require.Equal(t, want, only(calls, want))
	summary, err := journal.Summarize([]*journal.Journal{j})
	require.NoError(t, err)
	for _, key := range summary.Keys() {
		require.Zero(t, summary.Rows[key].InUseBytes(), "%+v", key)
	}
}

func TestGraphsAndHostFunctions(t *testing.T) {
	calls, _ := scenario(t, "graphs")
	want := counts.Counts{"cuLaunchKernel": 2, "cuGraphLaunch": 1, "cuLaunchHostFunc": 1}
	require.Equal(t, want, only(calls, want))
}

func TestProductsOfMatricesAreLaunches(t *testing.T) {
	calls, _ := scenario(t, "products")
	want := counts.Counts{"cuLaunchKernel": 2, "cuLaunchKernelEx": 2, "cuFuncGetAttribute": 27}
	require.Equal(t, want, only(calls, want))
}
