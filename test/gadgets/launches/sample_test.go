// SPDX-License-Identifier: Apache-2.0

package launches

import (
	"math"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/examples/simcuda/journal"
	"github.com/gpu-gadgets/gpu-gadgets/test/support/simulated"
	"github.com/gpu-gadgets/gpu-gadgets/test/support/tracer"
)

// sampled runs sampling.py and calls `held` when it is done.
func sampled(t *testing.T, library, dir string, runs, calls int, held func()) {
	t.Helper()
	cmd := exec.Command("python3", "sampling.py", library, strconv.Itoa(runs), strconv.Itoa(calls))
	cmd.Env = append(os.Environ(), "SIMCUDA_JOURNAL="+dir)
	hold(t, cmd, func(string) { held() })
}

const (
	launchAPI = "cuLaunchKernel"
	copyAPI   = "cuMemcpyHtoDAsync_v2"
	backAPI   = "cuMemcpyDtoHAsync_v2" // few of which are nearly all of the bytes
)

// copied returns the bytes that each run of sampling.py copied with each function, by the
// journal: its copies follow the name of its kernel.
func copied(t *testing.T, dir string) (bytes []map[string]uint64) {
	t.Helper()
	journals, err := journal.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, journals, 1)
	for _, r := range journals[0].Records {
		switch api := journals[0].APIName(r.API); api {
		case "cuModuleGetFunction":
			bytes = append(bytes, map[string]uint64{})
		case copyAPI, backAPI:
			bytes[len(bytes)-1][api] += r.Size
		}
	}
	return bytes
}

// TestSamplesAreWithinTheReportedError: for 100 runs, the calls, bytes and time of each,
// estimated from one stack in eight, are within two standard deviations, as reported by the
// row, at least nine times of ten (95 of 100 are expected); totals of all calls are exact.
func TestSamplesAreWithinTheReportedError(t *testing.T) {
	const runs, calls = 100, 1000
	lib, dir := simulated.DriverCopy(t), t.TempDir()
	g := start(t, lib, tracer.Options{Offset: 10}, map[string]any{"sample": uint32(8)})
	sampled(t, lib, dir, runs, calls, func() {
		bytes := copied(t, dir)
		require.Len(t, bytes, runs)
		hostNS, total := map[uint64]uint64{}, map[string][2]uint64{}
		for _, row := range g.totals() {
			api := text(row.API[:])
			total[api] = [2]uint64{total[api][0] + row.Calls, total[api][1] + row.Bytes}
			if api == launchAPI {
				require.EqualValues(t, calls, row.Calls)
				hostNS[row.Function] = row.HostNS
			}
		}
		require.Equal(t, [2]uint64{runs * calls, 0}, total[launchAPI])
		for _, api := range []string{copyAPI, backAPI} {
			var all uint64
			for _, run := range bytes {
				all += run[api]
			}
			require.Equal(t, [2]uint64{runs * calls, all}, total[api])
		}

		within, estimates, drawn := 0, 0, uint64(0)
		by := map[string]int{}
		check := func(of string, estimate, err, truth uint64) {
			estimates++
			if math.Abs(float64(estimate)-float64(truth)) <= float64(err) {
				within++
				by[of]++
			}
		}
		for _, row := range g.rows() {
			stack := g.python(row.StackID)
			switch api := text(row.API[:]); {
			case api == launchAPI:
				require.InDelta(t, calls, row.Calls, calls/2)
				check("calls", row.Calls, row.CallsError, calls)
				check("time", row.HostNS, row.HostNSError, hostNS[row.Function])
				drawn += row.Sampled
			case api == copyAPI || api == backAPI:
				run, err := strconv.Atoi(strings.TrimPrefix(strings.Fields(stack)[0], "run_"))
				require.NoError(t, err, stack)
				check("bytes of "+api, row.Bytes, row.BytesError, bytes[run][api])
			}
		}
		t.Logf("%d of %d estimates are within two standard deviations, of %d each: %v; %d stacks of %d launches", within, estimates, runs, by, drawn, runs*calls)
		require.Equal(t, 4*runs, estimates)
		require.GreaterOrEqual(t, within, estimates*9/10)
		require.Len(t, by, 4)
		for of, within := range by { // by chance, 85 of what is 94 on average are one in 2000
			require.GreaterOrEqual(t, within, runs*85/100, "of %s", of)
		}
		require.Less(t, drawn, uint64(runs*calls/3))
	})
	require.Empty(t, g.Drops())
}

// TestSampleFollowsTheBudget: with a tiny budget fewer stacks are taken, and the estimate
// over all of them is still right.
func TestSampleFollowsTheBudget(t *testing.T) {
	const runs, calls = 20, 5000
	lib, dir := simulated.DriverCopy(t), t.TempDir()
	g := start(t, lib, tracer.Options{Offset: 10}, map[string]any{"sample": uint32(0), "sample_budget": uint32(10)})
	sampled(t, lib, dir, runs, calls, func() {
		var estimate, drawn, variance float64
		for _, row := range g.rows() {
			if text(row.API[:]) == launchAPI {
				estimate += float64(row.Calls)
				drawn += float64(row.Sampled)
				variance += math.Pow(float64(row.CallsError)/2, 2)
			}
		}
		t.Logf("%.0f calls estimated from %.0f stacks, ± %.0f; %d were made", estimate, drawn, 2*math.Sqrt(variance), runs*calls)
		require.Less(t, drawn, runs*calls/2.0)
		require.InDelta(t, runs*calls, estimate, 6*math.Sqrt(variance)+1)
	})
	require.Empty(t, g.Drops())
}
