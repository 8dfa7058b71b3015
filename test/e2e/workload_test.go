// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/examples/simcuda/journal"
)

var buildDriver = sync.OnceValues(func() (string, error) {
	out, err := exec.Command("make", "-s", "-C", "../../examples/simcuda").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("build the simulated driver: %w: %s", err, out)
	}
	return filepath.Abs("../../build/simcuda/libcuda.so.1")
})

// driver is the simulated driver, built from today's sources.
func driver(t testing.TB) string {
	t.Helper()
	path, err := buildDriver()
	require.NoError(t, err)
	return path
}

// driverIn copies the driver, so that it is a file that nobody has seen yet.
func driverIn(t testing.TB, dir string) string {
	t.Helper()
	content, err := os.ReadFile(driver(t))
	require.NoError(t, err)
	require.NoError(t, os.MkdirAll(dir, 0o755))
	path := filepath.Join(dir, "libcuda.so.1")
	require.NoError(t, os.WriteFile(path, content, 0o755))
	return path
}

// workload is a process of testdata/steps.py.
type workload struct {
	t       testing.TB
	cmd     *exec.Cmd
	in      io.WriteCloser
	answers chan string // closed at the end of the output
	dir     string      // journals
	ended   bool
}

// startWorkload starts the process. It does not load the driver yet.
func startWorkload(t testing.TB, env ...string) *workload {
	t.Helper()
	w := &workload{t: t, dir: t.TempDir(), answers: make(chan string, 16)}
	w.cmd = exec.Command("python3", "testdata/steps.py")
	w.cmd.Env = append(append(os.Environ(), "SIMCUDA_JOURNAL="+w.dir, "SIMCUDA_INIT_MS=0"), env...)
	w.cmd.Stderr = os.Stderr
	var err error
	w.in, err = w.cmd.StdinPipe()
	require.NoError(t, err)
	out, err := w.cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, w.cmd.Start())
	go func() {
		defer close(w.answers)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			w.answers <- lines.Text()
		}
	}()
	t.Cleanup(func() {
		if !w.ended {
			_ = w.cmd.Process.Kill()
			for range w.answers {
			}
			_ = w.cmd.Wait()
		}
	})
	return w
}

func (w *workload) pid() int { return w.cmd.Process.Pid }

// tell sends a step and returns the answer.
func (w *workload) tell(format string, args ...any) string {
	w.t.Helper()
	_, err := fmt.Fprintf(w.in, format+"\n", args...)
	require.NoError(w.t, err)
	select {
	case answer, ok := <-w.answers:
		require.True(w.t, ok, "the workload died at: "+format)
		return answer
	case <-time.After(patience):
		require.Fail(w.t, "the workload hangs at: "+format)
	}
	return ""
}

// do sends a step that the driver is to grant in full.
func (w *workload) do(format string, args ...any) {
	w.t.Helper()
	require.Equal(w.t, "ok 0", w.tell(format, args...), format)
}

// end lets the process exit with what it holds, which has to go well.
func (w *workload) end() {
	w.t.Helper()
	require.NoError(w.t, w.in.Close())
	for range w.answers {
	}
	w.ended = true
	require.NoError(w.t, w.cmd.Wait())
}

// truth is the driver's own sums of the process, also while it lives.
func (w *workload) truth() journal.Total {
	w.t.Helper()
	for _, total := range w.summary().Totals {
		if total.Process.PID == uint32(w.pid()) {
			return total
		}
	}
	require.Fail(w.t, "the driver kept no journal")
	return journal.Total{}
}

func (w *workload) summary() *journal.Summary {
	w.t.Helper()
	journals, err := journal.ReadDir(w.dir)
	require.NoError(w.t, err)
	summary, err := journal.Summarize(journals)
	require.NoError(w.t, err)
	return summary
}

// requireExact compares the sums over a process's rows with the driver's.
func (w *workload) requireExact(rows []row) {
	w.t.Helper()
	var got journal.Sums
	for _, r := range rows {
		got.AllocBytes += r.AllocBytes
		got.AllocObjects += r.AllocObjects
		got.FreedBytes += r.FreedBytes
		got.FreedObjects += r.FreedObjects
		got.ImplicitBytes += r.ImplicitBytes
		got.ImplicitObjects += r.ImplicitObjects
	}
	truth := w.truth()
	want := journal.Sums{
		AllocBytes: truth.AllocBytes, AllocObjects: truth.AllocObjects,
		FreedBytes: truth.FreedBytes, FreedObjects: truth.FreedObjects,
		ImplicitBytes: truth.ImplicitBytes, ImplicitObjects: truth.ImplicitObjects,
	}
	if w.ended {
		want.ImplicitBytes += truth.InUseBytes()
		want.ImplicitObjects += truth.InUseObjects()
	}
	require.Equal(w.t, want, got)
}

// counts is how many allocations the rows hold, for waiting.
func allocs(n uint64) func([]row) bool {
	return func(rows []row) bool {
		sum := uint64(0)
		for _, r := range rows {
			sum += r.AllocObjects
		}
		return sum >= n
	}
}

// frame is what a function of steps.py looks like in a row.
func frame(t testing.TB, function string) string {
	t.Helper()
	source, err := os.ReadFile("testdata/steps.py")
	require.NoError(t, err)
	line := 0
	for text := range strings.Lines(string(source)) {
		line++
		if strings.HasSuffix(strings.TrimSpace(text), "# line of "+function) {
			return fmt.Sprintf("%s (steps.py:%d)", function, line)
		}
	}
	require.Fail(t, "no such function: "+function)
	return ""
}
