// SPDX-License-Identifier: Apache-2.0

package budget

import (
	"math"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/test/support/subject"
)

const (
	rate = 200_000 // launches a second, and a quarter as many copies
	// long runs 100 times, with the budget of daemons.
	long = "BUDGET_LONG"
)

// estimate of a sum, with two standard deviations.
type estimate struct{ value, err, truth uint64 }

func (e estimate) isWithin() bool {
	return math.Abs(float64(e.value)-float64(e.truth)) <= float64(e.err)
}

// errorsOf returns the errors in parts of what they are about, in ascending order.
func errorsOf(all []estimate) (errors []float64) {
	for _, e := range all {
		errors = append(errors, float64(e.err)/float64(e.truth))
	}
	slices.Sort(errors)
	return errors
}

// typical is the median of the errors.
func typical(all []estimate) float64 { return errorsOf(all)[len(all)/2] }

// describe logs how many are within their errors, and how large these are.
func describe(t *testing.T, of string, all []estimate) (within int) {
	t.Helper()
	var ratio float64
	for _, e := range all {
		if e.isWithin() {
			within++
		}
		ratio += float64(e.value) / float64(e.truth) / float64(len(all))
	}
	errors := errorsOf(all)
	t.Logf("%s: %d of %d are within the reported error; on average %.3f of the truth; errors %.2f, %.2f, %.2f of it (least, median, most)",
		of, within, len(all), ratio, errors[0], typical(all), errors[len(errors)-1])
	return within
}

// TestBudgetIsKeptAndEstimatesAreWithinTheirErrors: for a thread that launches 200,000 times a
// second, where probes would take more than a third of the time, they take the budget and no more;
// and launches, copies and bytes of each run are within two standard deviations of the truth. 95
// of 100 are to be expected; of 12, 7 or fewer are by chance one in 5,000, and of 20, 13 or fewer one in 30,000.
func TestBudgetIsKeptAndEstimatesAreWithinTheirErrors(t *testing.T) {
	runs, milliseconds, percent, least := 12, 1500, 5.0, 8
	if os.Getenv(subject.LongVariable) != "" {
		runs, least = 20, 14
	}
	if os.Getenv(long) != "" {
		runs, milliseconds, percent, least = 100, 4000, 1.0, 95
	}
	p := loop(t, rate)
	alone := run(t, p, 1000)
	g := start(t, percent, p.PID())
	var all did // since attach
	next := func(milliseconds int) did {
		d := run(t, p, milliseconds)
		all.copies, all.bytes = all.copies+d.copies, all.bytes+d.bytes
		return d
	}
	require.Eventually(t, func() bool { next(500); return g.budget.State().Slots > 1 }, 20*time.Second, time.Millisecond,
		"it costs more than the budget, and nothing became cheaper")
	var settled did
	for range 8 { // until the number of slots has settled
		settled = next(500)
	}
	// An estimate is as good as the time is long for which functions were attached to in its run: on an
	// idle machine that is an eighth of the time for 5 %.
	milliseconds = int(float64(milliseconds) * max(1, float64(g.budget.State().Slots)*percent/40))
	// On a busy machine the thread has a part of a processor, and is in few of the windows: it launches less.
	part := float64(settled.launches) / float64(settled.wallNS) * 1e9 / rate
	milliseconds = int(float64(milliseconds) * min(max(1, 0.7/part), 4))
	seen := g.kernels()
	before, began := g.paid(p.PID()), time.Now()
	var totals, rows []estimate
	var launches, wallNS uint64
	measure := func() {
		totals, rows = nil, nil
		for range runs {
			d := next(milliseconds)
			launches, wallNS = launches+d.launches, wallNS+d.wallNS
			for function := range g.kernels() {
				if !seen[function] {
					seen[function] = true
					total, row := g.launched(function)
					total.truth, row.truth = d.launches, d.launches
					totals, rows = append(totals, total), append(rows, row)
				}
			}
		}
	}
	// Of windows in which the thread had no processor, nothing is known: longer runs have more of the others.
	for measure(); typical(totals) >= 1 && milliseconds < 10_000; measure() {
		milliseconds *= 2
		t.Logf("runs of %d ms: a median error of %.2f", milliseconds/2, typical(totals))
	}
	after := g.paid(p.PID())
	share := float64(after.CostNS-before.CostNS) / float64(after.CPUNS-before.CPUNS)
	t.Logf("the probes took %.2f %% of the thread's CPU time in %v, of a budget of %g %%; attached 1 part of %d of the time",
		100*share, time.Since(began).Round(time.Second), percent, g.budget.State().Slots)
	t.Logf("a call in a window counts for %.2f times as many", g.budget.State().Factor)
	t.Logf("launches a second: %.0f alone, %.0f with the budget", 1e9*float64(alone.launches)/float64(alone.wallNS), 1e9*float64(launches)/float64(wallNS))
	require.Less(t, share, 1.3*percent/100)
	require.Greater(t, share, 0.2*percent/100, "there would have been more to spend")

	require.Len(t, totals, runs)
	for of, trials := range map[string][]estimate{"launches": totals, "launches, by stack": rows} {
		require.GreaterOrEqual(t, describe(t, of, trials), least, of)
		require.Less(t, typical(trials), 1.0, "an error as large as what it is about says nothing")
	}
	copied := g.copied()
	copied[0].truth, copied[1].truth = all.copies, all.bytes
	for i, of := range []string{"copies", "bytes"} {
		describe(t, of, copied[i:i+1])
		require.Less(t, typical(copied[i:i+1]), 1.0)
		copied[i].err *= 2 // one estimate: four standard deviations
		require.True(t, copied[i].isWithin(), of)
	}
}
