// SPDX-License-Identifier: Apache-2.0

// Package verbs runs each command of bin/ig-gpu that is no `run`, on a workload with the
// simulated driver.
package verbs

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/test/support/bpftest"
	"github.com/gpu-gadgets/gpu-gadgets/test/support/subject"
)

// igGPU runs a command line to its end.
func igGPU(t *testing.T, args ...string) (stdout, stderr string, err error) {
	t.Helper()
	cmd, out, errs := command(t, args...)
	err = cmd.Run()
	return out.String(), errs.String(), err
}

// command is ig-gpu with what it writes.
func command(t *testing.T, args ...string) (cmd *exec.Cmd, stdout, stderr *bytes.Buffer) {
	t.Helper()
	bpftest.RequireRoot(t)
	program, err := filepath.Abs("../../../bin/ig-gpu")
	require.NoError(t, err)
	_, err = os.Stat(program)
	require.NoError(t, err, "run make build")
	cmd = exec.CommandContext(t.Context(), program, args...)
	stdout, stderr = &bytes.Buffer{}, &bytes.Buffer{}
	cmd.Stdout, cmd.Stderr = stdout, stderr
	return cmd, stdout, stderr
}

// working is a process that allocates and gives back until the test ends.
func working(t *testing.T) string {
	t.Helper()
	w := subject.StartSteps(t)
	w.Load()
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			select {
			case <-stop:
				return
			case <-time.After(20 * time.Millisecond):
				w.Request("alloc kv_cache 1 1048576")
			}
		}
	}()
	t.Cleanup(func() { close(stop); <-stopped })
	return fmt.Sprint(w.PID())
}

func TestDumpShowsThreads(t *testing.T) {
	pid := working(t)
	out, text, err := igGPU(t, "dump", pid)
	require.NoError(t, err, text)
	require.Contains(t, out, "Process "+pid+": ")
	require.Regexp(t, `Thread \d+ \(.*\): "python3`, out)

	out, text, err = igGPU(t, "dump", pid, "-o", "json")
	require.NoError(t, err, text)
	for line := range strings.Lines(out) {
		var row struct {
			Proc struct{ PID int }
		}
		require.NoError(t, json.Unmarshal([]byte(line), &row), line)
		require.Equal(t, pid, fmt.Sprint(row.Proc.PID))
	}
	require.NotEmpty(t, out)
}

func TestRecordWritesWhatTheNameSaysAndReportReadsIt(t *testing.T) {
	dir, pid := t.TempDir(), working(t)
	profile, page, snapshot := filepath.Join(dir, "m.pb.gz"), filepath.Join(dir, "m.html"), filepath.Join(dir, "m.pickle")
	_, text, err := igGPU(t, "record", pid, "--for", "4s", "-o", profile, "-o", page, "-o", snapshot)
	require.NoError(t, err, text)
	for _, path := range []string{profile, page, snapshot} {
		require.Contains(t, text, "Wrote "+path+" (")
		require.FileExists(t, path)
	}
	segments, err := exec.Command("python3", "-c", `
import pickle, sys
for s in pickle.load(open(sys.argv[1], "rb"))["segments"]:
    print(s["address"] > 0, s["total_size"], [(b["state"], b["size"], [f["name"] for f in b["frames"] if f["filename"].endswith("steps.py")]) for b in s["blocks"]])`, snapshot).Output()
	require.NoError(t, err)
	require.Regexp(t, `(?m)^True 1048576 \[\('active_allocated', 1048576, \['kv_cache', .*\]$`, string(segments))
	out, text, err := igGPU(t, "report", profile)
	require.NoError(t, err, text)
	require.Contains(t, out, "kv_cache")
	out, text, err = igGPU(t, "diff", profile, profile, "-o", "json")
	require.NoError(t, err, text)
	require.NotContains(t, out, `"grew_bytes":1`)
}

func TestExplainNamesTheLineThatGrows(t *testing.T) {
	var out string
	pid := working(t)
	for _, watch := range []string{"5s", "20s", "60s"} { // on a busy machine, most of it may pass before anything is read
		var text string
		var err error
		out, text, err = igGPU(t, "explain", pid, "--for", watch)
		require.NoError(t, err, text)
		if !strings.Contains(out, "Unknown: what grew") {
			break
		}
	}
	require.Regexp(t, `(?s)Look first at\n  - kv_cache .*holds .* more than`, out)
	require.Contains(t, out, "No allocation was refused")
}

func TestCheckFindsTheDriverAndPython(t *testing.T) {
	pid := working(t)
	out, _, _ := igGPU(t, "check", pid, "-o", "json") // a test machine may have missing parts
	require.Contains(t, out, `"name":"CUDA driver","status":"ok"`)
	require.Contains(t, out, `"name":"Python","status":"ok"`)
}

// The leaking line is named, and nothing is left behind: no process, no file.
func TestDemoNamesTheLeakAndCleansUp(t *testing.T) {
	for _, c := range []struct{ flag, line string }{{"--native=false", "_embed_patches (inference.py:"}, {"--native", "embed_image"}} {
		dir := t.TempDir()
		t.Setenv("TMPDIR", dir)
		out, text, err := igGPU(t, "demo", c.flag)
		require.NoError(t, err, text)
		_, blamed, _ := strings.Cut(out, "Look first at")
		require.Contains(t, blamed, c.line, out)
		left, err := os.ReadDir(dir)
		require.NoError(t, err)
		require.Empty(t, left)
	}
}

// A timeline does not flood the terminal with events.
func TestEventsAreNotPrintedUnlessRequested(t *testing.T) {
	pid := working(t)
	trace := filepath.Join(t.TempDir(), "t.json.gz")
	out, text, err := igGPU(t, "run", "cuda_kernel", "--pid", pid, "--timeout", "3s", "--timeline-out", trace)
	require.NoError(t, err, text)
	require.NotContains(t, out, "TIMESTAMP")
	out, text, err = igGPU(t, "run", "cuda_kernel", "--pid", pid, "--timeout", "3s", "-o", "json")
	require.NoError(t, err, text)
	for line := range strings.Lines(out) {
		var object struct{ Type string }
		require.NoError(t, json.Unmarshal([]byte(line), &object), line)
		require.NotEmpty(t, object.Type)
		require.NotEqual(t, "call_events", object.Type)
	}
}

// What a step needs for a moment is gone when one looks, and is what the GPU must have room for.
func TestExplainNamesWhoHeldTheMemoryAtThePeak(t *testing.T) {
	w := subject.StartSteps(t)
	w.Load()
	out := explained(t, w, "15s", func() {
		w.Request("alloc activations 4 3000000")
		time.Sleep(2500 * time.Millisecond)
		w.Request("free activations 4")
		w.Request("alloc kv_cache 1 1000")
	})
	require.Regexp(t, `1000 B .* by kv_cache`, out)
	require.Regexp(t, fmt.Sprintf(`(?s)python3\[%d\] held the most at .*: 11\.4 MiB.*\. At that moment:\n    11\.4 MiB \(100\.0 %%\) by activations \(steps\.py:\d+\)`, w.PID()), out)
}

// The context on GPU 0 was there before the watch, and is retained again: it is not reported as
// made. That on GPU 1 serves no purpose.
func TestExplainNamesTheLineThatMadeAContextForNothing(t *testing.T) {
	w := subject.StartSteps(t)
	w.Load()
	out := explained(t, w, "12s", func() {
		w.Request("use 0")
		w.Request("retain 1")
		w.Request("alloc kv_cache 1 1000")
	})
	require.Regexp(t, `(?s)Contexts\n  - CUDA contexts that were made during the watch:\n    on GPU 1 by retain \(steps\.py:\d+\)\n`, out)
	require.Regexp(t, fmt.Sprintf(`python3\[%d\] has a context on GPU 1 and does nothing else there: retain \(steps\.py:\d+\) made it\.`, w.PID()), out)
	require.NotContains(t, out, "context on GPU 0")

	w = subject.StartSteps(t, "SIMCUDA_DEVICES=3")
	w.Load()
	out = explained(t, w, "12s", func() {
		w.Request("retain 2")
		w.Request("use 2")
		w.Request("alloc kv_cache 1 1000")
	})
	require.Regexp(t, `    on GPU 2 by retain \(steps\.py:\d+\)\n`, out)
	require.NotContains(t, out, "does nothing else there")
}

// explained returns the output of ig-gpu explain for a process that works once it is watched.
func explained(t *testing.T, w *subject.Steps, watch string, work func()) string {
	t.Helper()
	cmd, out, text := command(t, "explain", fmt.Sprint(w.PID()), "--for", watch)
	require.NoError(t, cmd.Start())
	stopped := make(chan struct{})
	ctx, end := context.WithCancel(t.Context())
	go func() {
		defer close(stopped)
		if subject.WaitProbes(ctx, cmd.Process.Pid, "libcuda.so.1", 2) {
			work()
		}
	}()
	err := cmd.Wait()
	end()
	<-stopped
	require.NoError(t, err, text)
	return out.String()
}
