// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/cilium/ebpf"

	"github.com/gpu-gadgets/gpu-gadgets/internal/tracer/overhead"
	"github.com/gpu-gadgets/gpu-gadgets/test/support/subject/usage"
)

// programs are the eBPF programs that a process has loaded, whose run time the
// kernel sums up while kernel.bpf_stats_enabled is 1.
type programs struct {
	enter, exit []*ebpf.Program
}

// runs is a sum over programs.
type runs struct {
	enters, exits uint64
	time          time.Duration
}

// programsOf finds cuda_alloc's probes among the file descriptors of a process.
func programsOf(pid int) (*programs, error) { return programsNamed(pid, "call_enter", "call_exit") }

// programsNamed finds programs by the beginnings of their names; exit may be empty.
func programsNamed(pid int, enter, exit string) (*programs, error) {
	ids, err := usage.Programs(pid)
	if err != nil {
		return nil, err
	}
	p := &programs{}
	for _, id := range ids {
		program, err := ebpf.NewProgramFromID(id)
		if err != nil {
			continue
		}
		info, err := program.Info()
		switch {
		case err == nil && strings.HasPrefix(info.Name, enter):
			p.enter = append(p.enter, program)
		case err == nil && exit != "" && strings.HasPrefix(info.Name, exit):
			p.exit = append(p.exit, program)
		default:
			program.Close()
		}
	}
	if p.enter == nil || p.exit == nil && exit != "" {
		p.close()
		return nil, fmt.Errorf("find eBPF programs of process %d: none are named %s and %s", pid, enter, exit)
	}
	return p, nil
}

// probesOf finds all programs of probes and of samples of a process, as `enter`.
func probesOf(pid int) (*programs, error) {
	p, err := programsNamed(pid, "", "")
	if err != nil {
		return nil, err
	}
	p.enter = slices.DeleteFunc(p.enter, func(program *ebpf.Program) bool {
		if t := program.Type(); t == ebpf.Kprobe || t == ebpf.PerfEvent {
			return false
		}
		program.Close()
		return true
	})
	return p, nil
}

func (p *programs) close() {
	for _, program := range append(p.enter, p.exit...) {
		program.Close()
	}
}

func (p *programs) runs() (runs, error) {
	var r runs
	for i, programs := range [][]*ebpf.Program{p.enter, p.exit} {
		for _, program := range programs {
			s, err := program.Stats()
			if err != nil {
				return r, fmt.Errorf("read run time: %w", err)
			}
			r.time += s.Runtime
			if i == 0 {
				r.enters += s.RunCount
			} else {
				r.exits += s.RunCount
			}
		}
	}
	return r, nil
}

// nsPerPair watches for that long and returns the run time of the programs per pair of
// calls. It is the median of short windows, because the run time of a preempted program
// includes that of other tasks.
func (p *programs) nsPerPair(d time.Duration) (float64, error) {
	const window = 25 * time.Millisecond
	var values []float64
	last, err := p.runs()
	if err != nil {
		return 0, err
	}
	for end := time.Now().Add(d); time.Now().Before(end); {
		time.Sleep(window)
		now, err := p.runs()
		if err != nil {
			return 0, err
		}
		if n := now.enters - last.enters; n > 50 {
			values = append(values, float64(now.time-last.time)/float64(n)*2)
		}
		last = now
	}
	if len(values) < 5 {
		return 0, fmt.Errorf("measure run time: %d windows with calls in %v", len(values), d)
	}
	return overhead.Median(values), nil
}
