// SPDX-License-Identifier: Apache-2.0

package kernels

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/examples/simcuda/journal"
	"github.com/gpu-gadgets/gpu-gadgets/test/support/compare"
	"github.com/gpu-gadgets/gpu-gadgets/test/support/subject/tables"
)

// waitLimit is how long a step may take. An emulated processor is 10 to 20 times
// slower than a real one, and this machine may be busy. ig itself loads
// a program for each probe, to find out where a library is: 3 minutes for cuda_kernel.
const waitLimit = 15 * time.Minute

// row is a row of -o json, with the fields that the tests use.
type row struct {
	Proc struct {
		PID    uint32 `json:"pid"`
		Comm   string `json:"comm"`
		Parent struct {
			PID  uint32 `json:"pid"`
			Comm string `json:"comm"`
		} `json:"parent"`
	} `json:"proc"`
	Process         uint64 `json:"process"`
	Kind            string `json:"kind"`
	Device          int32  `json:"device"`
	StackID         uint64 `json:"stack_id"`
	Frame           string `json:"frame"`
	Stack           string `json:"stack"` // root first
	AllocBytes      int64  `json:"alloc_bytes"`
	AllocObjects    int64  `json:"alloc_objects"`
	FreedBytes      int64  `json:"freed_bytes"`
	FreedObjects    int64  `json:"freed_objects"`
	ImplicitBytes   int64  `json:"implicit_bytes"`
	ImplicitObjects int64  `json:"implicit_objects"`
	InuseBytes      int64  `json:"inuse_bytes"`
	InuseObjects    int64  `json:"inuse_objects"`
	HeldBytes       int64  `json:"held_bytes"`
	PeakBytes       int64  `json:"peak_bytes"`
}

// callRow is one of cuda_kernel's calls.
type callRow struct {
	API    string `json:"api"`
	Kernel string `json:"kernel"`
	Calls  int64  `json:"calls"`
	Frame  string `json:"frame"`
}

// communicatorRow is one of nccl_trace's communicators in one rank.
type communicatorRow struct {
	Identity    uint64 `json:"identity"`
	Name        string `json:"name"`
	Rank        int    `json:"rank"`
	Size        int    `json:"size"`
	Collectives uint64 `json:"collectives"`
	Op          string `json:"op"`
	Frame       string `json:"frame"`
	Stack       string `json:"stack"` // root first
}

// gadget is a running ig or ig-gpu.
type gadget struct {
	t     *testing.T
	cmd   *exec.Cmd
	began time.Time
	ended chan error

	mu            sync.Mutex
	rows          []row
	calls         []callRow
	communicators []communicatorRow
	unread        error // of the latest line with an unexpected value
	drops         map[string]uint64
	tables        int             // of drops: there is one each second from the start
	attached      map[uint32]bool // by pid
	sampled       map[uint32]uint64
	stderr        bytes.Buffer
}

// start runs a command line that prints JSON.
func start(t *testing.T, program string, args ...string) *gadget {
	t.Helper()
	g := &gadget{
		t: t, cmd: exec.Command(program, args...), began: time.Now(), ended: make(chan error, 1),
		drops: map[string]uint64{}, attached: map[uint32]bool{}, sampled: map[uint32]uint64{},
	}
	g.cmd.Stderr = &g.stderr
	stdout, err := g.cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, g.cmd.Start())
	go func() {
		g.read(tables.Reader(stdout))
		g.ended <- g.cmd.Wait()
	}()
	t.Cleanup(func() {
		g.cmd.Process.Kill()
		if t.Failed() {
			<-g.ended
			t.Logf("%s\n%s\n%+v\n%+v\ndrops: %v, not read: %v", g.cmd, g.stderr.String(), g.calls, g.communicators, g.drops, g.unread)
		}
	})
	return g
}

func (g *gadget) read(from io.Reader) {
	lines := bufio.NewReaderSize(from, 1<<20)
	for {
		line, err := lines.ReadBytes('\n')
		g.take(bytes.TrimSpace(line))
		if err != nil {
			return
		}
	}
}

// take assigns a line to a table by its fields, because ig does not name its data source.
func (g *gadget) take(line []byte) {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case bytes.Contains(line, []byte(`"reason":`)):
		var drops []struct {
			Reason string `json:"reason"`
			Count  uint64 `json:"count"`
		}
		decode(g, line, &drops)
		g.tables++
		for _, d := range drops {
			if d.Count > 0 {
				g.drops[d.Reason] = d.Count
			}
		}
	case bytes.Contains(line, []byte(`"alloc_bytes":`)):
		decode(g, line, &g.rows)
	case bytes.Contains(line, []byte(`"gil_samples":`)):
		var samples []struct {
			Proc struct {
				PID uint32 `json:"pid"`
			} `json:"proc"`
			Samples uint64 `json:"samples"`
		}
		decode(g, line, &samples)
		for _, s := range samples {
			g.sampled[s.Proc.PID] += s.Samples
		}
	case bytes.Contains(line, []byte(`"calls_error":`)):
		decode(g, line, &g.calls)
	case bytes.Contains(line, []byte(`"collectives":`)):
		decode(g, line, &g.communicators)
	case bytes.Contains(line, []byte(`"status":"attached"`)):
		var a struct {
			PID uint32 `json:"pid"`
		}
		decode(g, line, &a)
		g.attached[a.PID] = true
	}
}

// decode reads a line into a new value, and keeps the old one on errors.
func decode[T any](g *gadget, line []byte, to *T) {
	var fresh T
	if err := json.Unmarshal(line, &fresh); err != nil {
		g.unread = fmt.Errorf("read %.200s: %w", line, err)
		return
	}
	*to = fresh
}

// wait polls until the condition holds, for which the gadget is locked.
func (g *gadget) wait(what string, holds func() bool) {
	g.t.Helper()
	for deadline := time.Now().Add(waitLimit); ; time.Sleep(50 * time.Millisecond) {
		g.mu.Lock()
		ok := holds()
		g.mu.Unlock()
		if ok {
			return
		}
		select {
		case err := <-g.ended:
			g.ended <- err
			require.Fail(g.t, "it ended before "+what, "%v: %s", err, g.stderr.String())
		default:
		}
		require.True(g.t, time.Now().Before(deadline), "%v are not enough for %s", waitLimit, what)
	}
}

// interrupt is Ctrl-C; it returns how long the end took.
func (g *gadget) interrupt() time.Duration {
	g.t.Helper()
	began := time.Now()
	require.NoError(g.t, g.cmd.Process.Signal(syscall.SIGINT))
	select {
	case err := <-g.ended:
		g.ended <- err
	case <-time.After(waitLimit):
		require.Fail(g.t, "it does not end")
	}
	return time.Since(began)
}

var pythonFrame = regexp.MustCompile(`^(.*) \((.*):(\d+)\)$`)

// got brings the latest table into the form of the truth.
func (g *gadget) got() []compare.Row {
	var out []compare.Row
	for _, r := range g.rows {
		c := compare.Row{PID: r.Proc.PID, Kind: r.Kind, Device: r.Device, Counts: compare.Counts{
			AllocBytes: r.AllocBytes, AllocObjects: r.AllocObjects,
			FreedBytes: r.FreedBytes, FreedObjects: r.FreedObjects,
			ImplicitBytes: r.ImplicitBytes, ImplicitObjects: r.ImplicitObjects,
			InUseBytes: r.InuseBytes, InUseObjects: r.InuseObjects,
			HeldBytes: r.HeldBytes,
		}}
		for text := range strings.SplitSeq(r.Stack, "; ") {
			if m := pythonFrame.FindStringSubmatch(text); m != nil {
				line, _ := strconv.ParseUint(m[3], 10, 32)
				c.Stack = append(c.Stack, compare.Frame{Function: m[1], File: m[2], Line: uint32(line)})
			}
		}
		slices.Reverse(c.Stack)
		out = append(out, c)
	}
	return out
}

// expected is the truth as the rows show it: files without their directories.
func expected(t *testing.T, dir string) []compare.Row {
	t.Helper()
	journals, err := journal.ReadDir(dir)
	require.NoError(t, err)
	truth, err := compare.ReadTruth(dir)
	require.NoError(t, err)
	rows, err := compare.Expected(journals, truth, compare.Options{MaxFrames: 128})
	require.NoError(t, err)
	require.NotEmpty(t, rows)
	for i := range rows {
		rows[i].Stack = slices.Clone(rows[i].Stack)
		for j := range rows[i].Stack {
			rows[i].Stack[j].File = path.Base(rows[i].Stack[j].File)
		}
	}
	return rows
}

// withoutStacks adds up rows that differ in the stack only.
func withoutStacks(rows []compare.Row) []compare.Row {
	out := slices.Clone(rows)
	for i := range out {
		out[i].Stack = nil
	}
	return compare.Merge(out)
}

// workload is a process of test/gadgets/exact/workload.py that waits for commands.
type workload struct {
	t     *testing.T
	cmd   *exec.Cmd
	stdin io.WriteCloser
	says  chan string
	dir   string // of journals and truth
}

func startWorkload(t *testing.T, python, library string, args ...string) *workload {
	t.Helper()
	dir := t.TempDir()
	args = append([]string{"../../gadgets/exact/workload.py", "--libcuda", library, "--out", dir,
		"--start-on-stdin", "--hold", "--plain-names"}, args...)
	w := startProgram(t, python, args...)
	w.dir = dir
	return w
}

// startProgram starts one that prints its progress, and waits for lines to continue.
func startProgram(t *testing.T, program string, args ...string) *workload {
	t.Helper()
	w := launch(t, program, args...)
	w.expect("ready")
	return w
}

// launch starts a program with pipes.
func launch(t *testing.T, program string, args ...string) *workload {
	t.Helper()
	w := &workload{t: t, cmd: exec.Command(program, args...), says: make(chan string, 16)}
	w.cmd.Stderr = os.Stderr
	var err error
	w.stdin, err = w.cmd.StdinPipe()
	require.NoError(t, err)
	stdout, err := w.cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, w.cmd.Start())
	go func() {
		defer close(w.says)
		for lines := bufio.NewScanner(stdout); lines.Scan(); {
			w.says <- lines.Text()
		}
	}()
	t.Cleanup(func() { w.cmd.Process.Kill(); w.cmd.Wait() })
	return w
}

// expect waits for a line that begins with {"word":, and returns it.
func (w *workload) expect(word string) string {
	w.t.Helper()
	select {
	case line, ok := <-w.says:
		require.True(w.t, ok, "the workload ended before it said "+word)
		require.True(w.t, strings.HasPrefix(line, `{"`+word+`":`), line)
		return line
	case <-time.After(waitLimit):
		require.Fail(w.t, "the workload does not print "+word)
	}
	return ""
}

// resume lets it continue, up to the next word.
func (w *workload) resume(word string) string {
	w.t.Helper()
	_, err := io.WriteString(w.stdin, "\n")
	require.NoError(w.t, err)
	return w.expect(word)
}
