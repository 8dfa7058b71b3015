// SPDX-License-Identifier: Apache-2.0

package daemon

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

// workload is a process of e2e's steps.py, which has loaded the driver.
type workload struct {
	t       testing.TB
	cmd     *exec.Cmd
	in      io.WriteCloser
	answers chan string // closed at the end of the output
	dir     string      // journals
}

func startWorkload(t testing.TB, env ...string) *workload {
	t.Helper()
	driver, err := buildDriver()
	require.NoError(t, err)
	w := &workload{t: t, dir: t.TempDir(), answers: make(chan string, 16)}
	w.cmd = exec.Command("python3", "../e2e/testdata/steps.py")
	w.cmd.Env = append(append(os.Environ(), "SIMCUDA_JOURNAL="+w.dir, "SIMCUDA_INIT_MS=0"), env...)
	w.cmd.Stderr = os.Stderr
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
		_ = w.cmd.Process.Kill()
		for range w.answers {
		}
		_ = w.cmd.Wait()
	})
	w.do("load %s", driver)
	return w
}

func (w *workload) pid() int { return w.cmd.Process.Pid }

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

// do is a step that the driver is to grant in full.
func (w *workload) do(format string, args ...any) {
	w.t.Helper()
	require.Equal(w.t, "ok 0", w.tell(format, args...), format)
}

// truth is the driver's own sums of the process so far.
func (w *workload) truth() journal.Sums {
	w.t.Helper()
	journals, err := journal.ReadDir(w.dir)
	require.NoError(w.t, err)
	summary, err := journal.Summarize(journals)
	require.NoError(w.t, err)
	for _, total := range summary.Totals {
		if total.Process.PID == uint32(w.pid()) {
			return total.Sums
		}
	}
	require.Fail(w.t, "the driver kept no journal")
	return journal.Sums{}
}

// frame is what a function of steps.py looks like in a row.
func frame(t testing.TB, function string) string {
	t.Helper()
	source, err := os.ReadFile("../e2e/testdata/steps.py")
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
