// SPDX-License-Identifier: Apache-2.0

// Package scale tests gpu-exporter, as a process of its own, against the daemons of many nodes
// that one process simulates (test/support/simranks/simnodes). LONG_TESTS=1 makes it a thousand nodes.
package scale

import (
	"bufio"
	"fmt"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/internal/collective"
	"github.com/gpu-gadgets/gpu-gadgets/test/support/loopback"
	"github.com/gpu-gadgets/gpu-gadgets/test/support/simranks/simnodes"
	"github.com/gpu-gadgets/gpu-gadgets/test/support/subject/usage"
)

// requireBuilt is called before a fleet's time begins: linking takes seconds.
func requireBuilt(t testing.TB) {
	t.Helper()
	_, err := loopback.Exporter()
	require.NoError(t, err)
}

// found is a line of the exporter about ranks.
type found struct {
	At     time.Time
	Event  string
	Reason collective.Reason
	Text   string
}

// exporter is a process of gpu-exporter.
type exporter struct {
	t    testing.TB
	cmd  *exec.Cmd
	done chan struct{}

	mu     sync.Mutex
	lines  []string
	events []found
}

var event = regexp.MustCompile(`^(\S+Z) (found|changed|cleared) +(\S+) +(.*)$`)

// start runs the exporter until the test ends. It follows the nodes of the server.
func start(t testing.TB, addresses []string, args ...string) *exporter {
	t.Helper()
	program, err := loopback.Exporter()
	require.NoError(t, err)
	e := &exporter{t: t, done: make(chan struct{})}
	e.cmd = exec.Command(program, append(args, "--address", strings.Join(addresses, ","))...)
	stdout, err := e.cmd.StdoutPipe()
	require.NoError(t, err)
	stderr, err := e.cmd.StderrPipe()
	require.NoError(t, err)
	require.NoError(t, e.cmd.Start())
	var reading sync.WaitGroup
	for _, from := range []*bufio.Scanner{bufio.NewScanner(stdout), bufio.NewScanner(stderr)} {
		reading.Go(func() { e.read(from) })
	}
	go func() {
		reading.Wait()
		_ = e.cmd.Wait() // end checks the exit code
		close(e.done)
	}()
	t.Cleanup(func() {
		select {
		case <-e.done:
		default:
			_ = e.cmd.Process.Kill()
			<-e.done
		}
		if t.Failed() {
			t.Logf("the end of its output:\n%s", strings.Join(e.lines[max(0, len(e.lines)-10):], "\n"))
		}
	})
	return e
}

func (e *exporter) read(from *bufio.Scanner) {
	for from.Scan() {
		line := from.Text()
		e.mu.Lock()
		if m := event.FindStringSubmatch(line); m != nil {
			at, err := time.Parse(time.RFC3339Nano, m[1])
			if err == nil {
				e.events = append(e.events, found{at, m[2], collective.Reason(m[3]), m[4]})
			}
		} else {
			e.lines = append(e.lines, line)
		}
		e.mu.Unlock()
	}
}

// verdicts that it has reported so far.
func (e *exporter) verdicts() []found {
	e.mu.Lock()
	defer e.mu.Unlock()
	return append([]found(nil), e.events...)
}

// logged returns how many lines of its log have the text.
func (e *exporter) logged(text string) (n int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, line := range e.lines {
		if strings.Contains(line, text) {
			n++
		}
	}
	return n
}

// end terminates it like the kubelet.
func (e *exporter) end() {
	e.t.Helper()
	require.NoError(e.t, e.cmd.Process.Signal(syscall.SIGTERM))
	select {
	case <-e.done:
	case <-time.After(30 * time.Second):
		require.Fail(e.t, "it does not end")
	}
	require.Zero(e.t, e.cmd.ProcessState.ExitCode(), strings.Join(e.lines, "\n"))
}

// taken has the resources that a process has taken so far.
type taken struct {
	cpu          time.Duration
	resident, mb int64 // highest and current, MiB
	files        int
}

func (e *exporter) taken() taken {
	e.t.Helper()
	return takenBy(e.t, e.cmd.Process.Pid)
}

func takenBy(t testing.TB, pid int) (u taken) {
	t.Helper()
	user, system, err := usage.CPU(pid)
	require.NoError(t, err)
	u.cpu = user + system
	for field, to := range map[string]*int64{"VmHWM": &u.resident, "VmRSS": &u.mb} {
		bytes, err := usage.Memory(pid, field)
		require.NoError(t, err)
		*to = bytes >> 20
	}
	descriptors, err := usage.Descriptors(pid)
	require.NoError(t, err)
	u.files = len(descriptors)
	return u
}

// is reports whether a verdict is the truth about a job.
func (f *found) is(truth *simnodes.Truth) bool {
	if f.Reason != truth.Reason || !strings.Contains(f.Text, "("+truth.Communicator+")") {
		return false
	}
	if truth.Reason == collective.Mismatch {
		return true
	}
	return strings.HasPrefix(f.Text, fmt.Sprintf("rank %d of ", truth.Rank)) &&
		strings.Contains(f.Text, fmt.Sprintf("process %d python3 on %s", truth.PID, truth.Node)) && strings.Contains(f.Text, truth.Line)
}
