// SPDX-License-Identifier: Apache-2.0

package budget

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/examples/simcuda/counts"
	"github.com/gpu-gadgets/gpu-gadgets/test/simulated"
	"github.com/gpu-gadgets/gpu-gadgets/test/subject"
)

// TestPyTorchIsWithinItsBudget: of the training step of real PyTorch, whose CPU time probes would
// take some ten percent of, each thread pays one percent, and the launches of all kernels
// together are within the error that is told, by the simulated driver's own count.
func TestPyTorchIsWithinItsBudget(t *testing.T) {
	const percent = 1.0
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

	estimated := func() (e estimate) {
		for _, total := range g.totals() {
			if text(total.API[:]) == launchAPI {
				e.value += total.Calls
				e.err += total.CallsError // kernels have their windows in common
			}
		}
		return e
	}
	before, made, spent := estimated(), launches(), g.spent(p.PID())
	time.Sleep(25 * time.Second)
	after, now := estimated(), launches()
	e := estimate{value: after.value - before.value, err: after.err, truth: now - made}
	_, typical := describe(t, "launches", []estimate{e})
	require.True(t, e.isWithin())
	require.Less(t, typical, 1.0)
	for tid, s := range g.spent(p.PID()) {
		was, known := spent[tid]
		cost := s.CostNS - was.CostNS
		if !known || float64(cost) < 0.001*25e9 {
			continue // it began later, or the probes took less than a thousandth of a processor
		}
		share := float64(cost) / float64(s.CPUNS-was.CPUNS)
		t.Logf("the probes took %.2f %% of the CPU time of thread %d; attached 1 part of %d of the time", 100*share, tid, g.budget.State().Slots)
		require.Less(t, share, 1.5*percent/100)
	}
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
