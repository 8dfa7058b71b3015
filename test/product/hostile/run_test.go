// SPDX-License-Identifier: Apache-2.0

package hostile

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
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
	"github.com/gpu-gadgets/gpu-gadgets/test/support/compare"
	"github.com/gpu-gadgets/gpu-gadgets/test/support/subject/usage"
)

// run is a process of ig-gpu that traces the whole machine.
type run struct {
	cmd  *exec.Cmd
	done chan struct{} // closed when it has ended and all is read

	mu       sync.Mutex
	attached map[uint32]time.Time
	drops    map[string]uint64
	errors   bytes.Buffer
}

// event is a row of attachments or of drops.
type event struct {
	PID    uint32 `json:"pid"`
	Status string `json:"status"`
	Reason string `json:"reason"`
	Count  uint64 `json:"count"`
}

// start starts cuda_alloc on all processes; the file gets its rows.
func start(t *testing.T, file string) *run {
	t.Helper()
	bpftest.RequireRoot(t)
	program, err := filepath.Abs("../../../bin/ig-gpu")
	require.NoError(t, err)
	require.FileExists(t, program, "run make build")
	r := &run{attached: map[uint32]time.Time{}, drops: map[string]uint64{}, done: make(chan struct{})}
	r.cmd = exec.Command(program, "run", "cuda_alloc", "--host", "-o", "attachments:json,drops:json", "--jsonl-out", file)
	out, err := r.cmd.StdoutPipe()
	require.NoError(t, err)
	r.cmd.Stderr = &r.errors // read after its end
	require.NoError(t, r.cmd.Start())
	go func() {
		r.read(bufio.NewReader(out))
		_ = r.cmd.Wait() // its code is checked by interrupt
		close(r.done)
	}()
	t.Cleanup(func() {
		_ = r.cmd.Process.Kill()
		<-r.done
		if text := r.errors.String(); t.Failed() || strings.Contains(text, "panic") {
			t.Errorf("ig-gpu: %s", text)
		}
	})
	return r
}

func (r *run) read(from *bufio.Reader) {
	for {
		line, err := from.ReadBytes('\n')
		var all []event
		if line = bytes.TrimSpace(line); bytes.HasPrefix(line, []byte("{")) {
			line = append(append([]byte("["), line...), ']')
		}
		if json.Unmarshal(line, &all) == nil {
			r.mu.Lock()
			for _, e := range all {
				if e.Reason != "" {
					r.drops[e.Reason] = e.Count
				} else if e.Status == "attached" && r.attached[e.PID].IsZero() {
					r.attached[e.PID] = time.Now()
				}
			}
			r.mu.Unlock()
		}
		if err != nil {
			return
		}
	}
}

// waitAttached waits until a process is attached to, and returns when it was.
func (r *run) waitAttached(t *testing.T, pid int) (at time.Time) {
	t.Helper()
	const limit = 2 * time.Minute // a busy machine
	for deadline := time.Now().Add(limit); at.IsZero(); time.Sleep(5 * time.Millisecond) {
		require.True(t, time.Now().Before(deadline), "process %d is not attached to in %v", pid, limit)
		r.mu.Lock()
		at = r.attached[uint32(pid)]
		r.mu.Unlock()
	}
	return at
}

// lost are the drops that were counted.
func (r *run) lost() map[string]uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	lost := map[string]uint64{}
	for reason, n := range r.drops {
		if n > 0 {
			lost[reason] = n
		}
	}
	return lost
}

// interrupt is Ctrl-C; it returns how long the end took.
func (r *run) interrupt(t *testing.T) time.Duration {
	t.Helper()
	began := time.Now()
	require.NoError(t, r.cmd.Process.Signal(syscall.SIGINT))
	select {
	case <-r.done:
	case <-time.After(2 * time.Minute):
		require.Fail(t, "ig-gpu does not end")
	}
	require.Zero(t, r.cmd.ProcessState.ExitCode(), r.errors.String())
	return time.Since(began)
}

// used is the processor time of ig-gpu.
func (r *run) used(t *testing.T) time.Duration {
	t.Helper()
	user, system, err := usage.CPU(r.cmd.Process.Pid)
	require.NoError(t, err)
	return user + system
}

// mostMemory is the most that ig-gpu has had resident.
func (r *run) mostMemory(t *testing.T) int64 {
	t.Helper()
	most, err := usage.Memory(r.cmd.Process.Pid, "VmHWM")
	require.NoError(t, err)
	return most
}

// line is one of --jsonl-out, as far as it is compared.
type line struct {
	Type    string `json:"type"`
	PID     uint32 `json:"pid"`
	Process string `json:"process"`
	Kind    string `json:"kind"`
	Device  int32  `json:"device"`
	Alloc   int64  `json:"alloc_bytes"`
	Allocs  int64  `json:"alloc_objects"`
	Freed   int64  `json:"freed_bytes"`
	Frees   int64  `json:"freed_objects"`
	Ended   int64  `json:"implicit_bytes"`
	Ends    int64  `json:"implicit_objects"`
	Inuse   int64  `json:"inuse_bytes"`
	Held    int64  `json:"inuse_objects"`
	Stack   []struct {
		Function, File, Kind string
		Line                 uint32
	} `json:"stack"`
}

// rowsOf are the last states of the rows of processes.
func rowsOf(t *testing.T, file string, pids map[uint32]bool) (rows []compare.Row) {
	t.Helper()
	f, err := os.Open(file)
	require.NoError(t, err)
	defer f.Close()
	last := map[string]compare.Row{}
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var l line
		require.NoError(t, json.Unmarshal(lines.Bytes(), &l), lines.Text())
		if l.Type != "alloc" || !pids[l.PID] {
			continue
		}
		row := compare.Row{PID: l.PID, Kind: l.Kind, Device: l.Device, Counts: compare.Counts{
			AllocBytes: l.Alloc, AllocObjects: l.Allocs, FreedBytes: l.Freed, FreedObjects: l.Frees,
			ImplicitBytes: l.Ended, ImplicitObjects: l.Ends, InUseBytes: l.Inuse, InUseObjects: l.Held,
		}}
		for _, f := range l.Stack {
			if f.Kind == "python" {
				row.Stack = append(row.Stack, compare.Frame{Function: f.Function, File: f.File, Line: f.Line})
			}
		}
		last[fmt.Sprint(l.Process, l.Kind, l.Device, l.Stack)] = row
	}
	require.NoError(t, lines.Err())
	for _, row := range last {
		rows = append(rows, row)
	}
	return rows
}
