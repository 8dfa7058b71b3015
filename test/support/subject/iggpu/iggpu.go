// SPDX-License-Identifier: Apache-2.0

// Package iggpu runs bin/ig-gpu as a process of its own that traces the whole machine, and reads which
// processes it has attached to and what it has dropped.
package iggpu

import (
	"bufio"
	"bytes"
	"encoding/json"
	"os/exec"
	"path/filepath"
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
	attached map[attachment]time.Time
	drops    map[string]uint64
}

// attachment is a library of a process, by its file name, or "" for the first of them.
type attachment struct {
	pid     uint32
	library string
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
	r := &Run{t: t, gadget: gadget, attached: map[attachment]time.Time{}, drops: map[string]uint64{}, done: make(chan struct{})}
	output := "attachments:json,drops:json"
	if gadget == "py_stack" { // it samples, and is attached to no library
		output = "drops:json"
	}
	r.cmd = exec.Command(program, append([]string{"run", gadget, "--host", "-o", output}, flags...)...)
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
					r.attachedNow(attachment{e.PID, ""})
					r.attachedNow(attachment{e.PID, filepath.Base(e.Path)})
				}
			}
			r.mu.Unlock()
		}
		if err != nil {
			return
		}
	}
}

// attachedNow is called with r.mu; only the first time counts.
func (r *Run) attachedNow(a attachment) {
	if r.attached[a].IsZero() {
		r.attached[a] = time.Now()
	}
}

// PID is that of ig-gpu.
func (r *Run) PID() int { return r.cmd.Process.Pid }

// WaitAttached waits until a process is attached to, in any library, and returns when it was.
func (r *Run) WaitAttached(pid int) (at time.Time) {
	r.t.Helper()
	return r.WaitAttachedIn(pid, "")
}

// WaitAttachedIn waits until a library of a process, by its file name, is attached to, and returns when it was.
func (r *Run) WaitAttachedIn(pid int, library string) (at time.Time) {
	r.t.Helper()
	for deadline := time.Now().Add(attachLimit); at.IsZero(); time.Sleep(5 * time.Millisecond) {
		require.True(r.t, time.Now().Before(deadline), "%s: process %d is not attached to in %v: %s", r.gadget, pid, attachLimit, library)
		r.mu.Lock()
		at = r.attached[attachment{uint32(pid), library}]
		r.mu.Unlock()
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

// Errors returns its log, after Interrupt.
func (r *Run) Errors() string {
	<-r.done
	return r.errors.String()
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
