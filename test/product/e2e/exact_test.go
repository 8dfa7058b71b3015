// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/examples/simcuda/journal"
	"github.com/gpu-gadgets/gpu-gadgets/test/support/compare"
	"github.com/gpu-gadgets/gpu-gadgets/test/support/simulated"
	"github.com/gpu-gadgets/gpu-gadgets/test/support/subject"
)

// maxFrames is how many Python frames the gadget keeps (bpf/stack/stack.h).
const maxFrames = 128

// compared brings lines of --jsonl-out into the form of the truth.
func compared(lines []line) []compare.Row {
	var rows []compare.Row
	for _, l := range lines {
		r := compare.Row{PID: l.PID, Kind: l.Kind, Device: l.Device, Counts: compare.Counts{
			AllocBytes: l.AllocBytes, AllocObjects: l.AllocObjects,
			FreedBytes: l.FreedBytes, FreedObjects: l.FreedObjects,
			ImplicitBytes: l.ImplicitBytes, ImplicitObjects: l.ImplicitObjects,
			InUseBytes: l.InuseBytes, InUseObjects: l.InuseObjects,
		}}
		for _, f := range l.Stack {
			if f.Kind == "python" {
				r.Stack = append(r.Stack, compare.Frame{Function: f.Function, File: f.File, Line: f.Line})
			}
		}
		rows = append(rows, r)
	}
	return rows
}

// Several processes and threads, every call of the table, failures, forks and execs, one process
// killed: the user's file matches the truth to the byte, by stack.
func TestRandomCallsAreExactThroughTheProduct(t *testing.T) {
	t.Parallel()
	dir, out := t.TempDir(), filepath.Join(t.TempDir(), "lines")
	cmd := exec.Command("python3", "../../gadgets/exact/workload.py", "--libcuda", simulated.Driver(t), "--out", dir,
		"--calls", strconv.Itoa(subject.Volume(10000, 40000)), "--seconds", strconv.Itoa(subject.Volume(0, 8)), "--start-on-stdin", "--hold", "--kill-last")
	p := subject.Start(t, cmd)
	answer := func(key string) {
		t.Helper()
		text := p.Line()
		var fields map[string]json.RawMessage
		require.NoError(t, json.Unmarshal([]byte(text), &fields), text)
		require.Contains(t, fields, key)
	}
	answer("ready")
	r := start(t, "--pid", fmt.Sprint(p.PID()), "--jsonl-out", out)
	r.waitAttached(p.PID())
	began := time.Now()
	p.Say("go")
	answer("holding")
	t.Logf("calls made in %v", time.Since(began).Round(time.Millisecond))
	alive := expected(t, dir, false)
	eventually(t, "the rows of living processes are not exact", func() bool {
		content, err := os.ReadFile(out)
		require.NoError(t, err)
		lines, _ := parseLines(t, content)
		time.Sleep(200 * time.Millisecond) // reading takes time, and rows are read each second
		return len(compare.Diff(alive, compared(lines))) == 0
	})
	p.Say("end")
	answer("done")
	p.Wait()
	code, _ := r.interrupt()
	require.Zero(t, code, r.errors())

	want := expected(t, dir, true)
	lines, _ := readLines(t, out)
	have := compared(lines)
	t.Logf("%d rows, %+v; in use before the end: %+v", len(want), compare.Total(want), compare.Total(alive))
	if diffs := compare.Diff(want, have); len(diffs) > 0 {
		var table strings.Builder
		require.NoError(t, compare.Print(&table, diffs, 5))
		t.Errorf("%s", table.String())
	}
	require.Positive(t, compare.Total(alive).InUseBytes)
	require.Positive(t, compare.Total(want).FreedBytes)
	require.Empty(t, r.lost())
}

func expected(t *testing.T, dir string, exited bool) []compare.Row {
	t.Helper()
	journals, err := journal.ReadDir(dir)
	require.NoError(t, err)
	truth, err := compare.ReadTruth(dir)
	require.NoError(t, err)
	rows, err := compare.Expected(journals, truth, compare.Options{Exited: exited, MaxFrames: maxFrames})
	require.NoError(t, err)
	require.NotEmpty(t, rows)
	return rows
}
