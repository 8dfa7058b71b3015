// SPDX-License-Identifier: Apache-2.0

package budget

import (
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/examples/simcuda/counts"
	"github.com/gpu-gadgets/gpu-gadgets/test/support/simulated"
	"github.com/gpu-gadgets/gpu-gadgets/test/support/subject"
)

// TestPyTorchIsWithinItsBudget: probes would take about ten percent of the CPU time of a
// training step of real PyTorch; with the budget they take one percent of a thread once it has
// adapted. The launches of each process are within the stated error, two standard deviations,
// of the simulated driver's own count in 95 of 100 cases, and the estimates are right on
// average.
func TestPyTorchIsWithinItsBudget(t *testing.T) {
	const percent = 1.0
	const runs, seconds, least = 100, 5.0, 95
	if os.Getenv(long) == "" {
		t.Skipf("%s is not set: it takes ten minutes", long)
	}
	dir, counted := t.TempDir(), t.TempDir()
	simulated.Copy(t, dir, "simcuda", "libcuda.so.1")
	cmd := simulated.PyTorch(t, filepath.Join(simulated.Root(), "test/gadgets/budget/testdata/steps.py"))
	cmd.Env = append(os.Environ(), "LD_LIBRARY_PATH="+dir, "SIMCUDA_COUNTS="+counted)
	p := subject.Start(t, cmd)
	p.Expect("ready")
	g := start(t, percent, p.PID())
	run := func(seconds float64) int {
		pid, err := strconv.Atoi(p.Request("%g", seconds))
		require.NoError(t, err)
		return pid
	}
	// The first half of a long run is for the number of slots to settle in.
	first := time.AfterFunc(12*time.Second, func() { g.half = g.allSpent() })
	defer first.Stop()
	pid := run(24)
	require.Greater(t, g.budget.State().Slots, uint32(1), "it costs more than the budget, and nothing became cheaper")
	state := g.budget.State()
	share := g.share(pid) * state.Scale
	t.Logf("the probes took %.2f %% of the CPU time of the thread that pays most; attached 1 part of %d of the time",
		100*share, g.budget.State().Slots)
	require.Less(t, share, 1.5*percent/100)

	var all []estimate
	for range runs {
		pid := run(seconds)
		calls, err := counts.Read(counted, pid)
		require.NoError(t, err)
		e := g.launchesOf(pid)
		e.truth = calls[launchAPI]
		all = append(all, e)
	}
	require.GreaterOrEqual(t, describe(t, "launches", all), least)
	var sum float64
	for _, e := range all {
		sum += float64(e.value) / float64(e.truth)
	}
	require.InDelta(t, 1, sum/runs, 0.1)
	require.Less(t, typical(all), 1.0, "an error as large as what it is about says nothing")
}

// launchesOf returns the launches of a process, by the totals.
func (g *gadget) launchesOf(pid int) (e estimate) {
	g.t.Helper()
	for _, total := range g.totals() {
		if total.Proc.PID == uint32(pid) && text(total.API[:]) == launchAPI {
			e.value += total.Calls
			e.err += total.CallsError // kernels have their windows in common
		}
	}
	return e
}

// share returns the share of CPU time that the probes took, in the second half, in the
// most affected thread of a process.
func (g *gadget) share(pid int) (most float64) {
	g.t.Helper()
	var paid uint64
	for id, s := range g.allSpent() {
		was := g.half[id]
		if cost := s.CostNS - was.CostNS; id>>32 == uint64(pid) && cost > paid {
			paid, most = cost, float64(cost)/float64(s.CPUNS-was.CPUNS)
		}
	}
	return most
}

// allSpent returns the cost of the probes for each thread, by its process and its id.
func (g *gadget) allSpent() map[uint64]sum {
	g.t.Helper()
	threads := map[uint64]sum{}
	var id uint64
	var s sum
	all := g.Maps["budget_by_thread"].Iterate()
	for all.Next(&id, &s) {
		threads[id] = s
	}
	require.NoError(g.t, all.Err())
	return threads
}
