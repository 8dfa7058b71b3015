// SPDX-License-Identifier: Apache-2.0

package compare

import (
	"encoding/json"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"slices"
	"sort"
	"strconv"
	"strings"
	"testing"

	"github.com/gpu-gadgets/gpu-gadgets/examples/simcuda/journal"
	"github.com/gpu-gadgets/gpu-gadgets/test/support/simulated"
	"github.com/gpu-gadgets/gpu-gadgets/test/support/subject"
	"github.com/stretchr/testify/require"
)

// driver builds the simulated CUDA driver for one test.
func driver(t *testing.T) string {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Skip("the simulated driver is for Linux")
	}
	for _, tool := range []string{"gcc", "make", "python3"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("%s is not installed: %v", tool, err)
		}
	}
	return simulated.DriverCopy(t)
}

// run makes the workload run to its end and returns its output and truth.
func run(t *testing.T, libcuda string, env []string, args ...string) (string, []*journal.Journal, Truth) {
	t.Helper()
	dir := t.TempDir()
	cmd := exec.Command("python3", append([]string{"../../gadgets/exact/workload.py", "--libcuda", libcuda, "--out", dir,
		"--calls", "12000"}, args...)...)
	cmd.Env = append(append(os.Environ(), "SIMCUDA_INIT_MS=1"), env...)
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	journals, err := journal.ReadDir(dir)
	require.NoError(t, err)
	truth, err := ReadTruth(dir)
	require.NoError(t, err)
	return string(out), journals, truth
}

func TestWorkloadMakesEveryCallFromManyStacks(t *testing.T) {
	_, journals, truth := run(t, driver(t), nil)
	require.Len(t, journals, 4)
	rows, err := Expected(journals, truth, Options{})
	require.NoError(t, err)

	succeeded, failed := map[string]int{}, map[int32]int{}
	count := func(journals []*journal.Journal) {
		for _, j := range journals {
			for _, r := range j.Records {
				if r.Result == journal.Success {
					succeeded[j.APIName(r.API)]++
				} else {
					failed[r.Result]++
				}
			}
		}
	}
	count(journals)
	// A use of a destroyed context, and an entry that two of the workload's many
	// kinds of call share, are rare in a run of this size, and whether there is one
	// depends on how the threads met.
	const destroyed = 709
	text, err := os.ReadFile("../../../bpf/cuda/apis.h")
	require.NoError(t, err)
	var apis []string
	for _, m := range regexp.MustCompile(`X\((cu\w+), MEMORY_`).FindAllSubmatch(text, -1) {
		apis = append(apis, string(m[1]))
	}
	require.NotEmpty(t, apis)
	never := func(api string) bool { return succeeded[api] == 0 }
	for seed := 2; (failed[destroyed] == 0 || slices.ContainsFunc(apis, never)) && seed < 10; seed++ {
		_, more, _ := run(t, driver(t), nil, "--seed", strconv.Itoa(seed))
		count(more)
	}
	for _, api := range apis {
		require.Positive(t, succeeded[api], "%s never succeeded", api)
	}
	for _, result := range []int32{1, 2, 201, 400, destroyed, 713, 999} {
		require.Positive(t, failed[result], "no call failed with %d", result)
	}

	// Above the helper each thread's stacks differ only by the routes.
	perProcess := map[uint32]map[string]bool{}
	deepest := 0
	for caller, stack := range truth {
		require.Equal(t, "invoke", stack[0].Function[strings.LastIndex(stack[0].Function, ".")+1:])
		names := perProcess[caller.PID]
		if names == nil {
			names = map[string]bool{}
			perProcess[caller.PID] = names
		}
		for _, f := range stack {
			names[f.Function] = true
		}
		deepest = max(deepest, len(stack))
	}
	require.Len(t, perProcess, 4)
	require.GreaterOrEqual(t, deepest, 36)
	for _, names := range perProcess {
		for _, name := range []string{"recurse", "größe", "generated", "Worker.drive"} {
			require.True(t, names[name], name)
		}
	}

	total := Total(rows)
	require.Positive(t, total.FreedBytes)
	require.Positive(t, total.ImplicitBytes)
	require.Positive(t, total.InUseBytes)
	require.Equal(t, total.AllocBytes, total.FreedBytes+total.ImplicitBytes+total.InUseBytes)
	kinds := map[string]bool{}
	for _, r := range rows {
		kinds[r.Kind] = true
	}
	require.Len(t, kinds, 7)
}

func TestDeterministicWorkloadRepeatsItself(t *testing.T) {
	libcuda := driver(t)
	var both [2][]Row
	for i := range both {
		_, journals, truth := run(t, libcuda, nil, "--deterministic", "--calls", "6000", "--kill-last")
		rows, err := Expected(journals, truth, Options{Exited: true})
		require.NoError(t, err)
		// Processes in the order of their creation, by their pids.
		pids := map[uint32]uint32{}
		var order []uint32
		for _, j := range journals {
			order = append(order, j.PID)
		}
		sort.Slice(order, func(a, b int) bool { return order[a] < order[b] })
		for n, pid := range order {
			pids[pid] = uint32(n)
		}
		for j := range rows {
			rows[j].PID = pids[rows[j].PID]
		}
		both[i] = rows
	}
	require.Empty(t, Diff(both[0], both[1]))
}

func TestNestedCallsDoNotChangeWhatTheWorkloadCounts(t *testing.T) {
	_, journals, truth := run(t, driver(t), []string{"SIMCUDA_NEST=1"}, "--fail-every", "0")
	_, err := Expected(journals, truth, Options{})
	require.NoError(t, err)
	nested := 0
	for _, j := range journals {
		for _, r := range j.Records {
			if r.Flags&journal.Nested != 0 {
				nested++
				require.Contains(t, []string{"cuMemAllocManaged", "cuMemFreeAsync"}, j.APIName(r.API))
			}
		}
	}
	require.Positive(t, nested)
}

func TestHoldKeepsEverythingUntilReleased(t *testing.T) {
	libcuda, dir := driver(t), t.TempDir()
	cmd := exec.Command("python3", "../../gadgets/exact/workload.py", "--libcuda", libcuda, "--out", dir, "--calls", "3000",
		"--hold", "--start-on-stdin")
	cmd.Env = append(os.Environ(), "SIMCUDA_INIT_MS=1")
	p := subject.Start(t, cmd)

	var ready struct{ Ready uint32 }
	require.NoError(t, json.Unmarshal([]byte(p.Line()), &ready))
	require.EqualValues(t, p.PID(), ready.Ready)
	var holding struct {
		Holding []uint32
		OK      bool
	}
	require.NoError(t, json.Unmarshal([]byte(p.Request("")), &holding))
	require.True(t, holding.OK)
	require.Len(t, holding.Holding, 4)
	for _, pid := range holding.Holding {
		require.NoError(t, exec.Command("kill", "-0", "--", strconv.Itoa(int(pid))).Run(), "all are alive")
	}
	// The journals can be read while the processes live.
	journals, err := journal.ReadDir(dir)
	require.NoError(t, err)
	sum, err := journal.Summarize(journals)
	require.NoError(t, err)
	require.Len(t, sum.Totals, 4)
	p.Request("")
	p.Wait()
	after, err := journal.ReadDir(dir)
	require.NoError(t, err)
	for i := range after {
		require.Len(t, after[i].Records, len(journals[i].Records), "nothing is freed after the word")
	}
}

func TestExecKeepsThePidAndStartsANewProcess(t *testing.T) {
	_, journals, truth := run(t, driver(t), nil, "--exec")
	require.Len(t, journals, 5)
	images := map[uint32]uint32{}
	for _, j := range journals {
		images[j.PID] = max(images[j.PID], j.Image)
	}
	require.Len(t, images, 4)
	rows, err := Expected(journals, truth, Options{})
	require.NoError(t, err)
	sum, err := journal.Summarize(journals)
	require.NoError(t, err)
	var inUse, held uint64
	for _, total := range sum.Totals {
		held += total.InUseBytes()
		if total.Process.Image == images[total.Process.PID] {
			inUse += total.InUseBytes()
		}
	}
	require.Less(t, inUse, held)
	require.EqualValues(t, inUse, Total(rows).InUseBytes)
}
