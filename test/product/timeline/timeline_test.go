// SPDX-License-Identifier: Apache-2.0

// Package timeline tests the timelines of ig-gpu as a user gets them: examples on the
// simulated driver, traced by bin/ig-gpu, and the parsed file. The truth is the
// workloads' own journal.
package timeline

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/test/support/bpftest"
	"github.com/gpu-gadgets/gpu-gadgets/test/support/simulated"
	"github.com/gpu-gadgets/gpu-gadgets/test/support/subject"
)

// waitLimit is how long a condition may take on a busy machine.
const waitLimit = 2 * time.Minute

// workload is an example that waits for a line to begin, and another to end.
type workload struct {
	*subject.Process
	t       *testing.T
	journal string
}

func run(t *testing.T, script string, args ...string) *workload {
	t.Helper()
	bpftest.RequireRoot(t)
	w := &workload{t: t, journal: filepath.Join(t.TempDir(), "journal")}
	args = append([]string{"../../../examples/timeline/" + script}, append(args, "--driver", simulated.Driver(t), "--journal", w.journal)...)
	w.Process = subject.Start(t, exec.Command("python3", args...))
	w.Timeout = time.Hour // as long as go test waits: it works to its end
	w.Expect("ready")
	return w
}

// work lets it run to its end, where it waits again.
func (w *workload) work() {
	w.t.Helper()
	w.Say("")
	w.Expect("ready")
}

// note is one line of the workload's journal; times are CLOCK_BOOTTIME.
type note struct {
	Name       string
	Start, End uint64
	Bytes      int64
	Step       int
}

func (w *workload) notes() (all []note) {
	w.t.Helper()
	text, err := os.ReadFile(w.journal)
	require.NoError(w.t, err)
	for line := range strings.Lines(string(text)) {
		var n struct {
			Name    string
			StartNS uint64 `json:"start_ns"`
			EndNS   uint64 `json:"end_ns"`
			Bytes   int64
			Step    int
		}
		require.NoError(w.t, json.Unmarshal([]byte(line), &n), line)
		all = append(all, note{n.Name, n.StartNS, n.EndNS, n.Bytes, n.Step})
	}
	return all
}

// tracer is a run of ig-gpu.
type tracer struct {
	t    *testing.T
	cmd  *exec.Cmd
	log  *log
	path string // of the trace
}

// log has the output of ig-gpu, and whether it has attached.
type log struct {
	bytes.Buffer
	attached chan struct{}
}

// trace starts ig-gpu and waits until it has attached to the process.
func (w *workload) trace(args ...string) *tracer {
	w.t.Helper()
	return traceTo(w.t, w, filepath.Join(w.t.TempDir(), "trace.json.gz"), args...)
}

func traceTo(t *testing.T, w *workload, path string, args ...string) *tracer {
	t.Helper()
	require.FileExists(t, "../../../bin/ig-gpu", "run make build")
	r := &tracer{t: t, path: path, log: &log{attached: make(chan struct{})}}
	pid := fmt.Sprint(w.PID())
	r.cmd = exec.Command("../../../bin/ig-gpu", append([]string{"run", "cuda_kernel", "--host", "--pid", pid,
		"-o", "attachments:json", "--timeline-out", path}, args...)...)
	r.cmd.Stderr = &r.log.Buffer
	out, err := r.cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, r.cmd.Start())
	done := make(chan struct{})
	go func() {
		defer close(done)
		lines, attached := bufio.NewReader(out), false
		for {
			line, err := lines.ReadString('\n')
			if !attached && strings.Contains(line, `"pid":`+pid) && strings.Contains(line, "attached") {
				attached = true
				close(r.log.attached)
			}
			if err != nil {
				return
			}
		}
	}()
	t.Cleanup(func() {
		_ = r.cmd.Process.Kill()
		<-done
		_ = r.cmd.Wait()
		if t.Failed() {
			t.Logf("ig-gpu: %s", r.log.String())
		}
	})
	select {
	case <-r.log.attached:
	case <-done:
		t.Fatalf("ig-gpu has ended: %s", r.log.String())
	case <-time.After(waitLimit):
		t.Fatalf("not attached: %s", r.log.String())
	}
	return r
}

// end lets ig-gpu end by itself and returns what it wrote.
func (r *tracer) end() *file {
	r.t.Helper()
	require.NoError(r.t, r.cmd.Process.Signal(syscall.SIGINT))
	require.NoError(r.t, r.cmd.Wait(), r.log.String())
	f := read(r.t, r.path)
	require.Equal(r.t, true, f.Metadata["complete"])
	return f
}

// slice is a slice of the trace, in ns of CLOCK_BOOTTIME.
type slice struct {
	name, category string
	start, end     uint64
	args           map[string]any
}

// file is a parsed trace: slices by the name of their track, in the order of time.
type file struct {
	Metadata map[string]any
	tracks   map[string][]slice
	arrows   int
	flows    []flow
	counters map[string][][2]float64 // ns, value
	// names of processes, and how often each track was named
	processes   map[int64][]string
	threadNames map[[2]int64]int
}

// flow is an arrow, by the names of the tracks that it joins.
type flow struct {
	name, from, to string
	fromNS, toNS   uint64
}

// read parses a file as viewers do: one gzip stream, strict JSON, slices that nest.
func read(t *testing.T, path string) *file {
	t.Helper()
	b, err := os.ReadFile(path)
	require.NoError(t, err)
	z, err := gzip.NewReader(bytes.NewReader(b))
	require.NoError(t, err)
	z.Multistream(false)
	var all struct {
		Metadata    map[string]any
		TraceEvents []struct {
			Ph, Name, Cat string
			ID            json.Number
			Pid, Tid      int64
			TS, Dur       json.Number
			Args          map[string]any
		}
	}
	decoder := json.NewDecoder(z)
	require.NoError(t, decoder.Decode(&all))
	f := &file{Metadata: all.Metadata, tracks: map[string][]slice{}, counters: map[string][][2]float64{},
		processes: map[int64][]string{}, threadNames: map[[2]int64]int{}}
	type key struct{ pid, tid int64 }
	names, open := map[key]string{}, map[key][]slice{}
	begun := map[json.Number]flow{}
	for _, e := range all.TraceEvents {
		k := key{e.Pid, e.Tid}
		switch e.Ph {
		case "M":
			switch e.Name {
			case "thread_name":
				names[k] = e.Args["name"].(string)
				f.threadNames[[2]int64{k.pid, k.tid}]++
			case "process_name":
				f.processes[e.Pid] = append(f.processes[e.Pid], e.Args["name"].(string))
			}
		case "X":
			s := slice{e.Name, e.Cat, ns(t, e.TS), 0, e.Args}
			s.end = s.start + ns(t, e.Dur)
			require.EqualValues(t, s.start, e.Args["boot_ns"])
			f.tracks[names[k]] = append(f.tracks[names[k]], s)
		case "B":
			open[k] = append(open[k], slice{e.Name, e.Cat, ns(t, e.TS), 0, e.Args})
		case "E":
			last := len(open[k]) - 1
			require.GreaterOrEqual(t, last, 0, "an end without a beginning")
			s := open[k][last]
			s.end, open[k] = ns(t, e.TS), open[k][:last]
			require.GreaterOrEqual(t, s.end, s.start)
			f.tracks[names[k]] = append(f.tracks[names[k]], s)
		case "C":
			f.counters[e.Name] = append(f.counters[e.Name], [2]float64{float64(ns(t, e.TS)), e.Args["value"].(float64)})
		case "s":
			f.arrows++
			begun[e.ID] = flow{name: e.Name, from: names[k], fromNS: ns(t, e.TS)}
		case "f":
			arrow := begun[e.ID]
			arrow.to, arrow.toNS = names[k], ns(t, e.TS)
			f.flows = append(f.flows, arrow)
		}
	}
	for _, s := range f.tracks {
		slices.SortStableFunc(s, func(a, b slice) int { return int(int64(a.start) - int64(b.start)) })
	}
	return f
}

// ns reads microseconds with three decimals, exactly.
func ns(t *testing.T, n json.Number) uint64 {
	t.Helper()
	whole, part, _ := strings.Cut(string(n), ".")
	var us, rest uint64
	_, err := fmt.Sscan(whole, &us)
	require.NoError(t, err)
	if part != "" {
		_, err = fmt.Sscan(strings.TrimLeft((part + "00")[:3], "0")+"", &rest)
		if strings.Trim(part, "0") != "" {
			require.NoError(t, err)
		}
	}
	return us*1000 + rest
}

func (f *file) of(track, category string) (out []slice) {
	for _, s := range f.tracks[track] {
		if s.category == category {
			out = append(out, s)
		}
	}
	return out
}

func (f *file) named(track, name string) (out []slice) {
	for _, s := range f.tracks[track] {
		if s.name == name {
			out = append(out, s)
		}
	}
	return out
}

// fails runs ig-gpu, which must end with an error, and returns its output.
func fails(t *testing.T, w *workload, args ...string) string {
	t.Helper()
	cmd := exec.Command("../../../bin/ig-gpu", append([]string{"run", "cuda_kernel", "--host",
		"--pid", fmt.Sprint(w.PID()), "--timeout", "30"}, args...)...)
	out, err := cmd.CombinedOutput()
	require.Error(t, err, "%s", out)
	return string(out)
}
