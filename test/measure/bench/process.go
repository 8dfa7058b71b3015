// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpu-gadgets/gpu-gadgets/test/support/subject/tables"
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

// usage is the CPU time and memory of a process.
type usage struct {
	cpu          time.Duration // all of it, exact
	user, system time.Duration // in ticks of the clock, 10 ms each
	rss, anon    int64         // bytes, now
}

func (c *child) usage() (usage, error) {
	var u usage
	proc := fmt.Sprintf("/proc/%d", c.cmd.Process.Pid)
	stat, err := os.ReadFile(proc + "/stat")
	if err != nil {
		return u, err
	}
	// Fields 14 and 15 of proc(5), counted after the name, which is field 2.
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	for i, to := range []*time.Duration{&u.user, &u.system} {
		n, err := strconv.ParseInt(fields[11+i], 10, 64)
		if err != nil {
			return u, fmt.Errorf("%s/stat: %w", proc, err)
		}
		*to = time.Duration(n) * 10 * time.Millisecond
	}
	threads, _ := filepath.Glob(proc + "/task/*/schedstat")
	for _, path := range threads {
		b, _ := os.ReadFile(path)
		on, _, _ := strings.Cut(string(b), " ")
		n, _ := strconv.ParseInt(on, 10, 64)
		u.cpu += time.Duration(n)
	}
	status, err := os.ReadFile(proc + "/status")
	if err != nil {
		return u, err
	}
	for line := range strings.Lines(string(status)) {
		name, value, _ := strings.Cut(line, ":")
		kib, _ := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(value), " kB"), 10, 64)
		switch name {
		case "VmRSS":
			u.rss = kib << 10
		case "RssAnon":
			u.anon = kib << 10
		}
	}
	return u, nil
}

// mapBytes returns the memory of the eBPF maps that a process has open, as the kernel reports it.
func (c *child) mapBytes() (sum int64, err error) {
	paths, err := filepath.Glob(fmt.Sprintf("/proc/%d/fdinfo/*", c.cmd.Process.Pid))
	if err != nil {
		return 0, err
	}
	seen := map[string]bool{}
	for _, path := range paths {
		b, _ := os.ReadFile(path) // it may be closed by now
		values := map[string]string{}
		for line := range strings.Lines(string(b)) {
			name, value, _ := strings.Cut(line, ":")
			values[name] = strings.TrimSpace(value)
		}
		if id := values["map_id"]; id != "" && values["memlock"] != "" && !seen[id] {
			seen[id] = true
			n, err := strconv.ParseInt(values["memlock"], 10, 64)
			if err != nil {
				return 0, fmt.Errorf("%s: memlock %q: %w", path, values["memlock"], err)
			}
			sum += n
		}
	}
	if sum == 0 {
		return 0, fmt.Errorf("read the memory of the maps of process %d: it has none open", c.cmd.Process.Pid)
	}
	return sum, nil
}
