// SPDX-License-Identifier: Apache-2.0

package backends

import (
	"bytes"
	"net"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// server is a program that serves until the test ends, and may be ended, killed,
// stopped and begun again on the way.
type server struct {
	name string
	args []string
	dir  string
	cmd  *exec.Cmd
	log  safeBuffer
}

// safeBuffer is written by a process while a test reads it.
type safeBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *safeBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *safeBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// start begins the program, again as well, and waits until it listens.
func (s *server) start(t *testing.T, address string) {
	t.Helper()
	s.cmd = exec.Command(s.args[0], s.args[1:]...)
	s.cmd.Dir = s.dir
	s.cmd.Stdout, s.cmd.Stderr = &s.log, &s.log
	require.NoError(t, s.cmd.Start())
	require.Eventually(t, func() bool {
		c, err := net.DialTimeout("tcp", address, time.Second)
		if err == nil {
			c.Close()
		}
		return err == nil
	}, waitLimit, 100*time.Millisecond, "%s does not listen: %s", s.name, &s.log)
}

// serve is start, with an end.
func (s *server) serve(t *testing.T, address string) {
	t.Helper()
	t.Cleanup(func() {
		s.end()
		if t.Failed() {
			text := s.log.String()
			t.Logf("%s said:\n%s", s.name, text[max(0, len(text)-4000):])
		}
	})
	s.start(t, address)
}

// end terminates the program, like an administrator.
func (s *server) end() {
	if s.cmd == nil || s.cmd.ProcessState != nil {
		return
	}
	_ = s.cmd.Process.Signal(syscall.SIGCONT)
	_ = s.cmd.Process.Signal(os.Interrupt)
	killer := time.AfterFunc(20*time.Second, func() { _ = s.cmd.Process.Kill() })
	defer killer.Stop()
	_ = s.cmd.Wait()
}

// kill gives it no time to react.
func (s *server) kill() {
	_ = s.cmd.Process.Kill()
	_ = s.cmd.Wait()
}

// hang stops it: connections stay open without answers.
func (s *server) hang(t *testing.T) {
	t.Helper()
	require.NoError(t, s.cmd.Process.Signal(syscall.SIGSTOP))
}

func (s *server) wake(t *testing.T) {
	t.Helper()
	require.NoError(t, s.cmd.Process.Signal(syscall.SIGCONT))
}
