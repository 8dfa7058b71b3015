// SPDX-License-Identifier: Apache-2.0

package budget

import (
	"math"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/examples/simcuda/counts"
	"github.com/gpu-gadgets/gpu-gadgets/test/simulated"
	"github.com/gpu-gadgets/gpu-gadgets/test/subject"
)

// TestPyTorchIsWithinItsBudget: of the training step of real PyTorch, of whose CPU time probes
// would take some ten percent, each thread pays one percent; and the launches of each stretch
// of time are within the stated error, two standard deviations, by the simulated driver's
// own count. 95 of 100 are to be expected; of 20, 13 or fewer are by chance one in 30,000.
func TestPyTorchIsWithinItsBudget(t *testing.T) {
	const percent = 1.0
	stretches, stretch, least := 20, 1500*time.Millisecond, 14
	if os.Getenv(long) != "" {
		stretches, least = 100, 95
	}
	dir, counted := t.TempDir(), t.TempDir()
	simulated.Copy(t, dir, "simcuda", "libcuda.so.1")
	cmd := simulated.PyTorch(t, filepath.Join(simulated.Root(), "test/bench/training.py"))
	cmd.Env = append(os.Environ(), "LD_LIBRARY_PATH="+dir, "SIMCUDA_COUNTS="+counted)
	p := subject.Start(t, cmd)
	launches := func() uint64 {
		c, err := counts.Read(counted, p.PID())
		if err != nil {
			return 0 // it has not begun
		}
		return c[launchAPI]
	}
	require.Eventually(t, func() bool { return launches() > 5000 }, time.Minute, 100*time.Millisecond)
	g := start(t, percent, p.PID())
	require.Eventually(t, func() bool { return g.budget.State().Slots > 1 }, 20*time.Second, 100*time.Millisecond)
	time.Sleep(5 * time.Second) // until the number of slots has settled

	spent, began := g.spent(p.PID()), time.Now()
	var all []estimate
	before, made := g.launchTotals(), launches()
	for range stretches {
		time.Sleep(stretch)
		after, now := g.launchTotals(), launches()
		e := after.since(before)
		e.truth = now - made
		all = append(all, e)
		before, made = after, now
	}
	within, typical := describe(t, "launches", all)
	require.GreaterOrEqual(t, within, least)
	require.Less(t, typical, 1.5, "an error that is much larger than what it is about says nothing")
	elapsed := time.Since(began)
	for tid, s := range g.spent(p.PID()) {
		was, known := spent[tid]
		cost := s.CostNS - was.CostNS
		if !known || float64(cost) < 0.001*float64(elapsed) {
			continue // it began later, or the probes took less than a thousandth of a processor
		}
		share := float64(cost) / float64(s.CPUNS-was.CPUNS)
		t.Logf("the probes took %.2f %% of the CPU time of thread %d; attached 1 part of %d of the time", 100*share, tid, g.budget.State().Slots)
		require.Less(t, share, 1.5*percent/100)
	}
}

// launchTotals are the totals of launches, by kernel and what else tells them apart.
type launchTotals map[total]total

func (g *gadget) launchTotals() launchTotals {
	g.t.Helper()
	all := launchTotals{}
	for _, total := range g.totals() {
		if text(total.API[:]) == launchAPI {
			key := total
			key.Calls, key.Bytes, key.HostNS = 0, 0, 0
			key.CallsError, key.BytesError, key.HostNSError = 0, 0, 0
			all[key] = total
		}
	}
	return all
}

// since is what came after `before` was read. Errors of two times are independent; those
// of kernels are not, for they have their windows in common.
func (l launchTotals) since(before launchTotals) (e estimate) {
	for key, total := range l {
		was := before[key]
		e.value += total.Calls - was.Calls
		now, then := float64(total.CallsError), float64(was.CallsError)
		e.err += uint64(math.Sqrt(max(now*now-then*then, 0)))
	}
	return e
}

// spent is what the probes have cost each thread of a process.
func (g *gadget) spent(pid int) map[uint32]sum {
	g.t.Helper()
	threads := map[uint32]sum{}
	var id uint64
	var s sum
	all := g.Maps["budget_by_thread"].Iterate()
	for all.Next(&id, &s) {
		if id>>32 == uint64(pid) {
			threads[uint32(id)] = s
		}
	}
	require.NoError(g.t, all.Err())
	return threads
}
