// SPDX-License-Identifier: Apache-2.0

package backends

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/examples/simcuda/journal"
	"github.com/gpu-gadgets/gpu-gadgets/test/support/bpftest"
	"github.com/gpu-gadgets/gpu-gadgets/test/support/compare"
	"github.com/gpu-gadgets/gpu-gadgets/test/support/subject"
)

// gadget is a run of bin/ig-gpu.
type gadget struct {
	cmd    *exec.Cmd
	stderr bytes.Buffer
}

// trace starts ig-gpu on a process and returns once it is attached.
func trace(t *testing.T, name string, pid int, args ...string) *gadget {
	t.Helper()
	bpftest.RequireRoot(t)
	g := &gadget{}
	g.cmd = exec.Command(built(t, "bin/ig-gpu"), append([]string{
		"run", name, "--host", "--pid", fmt.Sprint(pid), "-o", "json"}, args...)...)
	g.cmd.Stderr = &g.stderr
	out, err := g.cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, g.cmd.Start())
	attached, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		lines := bufio.NewScanner(out)
		lines.Buffer(nil, 64<<20)
		for closed := false; lines.Scan(); {
			// A library has probes, or there are rows.
			isAttached := strings.Contains(lines.Text(), `"status":"attached"`) || strings.Contains(lines.Text(), `"samples":`)
			if !closed && isAttached && strings.Contains(lines.Text(), fmt.Sprintf(`"pid":%d`, pid)) {
				closed = true
				close(attached)
			}
		}
	}()
	t.Cleanup(func() {
		if g.cmd.ProcessState == nil {
			_ = g.cmd.Process.Kill()
			_ = g.cmd.Wait()
		}
		if t.Failed() {
			t.Logf("stderr of ig-gpu:\n%s", g.stderr.String())
		}
	})
	select {
	case <-attached:
	case <-ended:
		_ = g.cmd.Wait()
		require.Fail(t, "ig-gpu has ended")
	case <-time.After(waitLimit):
		require.Fail(t, "ig-gpu does not attach")
	}
	return g
}

// end interrupts the run, which sends the rest.
func (g *gadget) end(t *testing.T) {
	t.Helper()
	require.NoError(t, g.cmd.Process.Signal(syscall.SIGINT))
	err := g.cmd.Wait()
	require.NoError(t, err, g.stderr.String())
	require.NotContains(t, g.stderr.String(), "did not get")
}

// workload is a program on the simulated driver whose stacks are known: test/gadgets/exact's
// random calls, or the inference example.
type workload struct {
	*subject.Process
	dir string // journals
}

func startWorkload(t *testing.T, args ...string) *workload {
	t.Helper()
	dir := t.TempDir()
	return startPython(t, dir, exec.Command("python3", append([]string{"../../gadgets/exact/workload.py", "--libcuda", built(t, "build/simcuda/libcuda.so.1"), "--out", dir,
		"--calls", "8000", "--start-on-stdin", "--hold"}, args...)...))
}

// startExample starts the inference example, whose stacks are known as well. It begins on
// a line, and ends after it has printed each device's memory in use.
func startExample(t *testing.T, args ...string) *workload {
	t.Helper()
	return startPython(t, t.TempDir(), exec.Command("python3", append([]string{"tagged.py", built(t, "build/simcuda/libcuda.so.1")}, args...)...))
}

const decodeSteps, decodeLayers, decodeBatch = 1000, 8, 32

// startDecoding is a loop of kernels, copies and waits (examples/timeline), which begins
// at a word and is "ready" again when it is over. A library in it knows the GPU's times.
func startDecoding(t *testing.T) *workload {
	t.Helper()
	cmd := exec.Command("python3", "../../../examples/timeline/decode.py", "--driver", built(t, "build/simcuda/libcuda.so.1"),
		"--steps", fmt.Sprint(decodeSteps), "--layers", fmt.Sprint(decodeLayers), "--batch", fmt.Sprint(decodeBatch), "--pause", "0.04")
	cmd.Env = []string{"CUDA_INJECTION64_PATH=" + built(t, "build/simcupti/libparcagpucupti.so")}
	return startPython(t, t.TempDir(), cmd)
}

// startPython waits until the program has loaded the library. cmd.Env is added to this
// process's environment.
func startPython(t *testing.T, dir string, cmd *exec.Cmd) *workload {
	t.Helper()
	cmd.Env = append(append(os.Environ(), cmd.Env...), "SIMCUDA_JOURNAL="+dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // it forks
	w := &workload{subject.Start(t, cmd), dir}
	w.wait(t, "ready")
	return w
}

func (w *workload) wait(t *testing.T, key string) {
	t.Helper()
	text := w.Line()
	if text == key {
		return
	}
	var fields map[string]json.RawMessage
	require.NoError(t, json.Unmarshal([]byte(text), &fields), text)
	require.Contains(t, fields, key)
}

// truth returns the rows of a perfect tracer.
func (w *workload) truth(t *testing.T) []compare.Row {
	t.Helper()
	rows := w.soFar(t)
	require.NotEmpty(t, rows)
	return rows
}

// soFar is truth while the program continues; nothing before its first call.
func (w *workload) soFar(t *testing.T) []compare.Row {
	t.Helper()
	journals, err := journal.ReadDir(w.dir)
	require.NoError(t, err)
	truth, err := compare.ReadTruth(w.dir)
	require.NoError(t, err)
	rows, err := compare.Expected(journals, truth, compare.Options{MaxFrames: 128})
	require.NoError(t, err)
	return rows
}
