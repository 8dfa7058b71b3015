// SPDX-License-Identifier: Apache-2.0

package pystack

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gpu-gadgets/gpu-gadgets/internal/format/pprof"
	"github.com/gpu-gadgets/gpu-gadgets/internal/profile"
	"github.com/gpu-gadgets/gpu-gadgets/test/support/bpftest"
	"github.com/gpu-gadgets/gpu-gadgets/test/support/subject/tables"
	"github.com/gpu-gadgets/gpu-gadgets/test/support/subject/usage"
)

// igGPU runs the product.
func igGPU(t *testing.T, arguments ...string) (stdout, stderr string, err error) {
	t.Helper()
	_, wait := startIGGPU(t, arguments...)
	return wait()
}

// startIGGPU is igGPU for a test that does something meanwhile.
func startIGGPU(t *testing.T, arguments ...string) (pid int, wait func() (stdout, stderr string, err error)) {
	t.Helper()
	bpftest.RequireRoot(t)
	const path = "../../../bin/ig-gpu"
	if _, err := os.Stat(path); err != nil {
		t.Fatalf("%v: run make build", err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, path, append([]string{"run", "py_stack", "--host"}, arguments...)...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return cmd.Process.Pid, func() (string, string, error) {
		err := cmd.Wait()
		return out.String(), errs.String(), err
	}
}

// sampled runs the product on a program that computes all the time, and lets it compute only
// from the moment on when its samples are taken.
func sampled(t *testing.T, w *workload, arguments ...string) (stderr string, err error) {
	t.Helper()
	resume := w.hold(t)
	pid, wait := startIGGPU(t, append([]string{"--pid", fmt.Sprint(w.Process.Pid)}, arguments...)...)
	for end := time.Now().Add(20 * time.Second); !hasPerfEvents(pid) && time.Now().Before(end); {
		time.Sleep(20 * time.Millisecond)
	}
	resume()
	_, stderr, err = wait()
	return stderr, err
}

// hasPerfEvents reports whether a process has opened the clocks of the sampler.
func hasPerfEvents(pid int) bool {
	files, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
	return slices.ContainsFunc(files, func(file string) bool {
		to, _ := os.Readlink(file)
		return strings.Contains(to, "[perf_event]")
	})
}

// cpuSeconds is the CPU time that the threads of a process have used.
func cpuSeconds(t *testing.T, pid int) float64 {
	t.Helper()
	ran, _, err := usage.Scheduled(pid)
	if err != nil {
		t.Fatal(err)
	}
	return ran.Seconds()
}

// TestRunWritesAProfile: the command line's frequency is the one that is sampled
// at, and the files have the samples of the table.
func TestRunWritesAProfile(t *testing.T) {
	w := start(t, pythons(t)[0], "testdata/shares.py")
	w.read(t, nil)
	dir := t.TempDir()
	file, lines := filepath.Join(dir, "p"), filepath.Join(dir, "j")
	before := cpuSeconds(t, w.Process.Pid)
	stderr, err := sampled(t, w, "--timeout", "2", "--frequency", "499", "--pprof-out", file, "--jsonl-out", lines, "--flamegraph-out", filepath.Join(dir, "f"))
	if err != nil {
		t.Fatalf("%v\n%s", err, stderr)
	}
	used := cpuSeconds(t, w.Process.Pid) - before
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	p, err := pprof.Decode(bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	sum := p.Sum()
	if p.Subject != profile.CPU || p.Period != time.Second/499 || sum.Nanoseconds != sum.Samples*int64(p.Period) {
		t.Errorf("subject %v, period %v, %d samples for %d ns", p.Subject, p.Period, sum.Samples, sum.Nanoseconds)
	}
	// The default, 99 Hz, would have at most 99 of each second.
	if float64(sum.Samples) < 1.5*99*used {
		t.Errorf("%d samples in %.1f s of CPU time at 499 Hz", sum.Samples, used)
	}
	if leaf := p.Frames(profile.Samples)[0].Frame.Function; leaf != "<module>" {
		t.Errorf("the largest total is that of %s", leaf)
	}
	var last int64
	text, err := os.ReadFile(lines)
	if err != nil {
		t.Fatal(err)
	}
	newest := map[string]int64{}
	for line := range strings.Lines(string(text)) {
		var row struct {
			Type    string
			Samples int64
			Stack   json.RawMessage
		}
		if err := json.Unmarshal([]byte(line), &row); err != nil || row.Type != "sample" {
			t.Fatalf("%v: %s", err, line)
		}
		newest[string(row.Stack)] = row.Samples
	}
	for _, n := range newest {
		last += n
	}
	if last != sum.Samples {
		t.Errorf("%d samples as lines, %d as pprof", last, sum.Samples)
	}
}

// TestRunDumps: text and rows are the same for a thread.
func TestRunDumps(t *testing.T) {
	w := start(t, pythons(t)[0], "testdata/threads.py", "3")
	want := truth(t, w)
	pid := fmt.Sprint(w.Process.Pid)
	stdout, stderr, err := igGPU(t, "--pid", pid, "--mode", "dump")
	if err != nil {
		t.Fatalf("%v\n%s", err, stderr)
	}
	if !strings.HasPrefix(stdout, "Process "+pid+": ") {
		t.Errorf("it begins with %.60q", stdout)
	}
	for tid, f := range want {
		head := fmt.Sprintf("Thread %d (idle: ", tid)
		_, rest, ok := strings.Cut(stdout, head)
		_, rest, _ = strings.Cut(rest, "\n")
		line := fmt.Sprintf("    %s (threads.py:%d)\n", f[0].name, f[0].line)
		if !ok || !strings.HasPrefix(rest, line) {
			t.Errorf("want %q followed by %q in\n%s", head, line, stdout)
		}
	}
	stdout, stderr, err = igGPU(t, "--pid", pid, "--mode", "dump", "--format", "rows", "-o", "threads:json")
	if err != nil {
		t.Fatalf("%v\n%s", err, stderr)
	}
	var rows []struct {
		Proc                         struct{ Pid, Tid uint32 }
		State, Syscall, Frame, Stack string
	}
	if err := json.NewDecoder(tables.Reader(strings.NewReader(stdout))).Decode(&rows); err != nil {
		t.Fatalf("%v: %s", err, stdout)
	}
	if len(rows) != len(want)+1 {
		t.Errorf("%d rows, want %d", len(rows), len(want)+1)
	}
	for _, row := range rows {
		f, ok := want[row.Proc.Tid]
		if ok && (row.State != "sleeping" || row.Frame != fmt.Sprintf("%s (threads.py:%d)", f[0].name, f[0].line)) {
			t.Errorf("thread %d: %+v, want %v", row.Proc.Tid, row, f[0])
		}
	}
}

// TestRunReportsWhatIsWrong: one line, a failure, and no waiting.
func TestRunReportsWhatIsWrong(t *testing.T) {
	sleep := start(t, "sleep", "60")
	claims := filepath.Join(t.TempDir(), "claims")
	if out, err := exec.Command("gcc", "-rdynamic", "-o", claims, "testdata/claims.c").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	unsupported := start(t, claims)
	for name, c := range map[string]struct {
		arguments []string
		want      string
	}{
		"wrong pid":     {[]string{"--mode", "dump", "--pid", "4194999"}, "no such process"},
		"not Python":    {[]string{"--mode", "dump", "--pid", fmt.Sprint(sleep.Process.Pid)}, "no Python interpreter"},
		"unsupported":   {[]string{"--mode", "dump", "--pid", fmt.Sprint(unsupported.Process.Pid)}, "CPython 3.14 in the selected processes is not supported"},
		"contradiction": {[]string{"--mode", "dump", "--wall"}, "--mode profile"},
	} {
		began := time.Now()
		stdout, stderr, err := igGPU(t, c.arguments...)
		if err == nil || !strings.Contains(stderr, c.want) || stdout != "" || time.Since(began) > time.Minute {
			t.Errorf("%s: %v after %v, stdout %q, stderr %q", name, err, time.Since(began), stdout, stderr)
		}
	}
}
