// SPDX-License-Identifier: Apache-2.0

// Package mix compares the small simulated workloads with reality: they must call every
// function that gadgets probe and that a training step of real PyTorch calls all the
// time. Otherwise a test or a benchmark on them would not cover its cost.
package mix

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/examples/simcuda/counts"
	"github.com/gpu-gadgets/gpu-gadgets/internal/ig/attachpoint"
	"github.com/gpu-gadgets/gpu-gadgets/test/support/bpftest"
	"github.com/gpu-gadgets/gpu-gadgets/test/support/simulated"
)

// frequent functions of the driver are called at least once in a training step.
const frequent = 1

// requests is how many steps the workloads make.
const requests = 5

func TestSmallWorkloadsCallWhatRealPyTorchCalls(t *testing.T) {
	real := step(t)
	probed := probedFunctions(t)
	var wanted []string
	for name, calls := range real {
		if probed[name] && calls >= frequent {
			wanted = append(wanted, name)
		}
	}
	slices.Sort(wanted)
	require.Contains(t, wanted, "cuCtxGetDevice")
	require.Contains(t, wanted, "cuLaunchKernel")

	driver := filepath.Dir(simulated.Driver(t))
	for name, cmd := range map[string]*exec.Cmd{
		"examples/torch": exec.Command("python3", "examples/torch/serve.py"),
		"examples/inference": exec.Command("python3", "examples/inference/inference.py", "--devices", "1",
			"--seconds", "2", "--rate", "20"),
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			cmd.Dir = simulated.Root()
			cmd.Env = append(os.Environ(), "SIMCUDA_COUNTS="+dir,
				"LD_LIBRARY_PATH="+driver+":"+simulated.Build(t, "simtorch"))
			cmd.Stdin = strings.NewReader(strings.Repeat("\n", requests))
			out, err := cmd.CombinedOutput()
			require.NoError(t, err, string(out))
			calls := countsIn(t, dir)
			launches := calls["cuLaunchKernel"] + calls["cuLaunchKernelEx"]
			require.GreaterOrEqual(t, launches, uint64(requests))
			for _, f := range wanted {
				// In relation to launches, which a step of each workload has another number of.
				have := float64(calls[f]) / float64(launches)
				want := real[f] / (real["cuLaunchKernel"] + real["cuLaunchKernelEx"])
				t.Logf("%s: %.3f a launch, %.3f in PyTorch", f, have, want)
				require.GreaterOrEqual(t, have, want/4, "%s: the real software calls it far more often", f)
			}
		})
	}
}

// step is the recorded step of real PyTorch: calls by function.
func step(t *testing.T) map[string]float64 {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(simulated.Root(), "examples/pytorch/step.json"))
	require.NoError(t, err)
	var recorded struct{ Calls map[string]float64 }
	require.NoError(t, json.Unmarshal(b, &recorded))
	return recorded.Calls
}

// probedFunctions are those of the driver that any gadget probes, always or on demand.
func probedFunctions(t *testing.T) map[string]bool {
	t.Helper()
	probed := map[string]bool{}
	for _, gadget := range []string{"cuda_alloc", "cuda_kernel", "nccl_trace"} {
		source := filepath.Join(simulated.Root(), "gadgets", gadget, "program.bpf.c")
		points, err := attachpoint.Parse(bpftest.Spec(t, source, "-mcpu=v3").Maps[".rodata.attach"])
		require.NoError(t, err)
		for _, p := range points {
			if p.Library == "libcuda" {
				probed[p.Symbol] = true
			}
		}
	}
	return probed
}

// countsIn adds up the calls of a workload's processes.
func countsIn(t *testing.T, dir string) counts.Counts {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.counts"))
	require.NoError(t, err)
	require.NotEmpty(t, files)
	sum := counts.Counts{}
	for _, file := range files {
		pid, err := strconv.Atoi(strings.TrimSuffix(filepath.Base(file), ".counts"))
		require.NoError(t, err)
		calls, err := counts.Read(dir, pid)
		require.NoError(t, err)
		for name, n := range calls {
			sum[name] += n
		}
	}
	return sum
}
