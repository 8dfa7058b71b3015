// SPDX-License-Identifier: Apache-2.0

// Package iggpu runs bin/ig-gpu as a process of its own that traces the whole machine, and reads which
// processes it has attached to and what it has dropped.
package iggpu

import (
	"bufio"
	"bytes"
	"encoding/json"
	"maps"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/test/support/bpftest"
)

const (
	// attachLimit and endLimit are for a busy machine.
	attachLimit = 2 * time.Minute
	endLimit    = 2 * time.Minute
)

// Run is a running `ig-gpu run`. It is killed at the end of the test.
type Run struct {
	t      testing.TB
	gadget string
	cmd    *exec.Cmd
	done   chan struct{} // closed when it has ended and all is read
	errors bytes.Buffer  // read after its end

	mu       sync.Mutex
	attached map[uint32]map[string]time.Time // by process and the library's file name
	drops    map[string]uint64
}

// event is a row of attachments or of drops.
type event struct {
	PID    uint32 `json:"pid"`
	Path   string `json:"path"`
	Status string `json:"status"`
	Reason string `json:"reason"`
	Count  uint64 `json:"count"`
}

// Start runs a gadget on all processes, with these flags besides. The test's folder is two below test/.
func Start(t testing.TB, gadget string, flags ...string) *Run {
	t.Helper()
	bpftest.RequireRoot(t)
	program, err := filepath.Abs("../../../bin/ig-gpu")
	require.NoError(t, err)
	require.FileExists(t, program, "run make build")
	r := &Run{t: t, gadget: gadget, attached: map[uint32]map[string]time.Time{}, drops: map[string]uint64{}, done: make(chan struct{})}
	r.cmd = exec.Command(program, append([]string{"run", gadget, "--host", "-o", "attachments:json,drops:json"}, flags...)...)
	out, err := r.cmd.StdoutPipe()
	require.NoError(t, err)
	r.cmd.Stderr = &r.errors
	require.NoError(t, r.cmd.Start())
	go func() {
		r.read(bufio.NewReader(out))
		_ = r.cmd.Wait() // its code is checked by Interrupt
		close(r.done)
	}()
	t.Cleanup(func() {
		_ = r.cmd.Process.Kill()
		<-r.done
		if text := r.errors.String(); t.Failed() || strings.Contains(text, "panic") {
			t.Errorf("ig-gpu run %s: %s", gadget, text[max(0, len(text)-4000):])
		}
	})
	return r
}

func (r *Run) read(from *bufio.Reader) {
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
				} else if e.Status == "attached" {
					r.sawAttached(e.PID, filepath.Base(e.Path))
				}
			}
			r.mu.Unlock()
		}
		if err != nil {
			return
		}
	}
}

// PID is that of ig-gpu.
func (r *Run) PID() int { return r.cmd.Process.Pid }

// sawAttached is called with r.mu.
func (r *Run) sawAttached(pid uint32, library string) {
	if r.attached[pid] == nil {
		r.attached[pid] = map[string]time.Time{}
	}
	if r.attached[pid][library].IsZero() {
		r.attached[pid][library] = time.Now()
	}
}

// WaitAttached waits until a process is attached to, in all of these libraries, by file name, or
// in any where none is given. It returns when it was.
func (r *Run) WaitAttached(pid int, libraries ...string) (at time.Time) {
	r.t.Helper()
	for deadline := time.Now().Add(attachLimit); at.IsZero(); time.Sleep(5 * time.Millisecond) {
		require.True(r.t, time.Now().Before(deadline), "%s: process %d is not attached to in %v: %v", r.gadget, pid, attachLimit, libraries)
		at = r.attachedAt(uint32(pid), libraries)
	}
	return at
}

// attachedAt is zero before.
func (r *Run) attachedAt(pid uint32, libraries []string) (at time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := r.attached[pid]
	if len(libraries) == 0 && len(all) > 0 {
		return slices.MinFunc(slices.Collect(maps.Values(all)), time.Time.Compare)
	}
	for _, library := range libraries {
		if all[library].IsZero() {
			return time.Time{}
		}
		at = slices.MaxFunc([]time.Time{at, all[library]}, time.Time.Compare)
	}
	return at
}

// Drops are those that were counted, by reason.
func (r *Run) Drops() map[string]uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	counted := map[string]uint64{}
	for reason, n := range r.drops {
		if n > 0 {
			counted[reason] = n
		}
	}
	return counted
}

// Interrupt is Ctrl-C; it returns how long the end took.
func (r *Run) Interrupt() time.Duration {
	r.t.Helper()
	began := time.Now()
	require.NoError(r.t, r.cmd.Process.Signal(syscall.SIGINT))
	select {
	case <-r.done:
	case <-time.After(endLimit):
		require.Fail(r.t, "ig-gpu does not end", r.gadget)
	}
	require.Zero(r.t, r.cmd.ProcessState.ExitCode(), r.errors.String())
	return time.Since(began)
}
