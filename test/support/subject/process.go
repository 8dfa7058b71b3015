// SPDX-License-Identifier: Apache-2.0

// Package subject runs the programs that tests trace. They work a step at a time: a line
// on stdin lets them continue, a line on stdout reports their progress. Start is for any
// program, StartSteps for steps.py, which executes commands.
package subject

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Process is a running program. It is killed at the end of the test if it still runs.
type Process struct {
	Cmd *exec.Cmd
	// Timeout is how long one line may take, and the end; 2 minutes: more than a step
	// takes on a busy machine.
	Timeout time.Duration

	t     testing.TB
	in    io.WriteCloser
	lines chan string // closed at the end of the output
	said  string      // last, to it
}

// Start starts the command with both pipes; its errors go to the test's. One that leads
// a process group (Setpgid) is killed with its children.
func Start(t testing.TB, cmd *exec.Cmd) *Process {
	t.Helper()
	p := &Process{Cmd: cmd, Timeout: 2 * time.Minute, t: t, lines: make(chan string, 16), said: "its start"}
	cmd.Stderr = os.Stderr
	var err error
	p.in, err = cmd.StdinPipe()
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	go func() {
		defer close(p.lines)
		lines := bufio.NewScanner(out)
		lines.Buffer(nil, 1<<20)
		for lines.Scan() {
			p.lines <- lines.Text()
		}
	}()
	t.Cleanup(p.kill)
	return p
}

// kill kills the program if it still runs. Wait closes the pipe, which children may hold open.
func (p *Process) kill() {
	if p.Cmd.ProcessState == nil {
		pid := p.PID()
		if a := p.Cmd.SysProcAttr; a != nil && a.Setpgid {
			pid = -pid
		}
		_ = syscall.Kill(pid, syscall.SIGKILL)
		_ = p.Cmd.Wait()
	}
	for range p.lines {
	}
}

// PID is the number of the process in this test's namespace.
func (p *Process) PID() int { return p.Cmd.Process.Pid }

// Say sends a line.
func (p *Process) Say(format string, args ...any) {
	p.t.Helper()
	p.said = fmt.Sprintf(format, args...)
	_, err := io.WriteString(p.in, p.said+"\n")
	require.NoError(p.t, err, "the program does not listen: %q", p.said)
}

// Line waits for the next line of the program.
func (p *Process) Line() string {
	p.t.Helper()
	select {
	case line, ok := <-p.lines:
		require.True(p.t, ok, "the program has ended after: %s", p.said)
		return line
	case <-time.After(p.Timeout):
		require.Fail(p.t, "the program prints nothing", "in %v after: %s", p.Timeout, p.said)
	}
	return ""
}

// Expect is Line for one that is known.
func (p *Process) Expect(line string) {
	p.t.Helper()
	require.Equal(p.t, line, p.Line(), p.said)
}

// Request sends a line and returns the answer.
func (p *Process) Request(format string, args ...any) string {
	p.t.Helper()
	p.Say(format, args...)
	return p.Line()
}

// Wait waits for the program to end, which must succeed. Its remaining output is
// discarded.
func (p *Process) Wait() {
	p.t.Helper()
	for deadline := time.After(p.Timeout); ; {
		select {
		case _, ok := <-p.lines:
			if !ok {
				require.NoError(p.t, p.Cmd.Wait(), "the program's end")
				return
			}
		case <-deadline:
			require.Fail(p.t, "the program does not end", "in %v after: %s", p.Timeout, p.said)
		}
	}
}

// End closes the program's input, which ends it, and waits.
func (p *Process) End() {
	p.t.Helper()
	require.NoError(p.t, p.in.Close())
	p.said = "the end of its input"
	p.Wait()
}

// HasEnded reports whether the process has been waited for.
func (p *Process) HasEnded() bool { return p.Cmd.ProcessState != nil }
