// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/gpu-gadgets/gpu-gadgets/internal/format/pprof"
	"github.com/gpu-gadgets/gpu-gadgets/internal/profile"
	"github.com/gpu-gadgets/gpu-gadgets/test/support/subject/usage"
)

// tool is a profiler that attaches to a process.
type tool struct {
	name string
	// command profiles pid at 99 Hz into file until SIGINT.
	command func(pid int, file string) []string
	// read parses the file; nil: only the cost is measured.
	read func(file string) (shares, error)
}

// interval of 99 Hz, in microseconds.
const interval = "10101"

func tools(austin []string) []tool {
	found := []tool{
		{"py_stack", func(pid int, file string) []string {
			return []string{"bin/ig-gpu", "run", "py_stack", "--host", "--pid", strconv.Itoa(pid), "-o", "none", "--pprof-out", file}
		}, readPprof},
		{"austin", func(pid int, file string) []string {
			return append(austin[:len(austin):len(austin)], "-i", interval, "-o", file, "-p", strconv.Itoa(pid))
		}, opened(readAustin)},
		{"austin -b", func(pid int, file string) []string {
			return append(austin[:len(austin):len(austin)], "-b", "-i", interval, "-o", file, "-p", strconv.Itoa(pid))
		}, nil},
	}
	if path, err := exec.LookPath("py-spy"); err == nil {
		for _, more := range [][]string{nil, {"--nonblocking"}} {
			found = append(found, tool{strings.Join(append([]string{"py-spy"}, more...), " "), func(pid int, file string) []string {
				return append([]string{path, "record", "--rate", "99", "--duration", "unlimited",
					"--format", "raw", "--output", file, "--pid", strconv.Itoa(pid)}, more...)
			}, opened(readPySpy)})
		}
	}
	return found
}

func readPprof(file string) (shares, error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	p, err := pprof.Decode(bytes.NewReader(b))
	if err != nil {
		return nil, err
	}
	s := shares{}
	for _, f := range p.Frames(profile.Samples) {
		s[f.Frame.Function] += float64(f.Self)
	}
	return s, nil
}

// running is a tool that runs.
type running struct {
	cmd      *exec.Cmd
	programs []*ebpf.Program
	output   bytes.Buffer
}

// A tool has `waitLimit` to start, and `settle` more before it is measured.
const (
	waitLimit = 60 * time.Second
	settle    = time.Second
)

// launch starts a tool and waits until it samples: its eBPF programs run, or its
// file has something in it.
func launch(command []string, file string) (*running, error) {
	r := &running{cmd: exec.Command(command[0], command[1:]...)}
	r.cmd.Stdout, r.cmd.Stderr, r.cmd.SysProcAttr = &r.output, &r.output, session
	if err := r.cmd.Start(); err != nil {
		return nil, err
	}
	if err := prefer(r.cmd.Process.Pid); err != nil {
		return nil, errors.Join(err, r.stop())
	}
	for end := time.Now().Add(waitLimit); ; time.Sleep(50 * time.Millisecond) {
		if samples, err := r.samples(file); err != nil || !samples && time.Now().After(end) {
			return nil, errors.Join(fmt.Errorf("%v does not begin: %w", command, err), r.stop(), errors.New(r.output.String()))
		} else if samples {
			time.Sleep(settle)
			return r, nil
		}
	}
}

func (r *running) samples(file string) (bool, error) {
	for _, p := range r.programs {
		p.Close()
	}
	r.programs = nil
	ids, err := usage.Programs(r.cmd.Process.Pid)
	if err != nil {
		return false, err
	}
	for _, id := range ids {
		p, err := ebpf.NewProgramFromID(id)
		if errors.Is(err, os.ErrNotExist) {
			continue // one that only tested a feature of the kernel
		}
		if err != nil {
			return false, err
		}
		r.programs = append(r.programs, p)
	}
	if stat, err := os.Stat(file); err == nil && stat.Size() > 0 {
		return true, nil
	}
	for _, p := range r.programs {
		info, err := p.Info()
		if err != nil {
			return false, err
		}
		if s, err := p.Stats(); err != nil {
			return false, err
		} else if info.Type == ebpf.PerfEvent && s.RunCount > 0 {
			return true, nil
		}
	}
	return false, nil
}

// kernel is how long its eBPF programs have run.
func (r *running) kernel() (sum time.Duration, err error) {
	for _, p := range r.programs {
		s, err := p.Stats()
		if err != nil {
			return 0, err
		}
		sum += s.Runtime
	}
	return sum, nil
}

// stop ends it as Ctrl-C does.
func (r *running) stop() error {
	for _, p := range r.programs {
		p.Close()
	}
	_ = r.cmd.Process.Signal(unix.SIGINT)
	ended := make(chan error, 1)
	go func() { ended <- r.cmd.Wait() }()
	select {
	case err := <-ended:
		// austin and py-spy end with a status of their own after SIGINT.
		var status *exec.ExitError
		if err != nil && !errors.As(err, &status) {
			return err
		}
		return nil
	case <-time.After(20 * time.Second):
		_ = r.cmd.Process.Kill()
		<-ended
		return fmt.Errorf("%v does not end after SIGINT\n%s", r.cmd.Args, r.output.Bytes())
	}
}

// opened makes a reader of text one of files.
func opened(read func(io.Reader) (shares, error)) func(string) (shares, error) {
	return func(file string) (shares, error) {
		f, err := os.Open(file)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		return read(f)
	}
}
