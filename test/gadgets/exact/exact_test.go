// SPDX-License-Identifier: Apache-2.0

// Package exact tests that cuda_alloc is exact to the byte: a random workload on the
// simulated driver, whose journal has what every Python stack allocated and freed.
package exact

import (
	"encoding/json"
	"math"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/examples/simcuda/journal"
	"github.com/gpu-gadgets/gpu-gadgets/internal/stack"
	"github.com/gpu-gadgets/gpu-gadgets/test/support/compare"
	"github.com/gpu-gadgets/gpu-gadgets/test/support/simulated"
	"github.com/gpu-gadgets/gpu-gadgets/test/support/subject"
	"github.com/gpu-gadgets/gpu-gadgets/test/support/tracer"
)

// workload runs workload.py, calls `held` while all processes hold their memory, and lets
// it end.
func workload(t *testing.T, library, dir string, held func(), args ...string) {
	t.Helper()
	args = append([]string{"workload.py", "--libcuda", library, "--out", dir, "--hold"}, args...)
	hold(t, exec.Command("python3", args...), held)
}

// hold runs a workload with --hold.
func hold(t *testing.T, cmd *exec.Cmd, held func()) {
	t.Helper()
	p := subject.Start(t, cmd)
	p.Timeout = time.Hour // as long as go test waits: there may be many calls
	holding := false
	for !holding {
		text := p.Line()
		var line struct{ Holding []int }
		holding = json.Unmarshal([]byte(text), &line) == nil && len(line.Holding) > 0
	}
	held()
	p.Say("")
	p.Wait()
}

// allRefusals is an edit for workloads of which more calls are refused in a second than a tenant has events for.
func allRefusals(spec *tracer.Spec) {
	for _, name := range []string{"ooms_own", "failures_own"} {
		if most := spec.Variables[name]; most != nil { // not for Linux 5.10
			_ = most.Set(uint32(math.MaxUint32))
		}
	}
}

// got brings the tracer's rows into the form of the truth.
func got(rows []tracer.Row) []compare.Row {
	var out []compare.Row
	for _, r := range rows {
		out = append(out, compare.Row{
			PID: r.PID, Kind: r.Kind, Device: r.Device, Stack: frames(r.Python),
			Counts: compare.Counts{
				AllocBytes: int64(r.AllocBytes), AllocObjects: int64(r.AllocObjects),
				FreedBytes: int64(r.FreedBytes), FreedObjects: int64(r.FreedObjects),
				ImplicitBytes: int64(r.ImplicitBytes), ImplicitObjects: int64(r.ImplicitObjects),
				InUseBytes: int64(r.InuseBytes), InUseObjects: int64(r.InuseObjects),
				HeldBytes: int64(r.HeldBytes),
			},
		})
	}
	return out
}

func frames(python []stack.Frame) []compare.Frame {
	var out []compare.Frame
	for _, f := range python {
		out = append(out, compare.Frame{Function: f.Function, File: f.File, Line: f.Line})
	}
	return out
}

func expected(t *testing.T, dir string, exited bool) []compare.Row {
	t.Helper()
	return expectedOf(t, dir, dir, exited)
}

// expectedOf returns the rows expected from journals and the stacks of their tags.
func expectedOf(t *testing.T, journalDir, truthDir string, exited bool) []compare.Row {
	t.Helper()
	journals, err := journal.ReadDir(journalDir)
	require.NoError(t, err)
	truth, err := compare.ReadTruth(truthDir)
	require.NoError(t, err)
	rows, err := compare.Expected(journals, truth, compare.Options{Exited: exited, MaxFrames: 128})
	require.NoError(t, err)
	require.NotEmpty(t, rows)
	return rows
}

func requireEqual(t *testing.T, when string, want, have []compare.Row) {
	t.Helper()
	diffs := compare.Diff(want, have)
	if len(diffs) > 0 {
		var table strings.Builder
		compare.Print(&table, diffs, 5)
		t.Errorf("%s: %s", when, table.String())
	}
}

// requireRefusedArrays checks the sizes of arrays that were refused with out-of-memory.
func requireRefusedArrays(t *testing.T, dir string, tr *tracer.Tracer) {
	t.Helper()
	journals, err := journal.ReadDir(dir)
	require.NoError(t, err)
	var want int64
	for _, j := range journals {
		for _, r := range j.Records {
			if r.Type == journal.Call && r.Kind == journal.Array && r.Result == journal.OutOfMemory {
				want += int64(r.Size)
			}
		}
	}
	require.NotZero(t, want)
	// They are events, which are read as they come.
	require.Eventually(t, func() bool { return tr.RefusedArrayBytes() >= want }, time.Minute, time.Millisecond)
	require.Equal(t, want, tr.RefusedArrayBytes())
}

// withoutStacks adds up rows that differ in the stack only.
func withoutStacks(rows []compare.Row) []compare.Row {
	out := append([]compare.Row(nil), rows...)
	for i := range out {
		out[i].Stack = nil
	}
	return compare.Merge(out)
}

func TestRandomCallsAreExact(t *testing.T) {
	lib := simulated.DriverCopy(t)
	dir := t.TempDir()
	tr := tracer.Start(t, lib, tracer.Options{Offset: 10, Edit: allRefusals})
	workload(t, lib, dir, func() {
		want := expected(t, dir, false)
		t.Logf("%d rows, %+v", len(want), compare.Total(want))
		have := got(tr.Rows())
		requireEqual(t, "alive, by process, kind and device", withoutStacks(want), withoutStacks(have))
		requireEqual(t, "alive, by stack", want, have)
	}, "--calls", strconv.Itoa(subject.Volume(25000, 200000)))
	requireEqual(t, "exited, by stack", expected(t, dir, true), got(tr.Rows()))
	requireRefusedArrays(t, dir, tr)
	require.Empty(t, tr.Drops())
}
