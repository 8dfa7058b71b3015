// SPDX-License-Identifier: Apache-2.0

// Package e2e tests bin/ig-gpu as a user runs it: a separate process, workloads on the
// simulated driver, and only the command line, the output, the files and the exit code in
// between. The truth is the driver's journal (examples/simcuda/journal).
package e2e

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/test/support/bpftest"
	"github.com/gpu-gadgets/gpu-gadgets/test/support/subject/tables"
)

// waitLimit is how long a condition may take on a busy machine.
const waitLimit = 3 * time.Minute

// program is bin/ig-gpu. It must exist and be from this tree: a test that builds another
// one would not test the shipped one.
func program(t testing.TB) string {
	t.Helper()
	bpftest.RequireRoot(t)
	path, err := filepath.Abs("../../../bin/ig-gpu")
	require.NoError(t, err)
	_, err = os.Stat(path)
	require.NoError(t, err, "run make build")
	return path
}

// Rows as -o json prints them; only the fields that tests use.
type (
	process struct {
		PID  uint32 `json:"pid"`
		Comm string `json:"comm"`
	}
	row struct {
		Proc            process `json:"proc"`
		Process         uint64  `json:"process"`
		Kind            string  `json:"kind"`
		Device          int32   `json:"device"`
		Frame           string  `json:"frame"`
		Stack           string  `json:"stack"`
		AllocBytes      uint64  `json:"alloc_bytes"`
		AllocObjects    uint64  `json:"alloc_objects"`
		FreedBytes      uint64  `json:"freed_bytes"`
		FreedObjects    uint64  `json:"freed_objects"`
		ImplicitBytes   uint64  `json:"implicit_bytes"`
		ImplicitObjects uint64  `json:"implicit_objects"`
		InuseBytes      uint64  `json:"inuse_bytes"`
		HeldBytes       uint64  `json:"held_bytes"`
		InuseObjects    uint64  `json:"inuse_objects"`
		PeakBytes       uint64  `json:"peak_bytes"`
		OldBytes        uint64  `json:"old_bytes"`
		OldObjects      uint64  `json:"old_objects"`

		Ages       string `json:"ages"`
		AgeSecond  uint64 `json:"age_1s_bytes"`
		AgeSeconds uint64 `json:"age_10s_bytes"`
		AgeMinute  uint64 `json:"age_1m_bytes"`
		AgeMinutes uint64 `json:"age_10m_bytes"`
		AgeHour    uint64 `json:"age_1h_bytes"`
		AgeOlder   uint64 `json:"age_older_bytes"`

		RequestedBytes  uint64 `json:"requested_bytes"`
		RoundingBytes   uint64 `json:"rounding_bytes"`
		FragmentedBytes uint64 `json:"fragmented_bytes"`
	}
	attachment struct {
		PID     uint32 `json:"pid"`
		Comm    string `json:"comm"`
		Status  string `json:"status"`
		Symbols int    `json:"symbols"`
		Wanted  int    `json:"wanted"`
		Path    string `json:"path"`
		Error   string `json:"error"`
	}
	pool struct {
		Proc           process `json:"proc"`
		Device         int32   `json:"device"`
		AllocatedBytes uint64  `json:"allocated_bytes"`
		ReservedBytes  uint64  `json:"reserved_bytes"`
		CachedBytes    uint64  `json:"cached_bytes"`
		Fits           string  `json:"fits"`
		UsableBytes    uint64  `json:"usable_bytes"`
		LargestBytes   uint64  `json:"largest_bytes"`

		RequestedBlocks uint64 `json:"requested_blocks"`
		RequestedBytes  uint64 `json:"requested_bytes"`
		RoundingBytes   uint64 `json:"rounding_bytes"`
		OddBlocks       uint64 `json:"odd_blocks"`
	}
	oom struct {
		Proc           process `json:"proc"`
		API            string  `json:"api"`
		Error          string  `json:"error"`
		RefusedBy      string  `json:"refused_by"`
		Frame          string  `json:"frame"`
		Stack          string  `json:"stack"`
		RequestedBytes uint64  `json:"requested_bytes"`
		InuseBytes     uint64  `json:"inuse_bytes"`
		Holders        string  `json:"holders"`

		PoolAllocatedBytes uint64 `json:"pool_allocated_bytes"`
		PoolReservedBytes  uint64 `json:"pool_reserved_bytes"`
		PoolPiecesBytes    uint64 `json:"pool_pieces_bytes"`
		PoolApartBytes     uint64 `json:"pool_apart_bytes"`
		PoolKeptBytes      uint64 `json:"pool_kept_bytes"`
	}
	drop struct {
		Reason string `json:"reason"`
		Count  uint64 `json:"count"`
		Bytes  uint64 `json:"bytes"`
	}
)

// run is one process of ig-gpu.
type run struct {
	t     testing.TB
	cmd   *exec.Cmd
	out   io.Closer // the end of its output that is read
	began time.Time
	done  chan struct{} // closed when the process has ended and all is read

	mu          sync.Mutex
	stderr      bytes.Buffer
	stdout      bytes.Buffer
	rows        []row // the latest table
	firstRow    time.Time
	attachments []attachment
	ooms        []oom
	pools       []pool // the latest
	drops       map[string]drop
	odd         []string // lines that are no JSON
}

// start runs the gadget with -o json on all processes; further arguments select.
func start(t testing.TB, args ...string) *run {
	t.Helper()
	args = append([]string{"run", "cuda_alloc", "--host", "-o", "allocs:json,attachments:json,ooms:json,pools:json,drops:json"}, args...)
	return launch(t, exec.Command(program(t), args...))
}

// launch starts any command line and reads its output as rows of JSON.
func launch(t testing.TB, cmd *exec.Cmd) *run {
	t.Helper()
	r := &run{t: t, cmd: cmd, done: make(chan struct{}), drops: map[string]drop{}}
	stdout, err := cmd.StdoutPipe()
	require.NoError(t, err)
	stderr, err := cmd.StderrPipe()
	require.NoError(t, err)
	r.out = stdout
	r.began = time.Now()
	require.NoError(t, cmd.Start())
	var readers sync.WaitGroup
	readers.Go(func() { r.read(tables.Reader(stdout)) })
	readers.Go(func() {
		lines := bufio.NewScanner(stderr)
		for lines.Scan() {
			r.mu.Lock()
			r.stderr.WriteString(lines.Text() + "\n")
			r.mu.Unlock()
		}
	})
	go func() {
		readers.Wait()
		_ = cmd.Wait() // the exit code is checked by the caller that ends the run
		close(r.done)
	}()
	t.Cleanup(func() {
		select {
		case <-r.done:
		default:
			_ = cmd.Process.Kill()
			select {
			case <-r.done:
			case <-time.After(waitLimit):
				t.Errorf("something still holds the output of %s", cmd)
			}
		}
		text := r.errors()
		for _, sign := range []string{"panic", "goroutine ", "runtime error", "internal error"} {
			if strings.Contains(text, sign) {
				t.Errorf("ig-gpu crashed:\n%s", text)
			}
		}
		if t.Failed() {
			t.Logf("%s\nstderr:\n%s", cmd, text)
		}
	})
	return r
}

func (r *run) read(from io.Reader) {
	lines := bufio.NewReaderSize(from, 1<<20)
	for {
		line, err := lines.ReadBytes('\n')
		r.mu.Lock()
		r.stdout.Write(line)
		r.mu.Unlock()
		if text := bytes.TrimSpace(line); len(text) > 0 {
			r.take(text)
		}
		if err != nil {
			return
		}
	}
}

// take sorts one table, or one event, by its fields.
func (r *run) take(line []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var rows []row
	var drops []drop
	var fields map[string]json.RawMessage
	var err error
	switch {
	case bytes.Equal(line, []byte("[]")):
	case bytes.Contains(line, []byte(`"reason":`)):
		if err = json.Unmarshal(line, &drops); err == nil {
			for _, d := range drops {
				r.drops[d.Reason] = d
			}
		}
	case bytes.Contains(line, []byte(`"has_totals":`)):
		var pools []pool
		if err = json.Unmarshal(line, &pools); err == nil {
			r.pools = pools
		}
	case line[0] == '[':
		if err = json.Unmarshal(line, &rows); err == nil {
			if r.firstRow.IsZero() {
				r.firstRow = time.Now()
			}
			r.rows = rows
		}
	default:
		if err = json.Unmarshal(line, &fields); err != nil {
			break
		}
		if fields["requested_bytes"] != nil {
			var o oom
			err = json.Unmarshal(line, &o)
			r.ooms = append(r.ooms, o)
		} else {
			var a attachment
			err = json.Unmarshal(line, &a)
			r.attachments = append(r.attachments, a)
		}
	}
	if err != nil {
		r.odd = append(r.odd, err.Error()+": "+string(line))
	}
}

func (r *run) errors() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.stderr.String()
}

func (r *run) output() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.stdout.String()
}

// wait polls until the condition holds. It is called with the run locked.
func (r *run) wait(what string, holds func() bool) {
	r.t.Helper()
	eventually(r.t, what, func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		return holds()
	})
}

// eventually polls, because there is no notification.
func eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(waitLimit); !holds(); {
		require.True(t, time.Now().Before(deadline), "waited %v: %s", waitLimit, what)
		time.Sleep(10 * time.Millisecond)
	}
}

// waitAttached waits for the row that reports a process as attached.
func (r *run) waitAttached(pid int) attachment {
	r.t.Helper()
	return r.waitStatus(pid, "attached")
}

func (r *run) waitStatus(pid int, status string) (found attachment) {
	r.t.Helper()
	r.wait("attachments has no row with status "+status, func() bool {
		for _, a := range r.attachments {
			if a.PID == uint32(pid) && a.Status == status {
				found = a
				return true
			}
		}
		return false
	})
	return found
}

// waitRows waits until the rows of a process fulfil a condition.
func (r *run) waitRows(what string, pid int, holds func([]row) bool) (rows []row) {
	r.t.Helper()
	r.wait(what, func() bool {
		rows = nil
		for _, w := range r.rows {
			if w.Proc.PID == uint32(pid) && w.Kind != "context" {
				rows = append(rows, w)
			}
		}
		return holds(rows)
	})
	return rows
}

// last is the final table's rows of a process, without contexts: whether its context was made
// before the probes were there is not known.
func (r *run) last(pid int) (rows []row) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, w := range r.rows {
		if w.Proc.PID == uint32(pid) && w.Kind != "context" {
			rows = append(rows, w)
		}
	}
	return rows
}

// lost are the drops that were counted.
func (r *run) lost() map[string]uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	lost := map[string]uint64{}
	for _, d := range r.drops {
		if d.Count > 0 {
			lost[d.Reason] = d.Count
		}
	}
	return lost
}

// interrupt is Ctrl-C; it returns the exit code and how long the end took.
func (r *run) interrupt() (int, time.Duration) {
	r.t.Helper()
	began := time.Now()
	require.NoError(r.t, r.cmd.Process.Signal(syscall.SIGINT))
	code := r.exit()
	return code, time.Since(began)
}

// exit waits for the end and returns the exit code.
func (r *run) exit() int {
	r.t.Helper()
	select {
	case <-r.done:
	case <-time.After(waitLimit):
		require.Fail(r.t, "ig-gpu does not end", r.errors())
	}
	return r.cmd.ProcessState.ExitCode()
}

// fails runs an invalid command line and returns its one line of output.
func fails(t *testing.T, cmd *exec.Cmd) string {
	t.Helper()
	r := launch(t, cmd)
	require.Equal(t, 1, r.exit(), r.errors())
	text := r.errors()
	require.Equal(t, 1, strings.Count(text, "\n"), "one line: %s", text)
	require.True(t, strings.HasPrefix(text, "Error: "), text)
	return text
}
