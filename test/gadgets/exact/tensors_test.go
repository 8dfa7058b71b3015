// SPDX-License-Identifier: Apache-2.0

package exact

import (
	"encoding/binary"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/test/support/compare"
	"github.com/gpu-gadgets/gpu-gadgets/test/support/simulated"
	"github.com/gpu-gadgets/gpu-gadgets/test/support/subject"
	"github.com/gpu-gadgets/gpu-gadgets/test/support/tracer"
)

// pool is struct torch_pool of bpf/torch/torch.h.
type pool struct {
	Allocated, Reserved, PeakAllocated, PeakReserved uint64
	OutBytes, OutBlocks, BackBytes, BackBlocks       uint64
	BeforeBytes, BeforeBlocks, OOMs                  uint64
	HasTotals, FollowedBlocks, FollowedNS            uint64
	RequestedBlocks, RequestedBytes                  uint64
	RoundingBytes, OddBlocks                         uint64
}

// eachPool calls f with the device of each process's pools.
func eachPool(t *testing.T, tr *tracer.Tracer, f func(device int32, p pool)) {
	t.Helper()
	var key struct {
		Process uint64
		Device  int32
		Pad     uint32
	}
	var value pool
	it := tr.Maps["torch_pools"].Iterate()
	for it.Next(&key, &value) {
		f(key.Device, value)
	}
	require.NoError(t, it.Err())
}

// pools of a single process, by device.
func pools(t *testing.T, tr *tracer.Tracer) map[int32]pool {
	t.Helper()
	all := map[int32]pool{}
	eachPool(t, tr, func(device int32, p pool) { all[device] = p })
	return all
}

// tensors starts the tracer on the simulated driver and PyTorch's simulated allocator
// of a version, and gives the command of a random workload on them.
func tensors(t *testing.T, version string, calls int) (tr *tracer.Tracer, dir string, cmd *exec.Cmd) {
	t.Helper()
	libraries := t.TempDir()
	dir = t.TempDir()
	lib := simulated.Copy(t, libraries, "simcuda", "libcuda.so.1")
	cuda := simulated.Copy(t, libraries, "simtorch", filepath.Join(version, "libc10_cuda.so"))
	c10 := simulated.Copy(t, libraries, "simtorch", filepath.Join(version, "libc10.so"))
	tr = tracer.Start(t, lib, tracer.Options{Offset: 10})
	tr.AttachTorch(c10)
	cmd = exec.Command("python3", "tensors.py", "--c10-cuda", cuda, "--out", dir,
		"--calls", strconv.Itoa(calls), "--hold")
	cmd.Env = append(os.Environ(), "LD_LIBRARY_PATH="+libraries, "SIMTORCH_JOURNAL="+dir)
	return tr, dir, cmd
}

// TestTensorsOfROCmAreExact: they report another type of device.
func TestTensorsOfROCmAreExact(t *testing.T) {
	libraries, dir := t.TempDir(), t.TempDir()
	lib := simulated.Copy(t, libraries, "simhip", "libamdhip64.so.6")
	pool := simulated.Copy(t, libraries, "simtorch", "hip/libc10_hip.so")
	c10 := simulated.Copy(t, libraries, "simtorch", "hip/libc10.so")
	tr := tracer.StartHIP(t, lib, tracer.Options{})
	tr.AttachTorch(c10)
	cmd := exec.Command("python3", "tensors.py", "--c10-cuda", pool, "--out", dir, "--calls", "4000", "--hold")
	cmd.Env = append(os.Environ(), "LD_LIBRARY_PATH="+libraries, "SIMTORCH_JOURNAL="+dir)
	hold(t, cmd, func() {
		want, all := expected(t, dir, false), got(tr.Rows())
		t.Logf("%d rows, %+v", len(want), compare.Total(want))
		requireEqual(t, "alive, by stack", want, kinds(all, true))
		inuse := map[int32]int64{}
		for _, r := range want {
			inuse[r.Device] += r.InUseBytes
		}
		for device, p := range pools(t, tr) {
			require.EqualValues(t, inuse[device], p.Allocated)
		}
		require.Len(t, inuse, 2)
		require.Greater(t, compare.Total(kinds(all, false)).InUseBytes, compare.Total(want).InUseBytes)
	})
	requireEqual(t, "exited, by stack", expected(t, dir, true), kinds(got(tr.Rows()), true))
	require.Empty(t, tr.Drops())
}

// kinds keeps the rows of the pool, or those of the driver.
func kinds(rows []compare.Row, tensors bool) []compare.Row {
	var out []compare.Row
	for _, r := range rows {
		if (r.Kind == "tensor") == tensors {
			out = append(out, r)
		}
	}
	return out
}

// callsFrom reads how many calls a test makes from the environment.
func callsFrom(t *testing.T, name string, otherwise int) int {
	t.Helper()
	s := os.Getenv(name)
	if s == "" {
		return otherwise
	}
	n, err := strconv.Atoi(s)
	require.NoError(t, err, name)
	return n
}

func TestTensorsAreExact(t *testing.T) {
	for name, version := range map[string]string{"2": "", "1.13": "torch-1", "1.8": "torch-1.8"} {
		t.Run("PyTorch "+name, func(t *testing.T) {
			calls := callsFrom(t, "TENSOR_CALLS", subject.Volume(40000, 500000))
			if version != "" {
				calls = 4000
			}
			tr, dir, cmd := tensors(t, version, calls)
			hold(t, cmd, func() {
				want := expected(t, dir, false)
				t.Logf("%d rows, %+v", len(want), compare.Total(want))
				have := kinds(got(tr.Rows()), true)
				requireEqual(t, "alive, by process and device", withoutStacks(want), withoutStacks(have))
				requireEqual(t, "alive, by stack", want, have)
				inuse := map[int32]int64{}
				for _, r := range want {
					inuse[r.Device] += r.InUseBytes
				}
				for device, p := range pools(t, tr) {
					require.LessOrEqual(t, p.FollowedBlocks, p.OutBlocks)
					require.Greater(t, p.FollowedBlocks, p.OutBlocks/2)
					require.Greater(t, p.FollowedNS, 100*p.FollowedBlocks)
					require.Equal(t, inuse[device], int64(p.OutBytes-p.BackBytes))
					if version == "torch-1.8" {
						require.Zero(t, p.HasTotals)
						continue
					}
					require.Equal(t, inuse[device], int64(p.Allocated))
					require.Greater(t, p.Reserved, p.Allocated)
					require.GreaterOrEqual(t, p.PeakAllocated, p.Allocated)
					require.Zero(t, p.BeforeBlocks)
				}
				require.Len(t, inuse, 2)
				if version != "torch-1.8" {
					require.EqualValues(t, 1, pools(t, tr)[0].OOMs)
				}

				// The pool's segments are the driver's rows, and more than the tensors.
				driver := compare.Total(kinds(got(tr.Rows()), false))
				require.Greater(t, driver.InUseBytes, compare.Total(have).InUseBytes)
			})
			requireEqual(t, "exited, by stack", expected(t, dir, true), kinds(got(tr.Rows()), true))
			require.Empty(t, tr.Drops())
		})
	}
}

// Both layers at once, each exact to the byte by its own journal, for all ways in which
// the pool allocates from the driver: in segments, or piece by piece into reserved
// addresses (expandable segments), and with private pools of CUDA graphs.
func TestBothLayersAreExactAndDistinct(t *testing.T) {
	for name, c := range map[string]struct{ settings, kind string }{
		"segments":            {"", "device"},
		"expandable segments": {"garbage_collection_threshold:0.8,expandable_segments:True", "vmm"},
	} {
		t.Run(name, func(t *testing.T) {
			tr, dir, cmd := tensors(t, "", 20000)
			below := t.TempDir()
			cmd.Args = append(cmd.Args, "--graphs", "--trim")
			cmd.Env = append(cmd.Env, "PYTORCH_CUDA_ALLOC_CONF="+c.settings, "SIMCUDA_JOURNAL="+below)
			hold(t, cmd, func() {
				want := expected(t, dir, false)
				requireEqual(t, "tensors alive, by stack", want, kinds(got(tr.Rows()), true))
				driver := expectedOf(t, below, dir, false)
				requireEqual(t, "the driver's memory alive, by stack", driver, kinds(got(tr.Rows()), false))
				total := compare.Total(driver)
				t.Logf("tensors %+v\nof the driver's %+v", compare.Total(want), total)
				require.Greater(t, total.FreedObjects, int64(10), "nothing was given back to the driver")
				for _, r := range driver {
					require.Contains(t, []string{c.kind, "context"}, r.Kind)
				}
				var allocated, reserved uint64
				for _, p := range pools(t, tr) {
					allocated, reserved = allocated+p.Allocated, reserved+p.Reserved
				}
				require.EqualValues(t, compare.Total(want).InUseBytes, allocated)
				require.EqualValues(t, total.InUseBytes, reserved, "what the pool counts is what the driver gave")
			})
			requireEqual(t, "tensors exited, by stack", expected(t, dir, true), kinds(got(tr.Rows()), true))
			requireEqual(t, "the driver's memory exited, by stack", expectedOf(t, below, dir, true), kinds(got(tr.Rows()), false))
			require.Empty(t, tr.Drops())
		})
	}
}

// Sums of sampled blocks are estimates whose error is stated: with a mean distance of m
// bytes the variance of a sum over blocks of s bytes is Σ s² (1 − p)/p, which is less than
// m Σ s, as (1 − p)/p = 1/(e^(s/m) − 1) < m/s. Two standard deviations are stated
// (error_bytes); four are exceeded once in 16,000 runs.
func TestSampledTensorsAreUnbiased(t *testing.T) {
	const mean = 1 << 20
	runs := callsFrom(t, "TENSOR_RUNS", 5)
	tr, dir, first := tensors(t, "", 8000)
	value := make([]byte, 8)
	binary.NativeEndian.PutUint64(value, mean)
	require.NoError(t, tr.Maps["torch_sampling"].Update(uint32(0), value, ebpf.UpdateAny))

	inside, deviations, last := 0, 0.0, uint64(0)
	within := func(name string, want, have int64) {
		sigma := math.Sqrt(float64(want) * mean)
		off := float64(have-want) / sigma
		t.Logf("%s: %d estimated, %d true, off by %.2f standard deviations", name, have, want, off)
		require.Less(t, math.Abs(off), 4.0, name)
		if math.Abs(off) <= 2 {
			inside++
		}
		deviations += off
	}
	for seed := range runs {
		cmd := exec.Command(first.Path, append(first.Args[1:], "--seed", strconv.Itoa(seed+1))...)
		cmd.Env = first.Env
		hold(t, cmd, func() {
			pid := uint32(cmd.Process.Pid)
			ofRun := func(rows []compare.Row) compare.Counts {
				return compare.Total(slices.DeleteFunc(rows, func(r compare.Row) bool { return r.PID != pid }))
			}
			want := ofRun(expected(t, dir, false))
			have := ofRun(kinds(got(tr.Rows()), true))
			var out uint64
			eachPool(t, tr, func(_ int32, p pool) { out += p.OutBytes })
			require.EqualValues(t, want.AllocBytes, out-last, "the pool's own sums are not sampled")
			require.NotEqual(t, want.AllocBytes, have.AllocBytes, "nothing was sampled")
			last = out
			within("allocated", want.AllocBytes, have.AllocBytes)
			within("in use", want.InUseBytes, have.InUseBytes)
		})
	}
	sums := float64(2 * runs)
	t.Logf("%d of %.0f sums are within the error that is stated; off by %.2f standard deviations in the mean",
		inside, sums, deviations/sums)
	require.GreaterOrEqual(t, float64(inside), math.Floor(0.9*sums))
	// The two sums of a run are not independent: as if there were one of each.
	require.Less(t, math.Abs(deviations/sums), 4/math.Sqrt(float64(runs)))

	have := compare.Total(kinds(got(tr.Rows()), true))
	require.Zero(t, have.InUseBytes)
	require.Equal(t, have.AllocObjects, have.FreedObjects+have.ImplicitObjects)
	require.Empty(t, tr.Drops())
}
