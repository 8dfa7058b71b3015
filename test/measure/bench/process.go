// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os/exec"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpu-gadgets/gpu-gadgets/test/support/subject/tables"
	"github.com/gpu-gadgets/gpu-gadgets/test/support/subject/usage"
)

// child is a program that the benchmark started. Its stdout is read line by line
// until it ends, so that it never waits for its reader.
type child struct {
	cmd   *exec.Cmd
	stdin io.WriteCloser
	done  chan struct{} // the output ended
	// begun is when it was executed.
	begun time.Time

	mu     sync.Mutex
	onLine func([]byte)
	errors bytes.Buffer
}

// start runs a program. onLine is called with each line of its stdout.
func start(onLine func([]byte), name string, args ...string) (*child, error) {
	c := &child{cmd: exec.Command(name, args...), onLine: onLine, done: make(chan struct{})}
	c.cmd.Stderr = &c.errors
	stdout, err := c.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if c.stdin, err = c.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	c.begun = time.Now()
	if err := c.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	go func() {
		defer close(c.done)
		// Rows of one interval are one line.
		for r := bufio.NewReaderSize(tables.Reader(stdout), 1<<20); ; {
			b, err := r.ReadBytes('\n')
			if err != nil {
				return
			}
			c.mu.Lock()
			if c.onLine != nil {
				c.onLine(b)
			}
			c.mu.Unlock()
		}
	}()
	return c, nil
}

// listen replaces the receiver of lines; after it has returned the old one gets none.
func (c *child) listen(onLine func([]byte)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.onLine = onLine
}

// stop ends the program and waits for it.
func (c *child) stop() {
	_ = c.cmd.Process.Signal(unix.SIGINT)
	select {
	case <-c.done:
	case <-time.After(5 * time.Second):
		_ = c.cmd.Process.Kill()
		<-c.done
	}
	_ = c.cmd.Wait()
}

// taken is the CPU time and memory of a process.
type taken struct {
	cpu          time.Duration // all of it, exact
	user, system time.Duration // in ticks of the clock, 10 ms each
	rss, anon    int64         // bytes, now
}

func (c *child) taken() (taken, error) {
	var u taken
	pid := c.cmd.Process.Pid
	var err error
	if u.user, u.system, err = usage.CPU(pid); err != nil {
		return u, err
	}
	if u.cpu, _, err = usage.Scheduled(pid); err != nil {
		return u, err
	}
	if u.rss, err = usage.Memory(pid, "VmRSS"); err != nil {
		return u, err
	}
	u.anon, err = usage.Memory(pid, "RssAnon")
	return u, err
}

// mapBytes returns the memory of the eBPF maps that a process has open, as the kernel reports it.
func (c *child) mapBytes() (int64, error) {
	n, sum, err := usage.Maps(c.cmd.Process.Pid)
	if err == nil && n == 0 {
		err = fmt.Errorf("read the memory of the maps of process %d: it has none open", c.cmd.Process.Pid)
	}
	return sum, err
}
