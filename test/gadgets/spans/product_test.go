// SPDX-License-Identifier: Apache-2.0

package spans

import (
	"bytes"
	"encoding/json"
	"errors"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/internal/format/pprof"
	"github.com/gpu-gadgets/gpu-gadgets/internal/profile"
	"github.com/gpu-gadgets/gpu-gadgets/test/support/bpftest"
	"github.com/gpu-gadgets/gpu-gadgets/test/support/simulated"
)

// igGPU starts the product, for as long as the traced process lives; it prints into a
// file.
func igGPU(t *testing.T, gadget string, pid int, arguments ...string) (out string, wait func() (stderr string, err error)) {
	t.Helper()
	out, _, wait = startIGGPU(t, gadget, pid, arguments...)
	return out, wait
}

// startIGGPU is igGPU for a run that does not end by itself: interrupt ends it.
func startIGGPU(t *testing.T, gadget string, pid int, arguments ...string) (out string, interrupt func(), wait func() (stderr string, err error)) {
	t.Helper()
	bpftest.RequireRoot(t)
	const path = "../../../bin/ig-gpu"
	_, err := os.Stat(path)
	require.NoError(t, err, "run make build")
	cmd := exec.Command(path, append([]string{"run", gadget, "--host", "-o", "json", "--pid", strconv.Itoa(pid)}, arguments...)...)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	stdout, err := os.Create(filepath.Join(t.TempDir(), "out"))
	require.NoError(t, err)
	defer stdout.Close()
	cmd.Stdout = stdout
	require.NoError(t, cmd.Start())
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	return stdout.Name(), func() { require.NoError(t, cmd.Process.Signal(os.Interrupt)) }, func() (string, error) {
		select {
		case err := <-done:
			return errs.String(), err
		case <-time.After(2 * waitLimit):
			t.Fatal("ig-gpu does not end")
			return "", nil
		}
	}
}

// With --spans, each allocation has its span, in the file of lines and in the profile.
func TestTheFilesOfARunHaveTheSpans(t *testing.T) {
	lib, dir := simulated.DriverCopy(t), t.TempDir()
	p := run(t, "python3", "testdata/workload.py", lib, publisher(t), "4", "2000")
	lines, file := filepath.Join(dir, "lines"), filepath.Join(dir, "p")
	pid := p.PID()
	out, wait := igGPU(t, "cuda_alloc", pid, "--spans", "--jsonl-out", lines, "--pprof-out", file)
	require.Eventually(t, func() bool {
		text, err := os.ReadFile(out)
		return err == nil && bytes.Contains(text, []byte(`"status":"attached"`))
	}, waitLimit, 50*time.Millisecond, "nothing is attached")
	p.next()
	p.wait("done")
	want := truth(t, p.dir)
	for deadline := time.Now().Add(waitLimit); !maps.Equal(want, inLines(t, lines, pid)); time.Sleep(200 * time.Millisecond) {
		require.True(t, time.Now().Before(deadline), "the file does not get the rows while the process lives")
	}
	p.next()
	p.Wait()
	stderr, err := wait()
	require.NoError(t, err, stderr)
	require.Contains(t, stderr, "publishes its spans by")

	requireSpans(t, want, inLines(t, lines, pid), 500)

	raw, err := os.ReadFile(file)
	require.NoError(t, err)
	decoded, err := pprof.Decode(bytes.NewReader(raw))
	require.NoError(t, err)
	bytesOf := map[profile.Span]int64{}
	for _, r := range decoded.Rows {
		bytesOf[r.Span] += r.AllocBytes
	}
	require.Len(t, bytesOf, len(want))
	for k, c := range want {
		require.EqualValues(t, c.allocBytes, bytesOf[profile.ParseSpan(k.span)], k.span)
	}
}

// inLines adds up the rows of a process in a file of lines, by span. The last line of a row
// is its state; a line that is being written is left out.
func inLines(t *testing.T, file string, pid int) map[key]counts {
	t.Helper()
	type line struct {
		Type         string
		PID          uint32
		Row          string
		Span         string `json:"span_id"`
		AllocBytes   uint64 `json:"alloc_bytes"`
		AllocObjects uint64 `json:"alloc_objects"`
		FreedBytes   uint64 `json:"freed_bytes"`
		FreedObjects uint64 `json:"freed_objects"`
	}
	content, err := os.ReadFile(file)
	require.NoError(t, err)
	last := map[string]line{}
	for text := range bytes.Lines(content[:bytes.LastIndexByte(content, '\n')+1]) {
		var l line
		require.NoError(t, json.Unmarshal(text, &l))
		if l.Type == "alloc" && l.PID == uint32(pid) {
			last[l.Row] = l
		}
	}
	have := map[key]counts{}
	for _, l := range last {
		k := key{l.PID, l.Span}
		have[k] = have[k].plus(counts{l.AllocBytes, l.AllocObjects, l.FreedBytes, l.FreedObjects, l.AllocBytes - l.FreedBytes})
	}
	return have
}

// The shares of the samples are those of the processor's time, by span.
func TestSamplesHaveTheirSpans(t *testing.T) {
	dir := t.TempDir()
	p := run(t, "python3", "testdata/burn.py", publisher(t), "3")
	file := filepath.Join(dir, "p")
	_, interrupt, wait := startIGGPU(t, "py_stack", p.PID(), "--spans", "--frequency", "1997", "--pprof-out", file)
	time.Sleep(2 * time.Second)
	p.next()
	said := p.wait("done")
	interrupt()
	var used map[string]float64
	require.NoError(t, json.Unmarshal([]byte(said), &used))
	stderr, err := wait()
	require.NoError(t, err, stderr)
	raw, err := os.ReadFile(file)
	require.NoError(t, err)
	decoded, err := pprof.Decode(bytes.NewReader(raw))
	require.NoError(t, err)
	samples, all, seconds := map[string]float64{}, 0.0, 0.0
	for _, r := range decoded.Rows {
		samples[r.Span.String()] += float64(r.Samples)
		all += float64(r.Samples)
	}
	for _, s := range used {
		seconds += s
	}
	require.Greater(t, all, 1000.0)
	require.Len(t, samples, 3)
	for id, s := range used {
		require.InDelta(t, s/seconds, samples[id]/all, 0.03, "span %q", id)
	}
}

// Spans of threads that are not the current one are refused, with the reason.
func TestSpansOfOtherThreadsAreRefused(t *testing.T) {
	for _, more := range [][]string{{"--wall"}, {"--mode", "dump"}} {
		_, wait := igGPU(t, "py_stack", os.Getpid(), append(more, "--spans", "--timeout", "2")...)
		stderr, err := wait()
		var exit *exec.ExitError
		require.True(t, errors.As(err, &exit), "%v: %s", err, stderr)
		require.Contains(t, stderr, "--spans is for --mode profile, without --wall")
	}
}
