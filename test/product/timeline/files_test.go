// SPDX-License-Identifier: Apache-2.0

package timeline

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/parquet-go/parquet-go"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/gpu-gadgets/gpu-gadgets/internal/process/procmaps"
)

// TestEvents: each call as a line, with both clocks, and the memory. A file of rows
// refers to the timeline for them.
func TestEvents(t *testing.T) {
	const steps, layers = 30, 4
	w := run(t, "decode.py", "--steps", "30", "--layers", "4", "--pause", "0.1")
	path, rows := filepath.Join(t.TempDir(), "events.jsonl"), filepath.Join(t.TempDir(), "rows.jsonl")
	tr := w.trace("--events-out", path, "--with", "all", "--jsonl-out", rows)
	w.work()
	tr.end()
	require.Contains(t, tr.log.String(), "--events-out has each call")
	written, err := os.ReadFile(rows)
	require.NoError(t, err)
	require.Contains(t, string(written), `"operation":"launch"`)
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	types, stacks := map[string]int{}, map[string]bool{}
	truth := w.notes()
	for line := range strings.Lines(string(text)) {
		var e struct {
			Type, Time, Stack, Kind string
			Start                   uint64 `json:"start_boot_ns"`
			PID                     int
			RSS                     uint64 `json:"rss_bytes"`
		}
		require.NoError(t, json.Unmarshal([]byte(line), &e), line)
		types[e.Type]++
		switch e.Type {
		case "stack":
			stacks[e.Stack] = true
		case "call":
			require.True(t, stacks[e.Stack], "an undefined stack: %s", line)
			types[e.Kind]++
			if e.Kind == "launch" {
				require.GreaterOrEqual(t, e.Start, truth[0].Start)
			}
			require.Equal(t, w.PID(), e.PID)
			at, err := time.Parse(time.RFC3339Nano, e.Time)
			require.NoError(t, err)
			require.WithinDuration(t, time.Now(), at, time.Hour)
		case "memory":
			require.NotZero(t, e.RSS)
		}
	}
	require.Equal(t, steps*(3+3*layers), types["launch"]+types["copy"]+types["wait"])
	for _, kind := range []string{"ran", "slept", "syscall", "memory"} {
		require.NotZero(t, types[kind], "%v", types)
	}
}

// TestEventsAsATable: a file that ends in .parquet has the same calls as the trace, and
// opens after the run was killed, with the events written until then.
func TestEventsAsATable(t *testing.T) {
	table := filepath.Join(t.TempDir(), "events.parquet")
	w := run(t, "decode.py", "--steps", "50", "--layers", "4")
	tr := w.trace("--events-out", table, "--with", "cpu")
	w.work()
	f := tr.end()
	rows := readTable(t, table)
	launches := 0
	var start, end []uint64
	for _, r := range rows {
		if r.Type == "call" && r.Kind == "launch" {
			require.EqualValues(t, w.PID(), r.PID)
			launches++
			start, end = append(start, uint64(r.Start)), append(end, uint64(r.End))
		}
	}
	require.Equal(t, 50*3*4, launches)
	for n, s := range f.of(mainThread, "launch") {
		require.Equal(t, []uint64{s.start, s.end}, []uint64{start[n], end[n]})
	}
	require.True(t, slices.ContainsFunc(rows, func(r tableRow) bool { return r.Type == "ran" }))

	w = run(t, "decode.py", "--steps", "700", "--layers", "4", "--pause", "0.02")
	killed := w.trace("--events-out", table)
	w.Say("")
	for begun := time.Now(); ; time.Sleep(100 * time.Millisecond) {
		// A read beside a write may have a part of it.
		if rows, err := tableOf(table); err == nil && len(rows) > 0 {
			break
		}
		require.Less(t, time.Since(begun), waitLimit, "nothing is written")
	}
	require.NoError(t, killed.cmd.Process.Kill())
	_ = killed.cmd.Wait()
	require.NotEmpty(t, readTable(t, table))
}

type tableRow struct {
	Type  string `parquet:"type,optional"`
	Kind  string `parquet:"kind,optional"`
	PID   int32  `parquet:"pid,optional"`
	Start int64  `parquet:"start_boot_ns,optional"`
	End   int64  `parquet:"end_boot_ns,optional"`
}

// readTable reads a table to which nothing is written at the moment.
func readTable(t *testing.T, path string) []tableRow {
	t.Helper()
	rows, err := tableOf(path)
	require.NoError(t, err)
	return rows
}

func tableOf(path string) ([]tableRow, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	return parquet.Read[tableRow](bytes.NewReader(b), int64(len(b)))
}

// TestFullDisk: the run continues, reports what is missing, and the file opens.
func TestFullDisk(t *testing.T) {
	dir := t.TempDir()
	if err := unix.Mount("small", dir, "tmpfs", 0, "size=64k"); err != nil {
		t.Skipf("cannot mount a small disk: %v", err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	w := run(t, "decode.py", "--steps", "3000", "--layers", "16", "--pause", "0")
	tr := traceTo(t, w, filepath.Join(dir, "trace.json.gz"))
	w.work()
	require.NoError(t, tr.cmd.Process.Signal(syscall.SIGINT))
	require.Error(t, tr.cmd.Wait(), "a run that could not write its file")
	require.Contains(t, tr.log.String(), "no space is left in "+dir)
	require.Contains(t, tr.log.String(), "events are not in "+tr.path)
	f := read(t, tr.path)
	require.Equal(t, false, f.Metadata["complete"])
	require.NotEmpty(t, f.of(mainThread, "launch"))
}

// TestEndedReader: the reader of a pipe ends; the run continues and reports it.
func TestEndedReader(t *testing.T) {
	dir := t.TempDir()
	pipe := filepath.Join(dir, "pipe")
	require.NoError(t, unix.Mkfifo(pipe, 0o600))
	reader, err := os.OpenFile(pipe, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	require.NoError(t, err)
	w := run(t, "decode.py", "--steps", "500", "--layers", "16")
	tr := traceTo(t, w, pipe)
	require.NoError(t, reader.Close())
	w.work()
	require.False(t, procmaps.HasEnded("/proc", uint32(tr.cmd.Process.Pid), 0), "the run continues")
	require.NoError(t, tr.cmd.Process.Signal(syscall.SIGINT))
	require.Error(t, tr.cmd.Wait())
	require.Contains(t, tr.log.String(), "its reader has exited")
}

// TestKilled: the file opens with the events written until then.
func TestKilled(t *testing.T) {
	w := run(t, "decode.py", "--steps", "200", "--layers", "16", "--pause", "0.02")
	tr := w.trace()
	w.work() // four seconds
	require.NoError(t, tr.cmd.Process.Kill())
	_ = tr.cmd.Wait()
	f := read(t, tr.path)
	require.Equal(t, false, f.Metadata["complete"])
	require.NotEmpty(t, f.of(mainThread, "launch"))
}

// TestWrongParameters: one line with the error, before anything is attached.
func TestWrongParameters(t *testing.T) {
	w := run(t, "decode.py", "--steps", "1")
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"--with", "disk", "--timeline-out", "/dev/null"}, `--with: "disk" is none of cpu, syscalls, memory, python, all`},
		{[]string{"--with", "cpu"}, "--with needs --timeline-out"},
		{[]string{"--timeline-out", "/none/t.json.gz"}, "--timeline-out: create /none/t.json.gz: no such file or directory"},
		{[]string{"--timeline-html", "/none/t.html"}, "--timeline-html: "},
		{[]string{"--events-out", "/none/t.parquet"}, "--events-out: create /none/t.parquet: no such file or directory"},
		{[]string{"--events-out", "/none/t.jsonl"}, "--events-out: create /none/t.jsonl: no such file or directory"},
	} {
		out := fails(t, w, c.args...)
		require.Contains(t, out, c.want)
	}
}

// TestErrorsHaveNames: a failed call has its error, and the process that it ended is not
// a loss.
func TestErrorsHaveNames(t *testing.T) {
	t.Setenv("SIMCUDA_FAIL_EVERY", "200")
	w := run(t, "decode.py", "--steps", "100", "--layers", "16")
	tr := w.trace()
	w.Say("")
	require.Error(t, w.Cmd.Wait(), "it ends by the first error")
	f := tr.end()
	failed := 0
	for _, s := range f.tracks[mainThread] {
		if reason, ok := s.args["error"]; ok {
			require.Equal(t, "CUDA_ERROR_UNKNOWN", reason) // 999, injected into the driver
			failed++
		}
	}
	require.Equal(t, 1, failed)
}
