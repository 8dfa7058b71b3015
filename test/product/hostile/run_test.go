// SPDX-License-Identifier: Apache-2.0

package hostile

import (
	"bufio"
	"encoding/json"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/test/support/compare"
	"github.com/gpu-gadgets/gpu-gadgets/test/support/subject/iggpu"
	"github.com/gpu-gadgets/gpu-gadgets/test/support/subject/usage"
)

// processorTime is that of ig-gpu.
func processorTime(t *testing.T, r *iggpu.Run) time.Duration {
	t.Helper()
	user, system, err := usage.CPU(r.PID())
	require.NoError(t, err)
	return user + system
}

// mostMemory is the most that ig-gpu has had resident.
func mostMemory(t *testing.T, r *iggpu.Run) int64 {
	t.Helper()
	most, err := usage.Memory(r.PID(), "VmHWM")
	require.NoError(t, err)
	return most
}

// line is one of --jsonl-out, as far as it is compared.
type line struct {
	Type    string `json:"type"`
	PID     uint32 `json:"pid"`
	Process string `json:"process"`
	Row     string `json:"row"`
	Kind    string `json:"kind"`
	Device  int32  `json:"device"`
	Alloc   int64  `json:"alloc_bytes"`
	Allocs  int64  `json:"alloc_objects"`
	Freed   int64  `json:"freed_bytes"`
	Frees   int64  `json:"freed_objects"`
	Ended   int64  `json:"implicit_bytes"`
	Ends    int64  `json:"implicit_objects"`
	Inuse   int64  `json:"inuse_bytes"`
	Held    int64  `json:"inuse_objects"`
	Calls   int64  `json:"calls"`
	Samples int64  `json:"samples"`
	Stack   []struct {
		Function, File, Kind string
		Line                 uint32
	} `json:"stack"`
}

// readLines calls use for each line of a file.
func readLines(t *testing.T, file string, use func(line)) {
	t.Helper()
	f, err := os.Open(file)
	require.NoError(t, err)
	defer f.Close()
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var l line
		require.NoError(t, json.Unmarshal(lines.Bytes(), &l), lines.Text())
		use(l)
	}
	require.NoError(t, lines.Err())
}

// rowsOf are the last states of the rows of processes.
func rowsOf(t *testing.T, file string, pids map[uint32]bool) (rows []compare.Row) {
	t.Helper()
	last := map[string]compare.Row{}
	readLines(t, file, func(l line) {
		if l.Type != "alloc" || !pids[l.PID] {
			return
		}
		row := compare.Row{PID: l.PID, Kind: l.Kind, Device: l.Device, Counts: compare.Counts{
			AllocBytes: l.Alloc, AllocObjects: l.Allocs, FreedBytes: l.Freed, FreedObjects: l.Frees,
			ImplicitBytes: l.Ended, ImplicitObjects: l.Ends, InUseBytes: l.Inuse, InUseObjects: l.Held,
		}}
		for _, f := range l.Stack {
			if f.Kind == "python" {
				row.Stack = append(row.Stack, compare.Frame{Function: f.Function, File: f.File, Line: f.Line})
			}
		}
		last[l.Row] = row
	})
	for _, row := range last {
		rows = append(rows, row)
	}
	return rows
}

// requireEach: as many processes that had the pid, which is the last of the lines, have each an
// allocation of its own, which ended with it.
func requireEach(t *testing.T, file string, lines []string, processes int) {
	t.Helper()
	require.NotEmpty(t, lines)
	pid, err := strconv.Atoi(lines[len(lines)-1])
	require.NoError(t, err)
	last := map[string]line{}
	for _, l := range linesOf(t, file, "alloc", pid) {
		if l.Kind == "device" { // not its context
			last[l.Process] = l
		}
	}
	require.Len(t, last, processes)
	for process, l := range last {
		require.Equal(t, []int64{1, 4096, 1, 4096, 0}, []int64{l.Allocs, l.Alloc, l.Ends, l.Ended, l.Inuse}, process)
	}
}
