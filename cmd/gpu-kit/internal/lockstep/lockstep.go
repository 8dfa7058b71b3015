// SPDX-License-Identifier: Apache-2.0

// Package lockstep runs a workload that reads one command per line and answers each with
// a line of JSON, so that the kit knows what was done before it measures.
package lockstep

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

// Answer is a workload's answer to a command. Result is that of CUDA: 0 is success;
// negative: a function or library is missing.
type Answer struct {
	Result int             `json:"result"`
	Error  string          `json:"error"`
	raw    json.RawMessage // the whole line
}

// Number is a field of an answer; 0 where there is none.
func (a Answer) Number(key string) uint64 { return uint64(a.Real(key)) }

// Real is a field of an answer; 0 where there is none.
func (a Answer) Real(key string) float64 {
	var v float64
	_ = json.Unmarshal(a.field(key), &v)
	return v
}

// Text is a field of an answer; "" where there is none.
func (a Answer) Text(key string) string {
	var v string
	_ = json.Unmarshal(a.field(key), &v)
	return v
}

func (a Answer) field(key string) json.RawMessage {
	var all map[string]json.RawMessage
	_ = json.Unmarshal(a.raw, &all)
	return all[key]
}

// Err is nil for success.
func (a Answer) Err() error {
	switch {
	case a.Error != "":
		return errors.New(a.Error)
	case a.Result < 0:
		return errors.New("the function or library is missing")
	case a.Result != 0:
		return fmt.Errorf("CUDA error %d", a.Result)
	}
	return nil
}

// Workload is a running one. It is not safe for concurrent use.
type Workload struct {
	PID    int
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	lines  chan []byte
	stderr bytes.Buffer
	ended  chan struct{}
}

// Start starts a program, which is killed when the context ends.
func Start(ctx context.Context, dir string, env []string, argv ...string) (*Workload, error) {
	w := &Workload{cmd: exec.CommandContext(ctx, argv[0], argv[1:]...), lines: make(chan []byte, 64), ended: make(chan struct{})}
	w.cmd.Dir, w.cmd.Env, w.cmd.Stderr = dir, append(os.Environ(), env...), &w.stderr
	w.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	w.cmd.WaitDelay = time.Second
	var err error
	if w.stdin, err = w.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	stdout, err := w.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := w.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start the workload: %w", err)
	}
	w.PID = w.cmd.Process.Pid
	go func() {
		defer close(w.ended)
		defer close(w.lines)
		lines := bufio.NewReader(stdout)
		for {
			line, err := lines.ReadBytes('\n')
			if err != nil {
				break
			}
			w.lines <- line
		}
		_ = w.cmd.Wait() // how it ended is in its last answer
	}()
	return w, nil
}

// Do has one command done, and waits for its answer at most that long.
func (w *Workload) Do(limit time.Duration, command string, args ...any) (Answer, error) {
	var a Answer
	text := fmt.Sprintf(command, args...)
	if _, err := io.WriteString(w.stdin, text+"\n"); err != nil {
		return a, w.died(text)
	}
	for timeout := time.After(limit); ; {
		select {
		case line, ok := <-w.lines:
			if !ok {
				return a, w.died(text)
			}
			if line[0] != '{' {
				continue // printed by a library
			}
			if err := json.Unmarshal(line, &a); err != nil {
				return a, fmt.Errorf("read the answer to %q: %w", text, err)
			}
			a.raw = line
			return a, nil
		case <-timeout:
			_ = w.cmd.Process.Kill() // a later answer would be mistaken for another command's
			return a, fmt.Errorf("%q took more than %v", text, limit)
		}
	}
}

// Must is Do, and an error of CUDA is one, too.
func (w *Workload) Must(limit time.Duration, command string, args ...any) (Answer, error) {
	a, err := w.Do(limit, command, args...)
	if err == nil {
		err = a.Err()
	}
	if err != nil {
		err = fmt.Errorf("%s: %w", strings.SplitN(fmt.Sprintf(command, args...), "\n", 2)[0], err)
	}
	return a, err
}

func (w *Workload) died(command string) error {
	<-w.ended
	why := strings.TrimSpace(w.stderr.String())
	if n := len(why); n > 300 {
		why = why[n-300:]
	}
	return fmt.Errorf("the workload ended at %q (%v): %s", command, w.cmd.ProcessState, why)
}

// Stop ends it, by its own will if it has one, and waits.
func (w *Workload) Stop() {
	w.stdin.Close()
	for timeout := time.After(5 * time.Second); ; {
		select {
		case _, ok := <-w.lines:
			if !ok {
				<-w.ended
				return
			}
		case <-timeout:
			_ = w.cmd.Process.Kill()
			timeout = nil
		}
	}
}
