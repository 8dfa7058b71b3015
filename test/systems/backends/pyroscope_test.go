// SPDX-License-Identifier: Apache-2.0

package backends

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	pprof "github.com/google/pprof/profile"
	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/examples/simcuda/journal"
	"github.com/gpu-gadgets/gpu-gadgets/test/support/compare"
)

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

// requireSame names the functions that differ, and by how much.
func requireSame(t *testing.T, want, got values, name string) {
	t.Helper()
	var all []string
	for f, w := range want {
		if g := got[f]; g != w {
			all = append(all, fmt.Sprintf("%s (%s:%d): self %+d, total %+d of %d", f.Function, filepath.Base(f.File), f.Line, g[0]-w[0], g[1]-w[1], w[1]))
		}
	}
	slices.Sort(all)
	require.Empty(t, strings.Join(all, "\n"), "%s: what is stored, less what is true", name)
	require.Len(t, got, len(want), name)
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

// require checks that the stored data matches the rows: by function, file and line, to
// the byte.
func (p *pyroscope) require(t *testing.T, selector string, rows []compare.Row, columns []column, levels bool) {
	t.Helper()
	for _, c := range columns {
		if c.isLevel && !levels {
			continue
		}
		stored := p.stored(t, c.id, selector)
		want := wanted(rows, c.value)
		requireSame(t, want, got(stored, rows), c.id)
		all := int64(0)
		for _, r := range rows {
			all += c.value(r)
		}
		require.Equal(t, all, sum(stored), c.id)
		t.Logf("%s: %d functions, %d in all", c.id, len(want), all)
	}
}

func TestPyroscopeMatchesTheJournal(t *testing.T) {
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
			g := trace(t, "cuda_alloc", w.PID(), append(c.flags, "--cluster", c.name, "--export-interval", c.windows)...)
			w.Say("go")
			w.wait(t, "holding")
			once := c.windows == "1h"
			if !once {
				time.Sleep(3 * time.Second) // windows without events add nothing
			}
			rows := w.truth(t)
			g.end(t)
			isOTLP := strings.HasPrefix(c.name, "otlp")
			label := "cluster"
			if isOTLP {
				label = "k8s_cluster_name"
			}
			p.require(t, fmt.Sprintf(`{%s=%q}`, label, c.name), rows, columns(isOTLP), once)
			w.Say("end")
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

// TestPyroscopeShowsTheLeakOfTheExample: the example of the README.
func TestPyroscopeShowsTheLeakOfTheExample(t *testing.T) {
	p := startPyroscope(t)
	dir := t.TempDir()
	cmd := exec.Command("python3", "../../../examples/inference/inference.py", "--libcuda", built(t, "build/simcuda/libcuda.so.1"),
		"--devices", "1", "--leak", "--imports", "4", "--seconds", "10", "--hold", "60")
	cmd.Env = append(os.Environ(), "SIMCUDA_JOURNAL="+dir)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	g := trace(t, "cuda_alloc", cmd.Process.Pid, "--pyroscope-url", p.URL, "--export-interval", "1h")
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
	case <-time.After(waitLimit):
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

// TestPyroscopeHasTheSamplesOfThePythonProfile: those that the user's file has.
func TestPyroscopeHasTheSamplesOfThePythonProfile(t *testing.T) {
	p := startPyroscope(t)
	lines := filepath.Join(t.TempDir(), "samples.jsonl")
	cmd := exec.Command("python3", "-c", "def spin():\n  while True:\n    pass\nspin()")
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	g := trace(t, "py_stack", cmd.Process.Pid, "--pyroscope-url", p.URL, "--export-interval", "1s", "--jsonl-out", lines)
	time.Sleep(5 * time.Second)
	g.end(t)
	content, err := os.ReadFile(lines)
	require.NoError(t, err)
	latest, want := map[string]int64{}, int64(0)
	for line := range strings.Lines(string(content)) {
		var row struct {
			Type, Process string
			TID           int
			Samples       int64
			Stack         json.RawMessage
		}
		require.NoError(t, json.Unmarshal([]byte(line), &row))
		latest[fmt.Sprint(row.Process, row.TID, string(row.Stack))] = row.Samples // cumulative
	}
	for _, n := range latest {
		want += n
	}
	stored := p.stored(t, "python_cpu:samples:count:cpu:nanoseconds", `{service_name="python3"}`)
	require.Positive(t, want)
	require.Equal(t, want, sum(stored))
	spin := int64(0)
	for _, s := range stored.Sample {
		if s.Location[0].Line[0].Function.Name == "spin" {
			spin += s.Value[0]
		}
	}
	t.Logf("%d samples, %d in spin", want, spin)
	require.Greater(t, spin, want/2)
}
