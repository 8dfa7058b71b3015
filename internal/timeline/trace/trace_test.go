// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/gpu-gadgets/gpu-gadgets/internal/timeline/track"
)

// read opens a file as a viewer does, which knows one gzip stream and strict JSON.
func read(t testing.TB, path string) (events []map[string]any, meta map[string]any) {
	t.Helper()
	b, err := os.ReadFile(path)
	require.NoError(t, err)
	z, err := gzip.NewReader(bytes.NewReader(b))
	require.NoError(t, err)
	z.Multistream(false)
	text, err := io.ReadAll(z)
	require.NoError(t, err)
	var all struct {
		TraceEvents []map[string]any
		Metadata    map[string]any
	}
	require.NoError(t, json.Unmarshal(text, &all), "%.400s", text)
	return all.TraceEvents, all.Metadata
}

func create1(t testing.TB) (*Writer, string) {
	path := filepath.Join(t.TempDir(), "t.json.gz")
	w, err := Create(path, Meta{Tool: "test", WallOffset: 1_700_000_000 * time.Second})
	require.NoError(t, err)
	return w, path
}

var thread = track.Track{PID: 7, ID: 8}

func TestFileHasAllEvents(t *testing.T) {
	w, path := create1(t)
	w.Process(7, "python3 (7)")
	w.Name(thread, "main", 3)
	w.Begin(thread, track.Slice{Start: 1_000_001, Name: "step", Category: "python"})
	w.Slice(thread, track.Slice{
		Start: 123_456_789_012_345_678, End: 123_456_789_012_346_001, Name: "cuLaunchKernel", Category: "launch",
		Args: []track.Arg{{Key: "kernel", Text: "gemm"}, {Key: "bytes", Number: -1}},
	})
	w.End(thread, track.Slice{End: 2_000_000, Name: "step", Category: "python"})
	w.Counter(7, "H2D GB/s", 5, 1.5)
	w.Arrow(track.Arrow{ID: 4, Name: "waits for", From: thread, FromNS: 10, To: track.Track{PID: 7, ID: 9}, ToNS: 20})
	w.Stack(2, []string{"f (x.py:1)", "g"})
	w.Lost("event_lost", 12)
	require.NoError(t, w.Close())

	events, meta := read(t, path)
	require.Equal(t, true, meta["complete"])
	require.Equal(t, "CLOCK_BOOTTIME", meta["clock"])
	require.Equal(t, 1.7e18, meta["wall_offset_ns"])
	require.Equal(t, map[string]any{"event_lost": 12.0}, meta["lost"])
	events = events[1:] // the clock
	phases := ""
	for _, e := range events {
		phases += e["ph"].(string)
	}
	require.Equal(t, "MMMBXECsfM", phases)
	require.Equal(t, "python3 (7)", events[0]["args"].(map[string]any)["name"])
	begin, end := events[3], events[5]
	for _, key := range []string{"name", "cat", "pid", "tid"} { // Chrome pairs by these
		require.NotNil(t, begin[key])
		require.Equal(t, begin[key], end[key])
	}
	slice := events[4]
	require.Equal(t, "cuLaunchKernel", slice["name"])
	require.Equal(t, 0.323, slice["dur"])
	args := slice["args"].(map[string]any)
	require.Equal(t, "gemm", args["kernel"])
	require.Equal(t, -1.0, args["bytes"])
	// Exactly: a float64 would not show the last digits.
	require.Contains(t, text(t, path), `"ts":123456789012345.678,`)
	require.Contains(t, text(t, path), `"boot_ns":123456789012345678`)
}

func text(t testing.TB, path string) string {
	b, err := os.ReadFile(path)
	require.NoError(t, err)
	z, err := gzip.NewReader(bytes.NewReader(b))
	require.NoError(t, err)
	all, err := io.ReadAll(z)
	require.NoError(t, err)
	return string(all)
}

func TestHostileNamesAreText(t *testing.T) {
	for name, s := range map[string]string{
		"not UTF-8":     "a\xff\xfe\x80b",
		"control":       "\x00\x1b[2J\n\x7f",
		"quotes":        `"},{"ph":"X"</script>\`,
		"a megabyte":    strings.Repeat("x", 1<<20),
		"cut in letter": strings.Repeat("x", maxText-1) + "ééé",
		"only starts":   strings.Repeat("\xf0", maxText+9),
		"only tails":    strings.Repeat("\x80", maxText+9),
		"separators":    "\u2028\u2029",
	} {
		t.Run(name, func(t *testing.T) {
			var got string
			b := appendText(nil, s)
			require.NoError(t, json.Unmarshal(b, &got), "%q", b)
			require.LessOrEqual(t, len(got), 3*maxText+3)
			for _, r := range got {
				require.False(t, r < 0x20 || r == 0x7f, "%q", got)
			}
		})
	}
	require.Equal(t, `"Größe 漢字"`, string(appendText(nil, "Größe 漢字")))
}

func FuzzAppendText(f *testing.F) {
	f.Add("a\xffb")
	f.Fuzz(func(t *testing.T, s string) {
		var got string
		if err := json.Unmarshal(appendText(nil, s), &got); err != nil {
			t.Fatal(err)
		}
		if clean := strings.ToValidUTF8(s, "\ufffd"); len(s) < maxText && clean == s && !strings.ContainsFunc(s, func(r rune) bool { return r < 0x20 || r == 0x7f }) && got != s {
			t.Fatalf("%q became %q", s, got)
		}
	})
}

// launches writes n of them.
func launches(w *Writer, from, n int) {
	for i := from; i < from+n; i++ {
		w.Slice(thread, track.Slice{
			Start: uint64(i) * 50_000, End: uint64(i)*50_000 + 4_321, Name: "cuLaunchKernel", Category: "launch",
			Args: []track.Arg{{Key: "at", Text: fmt.Sprintf("Layer.forward (model.py:%d)", i%97)}, {Key: "stack", Number: int64(i % 31)}},
		})
	}
}

// TestFileOpensAtAnyTime: each state in which a kill could leave the file.
func TestFileOpensAtAnyTime(t *testing.T) {
	w, path := create1(t)
	last := 0
	for i := range 20 {
		launches(w, i*500, 500)
		require.NoError(t, w.Flush())
		events, meta := read(t, path)
		require.Equal(t, false, meta["complete"])
		require.Equal(t, 1+500*(i+1), len(events))
		last = len(events)
	}
	require.NoError(t, w.Close())
	events, _ := read(t, path)
	require.Len(t, events, last)
}

// TestKilledWriterLeavesAFile: a process that writes all the time ends by SIGKILL.
func TestKilledWriterLeavesAFile(t *testing.T) {
	if path := os.Getenv("TRACE_TEST_WRITE"); path != "" {
		w, err := Create(path, Meta{Tool: "test"})
		require.NoError(t, err)
		for i := 0; ; i += 100 {
			launches(w, i, 100)
			require.NoError(t, w.Flush())
		}
	}
	path := filepath.Join(t.TempDir(), "t.json.gz")
	for range 5 {
		cmd := exec.Command(os.Args[0], "-test.run", "TestKilledWriterLeavesAFile")
		cmd.Env = append(os.Environ(), "TRACE_TEST_WRITE="+path)
		require.NoError(t, os.RemoveAll(path))
		require.NoError(t, cmd.Start())
		size := func() int64 {
			info, err := os.Stat(path)
			if err != nil {
				return 0
			}
			return info.Size()
		}
		for deadline := time.Now().Add(time.Minute); size() < 200<<10; time.Sleep(time.Millisecond) {
			if time.Now().After(deadline) {
				t.Error("it writes nothing")
				break
			}
		}
		require.NoError(t, cmd.Process.Kill())
		_ = cmd.Wait()
		events, meta := read(t, path)
		require.Greater(t, len(events), 1000)
		require.Equal(t, false, meta["complete"])
	}
}

// TestFullDisk: a clear error, a count of the missing events, and a file that opens with
// the rest.
func TestFullDisk(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skipf("needs root to mount a small disk; runs as user %d", os.Geteuid())
	}
	dir := t.TempDir()
	if err := unix.Mount("small", dir, "tmpfs", 0, "size=128k"); err != nil {
		t.Skipf("cannot mount a small disk: %v", err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	path := filepath.Join(dir, "t.json.gz")
	w, err := Create(path, Meta{Tool: "test"})
	require.NoError(t, err)
	var failed error
	for i := 0; i < 1_000_000 && failed == nil; i += 100 {
		launches(w, i, 100)
		failed = w.Flush()
	}
	require.ErrorIs(t, failed, syscall.ENOSPC)
	require.ErrorContains(t, failed, "no space is left in "+dir)
	launches(w, 0, 10)
	require.EqualValues(t, 110, w.Unwritten(), "those that did not fit, too")
	require.ErrorIs(t, w.Close(), syscall.ENOSPC)
	events, meta := read(t, path)
	require.Greater(t, len(events), 1000)
	require.EqualValues(t, len(events)-1, w.Events(), "all but that of the clock")
	require.Equal(t, false, meta["complete"])
}

// TestEndedReader: a pipe without a reader is an error, not a signal.
func TestEndedReader(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pipe")
	require.NoError(t, unix.Mkfifo(path, 0o600))
	reader, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	require.NoError(t, err)
	w, err := Create(path, Meta{Tool: "test"})
	require.NoError(t, err)
	launches(w, 0, 10)
	require.NoError(t, w.Flush())
	require.NoError(t, reader.Close())
	launches(w, 10, 10)
	require.ErrorContains(t, w.Flush(), "its reader has exited")
	launches(w, 20, 10)
	require.EqualValues(t, 20, w.Unwritten())
	require.ErrorIs(t, w.Close(), syscall.EPIPE)
}

// TestPipe: a file that cannot be overwritten is complete when it is closed.
func TestPipe(t *testing.T) {
	dir := t.TempDir()
	pipe, path := filepath.Join(dir, "pipe"), filepath.Join(dir, "t.json.gz")
	require.NoError(t, unix.Mkfifo(pipe, 0o600))
	done := make(chan error, 1)
	go func() {
		b, err := os.ReadFile(pipe)
		if err == nil {
			err = os.WriteFile(path, b, 0o600)
		}
		done <- err
	}()
	w, err := Create(pipe, Meta{Tool: "test"})
	require.NoError(t, err)
	for i := range 5 {
		launches(w, i*1000, 1000)
		require.NoError(t, w.Flush())
	}
	require.NoError(t, w.Close())
	require.NoError(t, <-done)
	events, meta := read(t, path)
	require.Len(t, events, 5001)
	require.Equal(t, true, meta["complete"])
}

func TestUnwritablePathIsAnError(t *testing.T) {
	_, err := Create(filepath.Join(t.TempDir(), "no", "t.json.gz"), Meta{})
	require.ErrorIs(t, err, os.ErrNotExist)
	_, err = Create(t.TempDir(), Meta{})
	require.ErrorContains(t, err, "is a directory")
}

// TestMemoryIsBounded: a million events take no more room than ten thousand.
func TestMemoryIsBounded(t *testing.T) {
	w, _ := create1(t)
	launches(w, 0, 10_000)
	used := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := used()
	launches(w, 10_000, 1_000_000)
	if after := used(); after > before+1<<20 {
		t.Errorf("%d KiB more after a million events", (after-before)>>10)
	}
	require.NoError(t, w.Close())
}

// BenchmarkTenMinutes writes 10 minutes of 20,000 events a second with their arrows and
// counters, and reports the memory of the process.
func BenchmarkTenMinutes(b *testing.B) {
	for range b.N {
		w, path := create1(b)
		const events = 30_000_000
		launches(w, 0, events)
		if err := w.Close(); err != nil {
			b.Fatal(err)
		}
		info, err := os.Stat(path)
		if err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(float64(peakKiB(b))/1024, "MiB-peak-RSS")
		b.ReportMetric(float64(info.Size())/events, "bytes/event")
		b.ReportMetric(float64(w.Unwritten()), "lost")
		if n := count(b, path); n != events+1 {
			b.Fatalf("%d events in the file", n)
		}
	}
}

func peakKiB(b *testing.B) (kib int) {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		b.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(status), "VmHWM:")
	if _, err := fmt.Sscan(rest, &kib); err != nil {
		b.Fatal(err)
	}
	return kib
}

// count parses a file of any size back, event by event.
func count(b testing.TB, path string) (n int) {
	f, err := os.Open(path)
	require.NoError(b, err)
	defer f.Close()
	z, err := gzip.NewReader(f)
	require.NoError(b, err)
	decoder := json.NewDecoder(z)
	for token, err := decoder.Token(); token != json.Delim('['); token, err = decoder.Token() {
		require.NoError(b, err)
	}
	var event struct{ Ph string }
	for ; decoder.More(); n++ {
		require.NoError(b, decoder.Decode(&event))
	}
	return n
}
