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

type column struct {
	id    string
	value func(compare.Row) int64
	// isLevel: can be read back from one window only.
	isLevel bool
}

// columns are the profile types of push.v1, or of OTLP, where the profile's name is
// also its period type.
func columns(isOTLP bool) []column {
	all := []column{
		{"cuda_alloc:alloc_space:bytes:", func(r compare.Row) int64 { return r.AllocBytes }, false},
		{"cuda_alloc:alloc_objects:count:", func(r compare.Row) int64 { return r.AllocObjects }, false},
		{"cuda_inuse:inuse_space:bytes:", func(r compare.Row) int64 { return r.InUseBytes }, true},
		{"cuda_inuse:inuse_objects:count:", func(r compare.Row) int64 { return r.InUseObjects }, true},
	}
	for i := range all {
		if isOTLP {
			all[i].id += all[i].id[:len("cuda_alloc")] + ":bytes"
		} else {
			all[i].id += "space:bytes"
		}
	}
	if !isOTLP {
		all = append(all, column{"process_cpu:malloc:bytes::", func(r compare.Row) int64 { return r.AllocBytes }, false})
	}
	return all
}

// require what is stored to be what the rows say: by function, file and line, to the
// byte.
func (p *pyroscope) require(t *testing.T, selector string, rows []compare.Row, columns []column, levels bool) {
	t.Helper()
	for _, c := range columns {
		if c.isLevel && !levels {
			continue
		}
		stored := p.stored(t, c.id, selector)
		want := wanted(rows, c.value)
		require.Equal(t, want, got(stored, rows), c.id)
		all := int64(0)
		for _, r := range rows {
			all += c.value(r)
		}
		require.Equal(t, all, sum(stored), c.id)
		t.Logf("%s: %d functions, %d in all", c.id, len(want), all)
	}
}

func TestPyroscopeHasWhatTheJournalSays(t *testing.T) {
	p := startPyroscope(t)
	push := []string{"--pyroscope-url", p.URL, "--pyroscope-compat"}
	otlp := func(protocol string) []string { return []string{"--otlp-endpoint", p.URL, "--otlp-protocol", protocol} }
	for _, c := range []struct {
		name    string
		flags   []string
		windows string
	}{
		{"push-once", push, "1h"}, {"push-windows", push, "1s"},
		{"otlp-grpc-once", otlp("grpc"), "1h"}, {"otlp-http-windows", otlp("http"), "1s"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := startWorkload(t)
			g := trace(t, w.cmd.Process.Pid, append(c.flags, "--cluster", c.name, "--export-interval", c.windows)...)
			w.say(t, "go")
			w.wait(t, "holding")
			once := c.windows == "1h"
			if !once {
				time.Sleep(3 * time.Second) // windows in which nothing happens add nothing
			}
			rows := w.truth(t)
			g.end(t)
			isOTLP := strings.HasPrefix(c.name, "otlp")
			label := "cluster"
			if isOTLP {
				label = "k8s_cluster_name"
			}
			p.require(t, fmt.Sprintf(`{%s=%q}`, label, c.name), rows, columns(isOTLP), once)
			w.say(t, "end")
			w.wait(t, "done")
		})
	}
	for _, c := range append(columns(false), columns(true)...) {
		require.Contains(t, p.types(t), c.id)
	}
	for _, selector := range []string{`{cluster="push-once"}`, `{k8s_cluster_name="otlp-grpc-once"}`} {
		all := p.series(t, selector)
		require.NotEmpty(t, all)
		for _, labels := range all {
			require.Contains(t, labels, "service_name=python3")
			require.Regexp(t, `kind=(device|managed|host|array|vmm|pool)`, labels)
			require.NotContains(t, labels, "pid=")
		}
	}
}

// TestNothingIsLostWhilePyroscopeIsAway: it is stopped in the middle of the run.
func TestNothingIsLostWhilePyroscopeIsAway(t *testing.T) {
	p := startPyroscope(t)
	w := startWorkload(t)
	g := trace(t, w.cmd.Process.Pid, "--pyroscope-url", p.URL, "--pyroscope-compat", "--export-interval", "1s", "--cluster", "away")
	time.Sleep(1500 * time.Millisecond)
	p.stop(t)
	w.say(t, "go")
	w.wait(t, "holding")
	rows := w.truth(t)
	time.Sleep(8 * time.Second)
	p.start(t)
	time.Sleep(3 * time.Second)
	g.end(t)
	require.Contains(t, g.stderr.String(), "Pyroscope did not take data, which is kept and sent again")
	p.require(t, `{cluster="away"}`, rows, columns(false), false)
	w.say(t, "end")
	w.wait(t, "done")
}

// TestPyroscopeShowsTheLeakOfTheExample: what the README promises.
func TestPyroscopeShowsTheLeakOfTheExample(t *testing.T) {
	p := startPyroscope(t)
	dir := t.TempDir()
	cmd := exec.Command("python3", "../../examples/inference/inference.py", "--libcuda", built(t, "build/simcuda/libcuda.so.1", "test-backends"),
		"--devices", "1", "--leak", "--imports", "4", "--seconds", "10", "--hold", "60")
	cmd.Env = append(os.Environ(), "SIMCUDA_JOURNAL="+dir)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	g := trace(t, cmd.Process.Pid, "--pyroscope-url", p.URL, "--export-interval", "1h")
	summary := make(chan string, 1)
	go func() {
		for lines := bufio.NewScanner(out); lines.Scan(); {
			if strings.Contains(lines.Text(), "in_use_bytes") {
				summary <- lines.Text()
			}
		}
	}()
	select {
	case <-summary:
	case <-time.After(patience):
		require.Fail(t, "the example does not end")
	}
	journals, err := journal.ReadDir(dir)
	require.NoError(t, err)
	total, err := journal.Summarize(journals)
	require.NoError(t, err)
	g.end(t)
	allocated, inuse := int64(0), map[string]int64{}
	for _, k := range total.Keys() {
		allocated += int64(total.Rows[k].AllocBytes)
		inuse[k.Kind.String()] += int64(total.Rows[k].InUseBytes())
	}
	require.Equal(t, allocated, sum(p.stored(t, "cuda_alloc:alloc_space:bytes:space:bytes", `{service_name="python3"}`)))
	for kind, bytes := range inuse {
		if bytes > 0 {
			require.Equal(t, bytes, sum(p.stored(t, "cuda_inuse:inuse_space:bytes:space:bytes", fmt.Sprintf(`{service_name="python3",kind=%q}`, kind))), kind)
		}
	}
	held := p.stored(t, "cuda_inuse:inuse_space:bytes:space:bytes", `{service_name="python3"}`)
	byFunction := map[string]int64{}
	for _, s := range held.Sample {
		for _, l := range s.Location {
			byFunction[l.Line[0].Function.Name] += s.Value[0]
		}
	}
	t.Logf("allocated %d, in use %v, VisionEncoder._embed_patches %d", allocated, inuse, byFunction["VisionEncoder._embed_patches"])
	require.Positive(t, byFunction["VisionEncoder._embed_patches"])
	require.Positive(t, byFunction["GPUModelRunner._allocate_kv_cache_tensors"])
}
