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

	pprof "github.com/google/pprof/profile"
	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/examples/simcuda/journal"
	"github.com/gpu-gadgets/gpu-gadgets/test/bpftest"
	"github.com/gpu-gadgets/gpu-gadgets/test/exact/compare"
)

// gadget is a run of bin/ig-gpu.
type gadget struct {
	cmd    *exec.Cmd
	stderr bytes.Buffer
}

// trace starts ig-gpu on a process and returns when it is attached.
func trace(t *testing.T, pid int, args ...string) *gadget {
	t.Helper()
	bpftest.RequireRoot(t)
	g := &gadget{}
	g.cmd = exec.Command(built(t, "bin/ig-gpu", "build"), append([]string{
		"run", "cuda_alloc", "--host", "--pid", fmt.Sprint(pid), "-o", "json"}, args...)...)
	g.cmd.Stderr = &g.stderr
	out, err := g.cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, g.cmd.Start())
	attached, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		lines := bufio.NewScanner(out)
		lines.Buffer(nil, 64<<20)
		for told := false; lines.Scan(); {
			if !told && strings.Contains(lines.Text(), fmt.Sprintf(`"pid":%d`, pid)) && strings.Contains(lines.Text(), `"status":"attached"`) {
				told = true
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
	case <-time.After(patience):
		require.Fail(t, "ig-gpu does not attach")
	}
	return g
}

// end interrupts the run, which sends what is left.
func (g *gadget) end(t *testing.T) {
	t.Helper()
	require.NoError(t, g.cmd.Process.Signal(syscall.SIGINT))
	err := g.cmd.Wait()
	require.NoError(t, err, g.stderr.String())
	require.NotContains(t, g.stderr.String(), "did not get")
}

// workload is test/exact's: random calls, whose stacks are known.
type workload struct {
	dir     string
	cmd     *exec.Cmd
	in      interface{ Write([]byte) (int, error) }
	answers chan string
}

func startWorkload(t *testing.T) *workload {
	t.Helper()
	w := &workload{dir: t.TempDir(), answers: make(chan string, 4)}
	w.cmd = exec.Command("python3", "../exact/workload.py", "--libcuda", built(t, "build/simcuda/libcuda.so.1", "test-backends"), "--out", w.dir,
		"--calls", "8000", "--start-on-stdin", "--hold")
	w.cmd.Stderr = os.Stderr
	in, err := w.cmd.StdinPipe()
	require.NoError(t, err)
	w.in = in
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
		if w.cmd.ProcessState == nil {
			_ = w.cmd.Process.Kill()
			_ = w.cmd.Wait()
		}
	})
	w.wait(t, "ready")
	return w
}

func (w *workload) wait(t *testing.T, key string) {
	t.Helper()
	select {
	case text := <-w.answers:
		var fields map[string]json.RawMessage
		require.NoError(t, json.Unmarshal([]byte(text), &fields), text)
		require.Contains(t, fields, key)
	case <-time.After(2 * patience):
		require.Fail(t, "the workload does not get to "+key)
	}
}

func (w *workload) say(t *testing.T, word string) {
	t.Helper()
	_, err := fmt.Fprintln(w.in, word)
	require.NoError(t, err)
}

// truth is what a perfect tracer would have.
func (w *workload) truth(t *testing.T) []compare.Row {
	t.Helper()
	journals, err := journal.ReadDir(w.dir)
	require.NoError(t, err)
	truth, err := compare.ReadTruth(w.dir)
	require.NoError(t, err)
	rows, err := compare.Expected(journals, truth, compare.Options{MaxFrames: 128})
	require.NoError(t, err)
	require.NotEmpty(t, rows)
	return rows
}

// values are self and total of a function, of Python frames alone.
type values map[compare.Frame][2]int64

func (v values) add(frames []compare.Frame, value int64) {
	if value == 0 {
		return
	}
	seen := map[compare.Frame]bool{}
	for i, f := range frames {
		sum := v[f]
		if i == 0 {
			sum[0] += value
		}
		if !seen[f] {
			sum[1] += value
		}
		seen[f] = true
		v[f] = sum
	}
}

func wanted(rows []compare.Row, value func(compare.Row) int64) values {
	v := values{}
	for _, r := range rows {
		v.add(r.Stack, value(r))
	}
	return v
}

// got are those of a profile that was read back. Frames that are in no row at all are
// native ones.
func got(p *pprof.Profile, rows []compare.Row) values {
	python := map[compare.Frame]bool{}
	for _, r := range rows {
		for _, f := range r.Stack {
			python[f] = true
		}
	}
	v := values{}
	for _, s := range p.Sample {
		var frames []compare.Frame
		for _, l := range s.Location {
			for _, line := range l.Line {
				f := compare.Frame{Function: line.Function.Name, File: line.Function.Filename, Line: uint32(line.Line)}
				if python[f] {
					frames = append(frames, f)
				}
			}
		}
		v.add(frames, s.Value[0])
	}
	return v
}

func sum(p *pprof.Profile) (total int64) {
	for _, s := range p.Sample {
		total += s.Value[0]
	}
	return total
}

// TestPyroscopeHasWhatTheJournalSays: by function, file and line, to the byte.
func TestPyroscopeHasWhatTheJournalSays(t *testing.T) {
	p := startPyroscope(t)
	columns := map[string]func(compare.Row) int64{
		"cuda_alloc:alloc_space:bytes:space:bytes":   func(r compare.Row) int64 { return r.AllocBytes },
		"cuda_alloc:alloc_objects:count:space:bytes": func(r compare.Row) int64 { return r.AllocObjects },
		"cuda_inuse:inuse_space:bytes:space:bytes":   func(r compare.Row) int64 { return r.InUseBytes },
		"cuda_inuse:inuse_objects:count:space:bytes": func(r compare.Row) int64 { return r.InUseObjects },
		"process_cpu:malloc:bytes::":                 func(r compare.Row) int64 { return r.AllocBytes },
	}
	for name, c := range map[string]struct {
		flags  []string
		levels bool // are read: of one window only
	}{
		"push-once":    {[]string{"--pyroscope-url", p.URL, "--pyroscope-compat", "--export-interval", "1h"}, true},
		"push-windows": {[]string{"--pyroscope-url", p.URL, "--pyroscope-compat", "--export-interval", "1s"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			w := startWorkload(t)
			g := trace(t, w.cmd.Process.Pid, append(c.flags, "--cluster", name)...)
			w.say(t, "go")
			w.wait(t, "holding")
			if !c.levels {
				time.Sleep(3 * time.Second) // windows in which nothing happens add nothing
			}
			rows := w.truth(t)
			g.end(t)
			selector := fmt.Sprintf(`{cluster=%q}`, name)
			for id, value := range columns {
				if strings.HasPrefix(id, "cuda_inuse") && !c.levels {
					continue
				}
				stored := p.stored(t, id, selector)
				want := wanted(rows, value)
				require.Equal(t, want, got(stored, rows), id)
				all := int64(0)
				for _, r := range rows {
					all += value(r)
				}
				require.Equal(t, all, sum(stored), id)
				t.Logf("%s: %d functions, %d in all", id, len(want), all)
			}
			w.say(t, "end")
			w.wait(t, "done")
		})
	}
	for id := range columns {
		require.Contains(t, p.types(t), id)
	}
	for _, labels := range p.series(t, `{cluster="push-once"}`) {
		require.Contains(t, labels, "service_name=python3")
		require.Regexp(t, `kind=(device|managed|host|array|vmm|pool)`, labels)
		require.NotContains(t, labels, "pid=")
	}
}
