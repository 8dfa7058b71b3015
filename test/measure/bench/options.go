// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/gpu-gadgets/gpu-gadgets/internal/tracer/overhead"
)

// option is one that users switch on, and what the same gadget costs without it.
type option struct {
	name    string
	without []string // a gadget and its arguments; nil: nothing runs
	with    []string // what is added to them; without a gadget: the command
	// free: no program runs more often with it.
	free bool
}

// Options of cuda_alloc are measured with every tensor followed, so that sampling does not
// decide how often programs run.
func optionsIn(dir string) []option {
	every := []string{"cuda_alloc", "--torch", "on", "--sample-bytes", "0"}
	metrics := append(every[:len(every):len(every)], "--metrics-listen", "127.0.0.1:0")
	return []option{
		{"--waste", every, []string{"--waste"}, false},
		{"--ages", every, []string{"--ages"}, true},
		{"--spans --labels request=span:http.route", every, []string{"--spans", "--labels", "request=span:http.route"}, true},
		{"the same, of cuda_kernel", []string{"cuda_kernel"}, []string{"--spans", "--labels", "request=span:http.route"}, true},
		{"--snapshot-out FILE", every, []string{"--snapshot-out", filepath.Join(dir, "s.pickle")}, true},
		{"--labels slurm,ray,vllm", every, []string{"--labels", "slurm,ray,vllm"}, true},
		{"--mark-on-frame NAME", every, []string{"--mark-out", filepath.Join(dir, "m"), "--mark-on-frame", "Trainer.save_checkpoint"}, true},
		{"--metrics-idle-holders 30m", metrics, []string{"--metrics-idle-holders", "30m"}, true},
		{"--metrics-frozen 5m", metrics, []string{"--metrics-frozen", "5m"}, true},
		{"contexts, peaks, vGPU libraries (always on)", []string{"cuda_alloc", "--torch", "off"}, nil, true},
		{"dump --frozen 2s", nil, []string{"dump", "--frozen", "2s"}, false},
		{"dump --odd", nil, []string{"dump", "--odd"}, false},
	}
}

const optionWindows = 7

// options measures how often programs run in a training step, and how long, with and without
// each option. It fails if one that is said to be free is not.
func (b *bench) options() error {
	if _, err := os.Stat("build/fixtures/torch/unpacked"); errors.Is(err, os.ErrNotExist) {
		fmt.Println("\nOptions: not measured, since PyTorch is not there; make test-torch fetches it")
		return nil
	}
	dir, err := os.MkdirTemp("", "gpu-gadgets-bench")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	t, err := b.startTraining()
	if err != nil {
		return err
	}
	defer t.stop()
	b.title("Options, in the same training step", "runs off", "runs on", "eBPF ms off", "eBPF ms on")
	known := map[string]optionCost{} // of what runs without an option
	for _, o := range optionsIn(dir) {
		key := fmt.Sprint(o.without)
		off, ok := known[key]
		if o.without != nil && !ok {
			if off, err = b.optionCost(t, o.without); err != nil {
				return fmt.Errorf("%s, off: %w", o.name, err)
			}
			known[key] = off
		}
		on := off
		switch {
		case o.with == nil:
		case o.without == nil:
			on, err = b.commandCost(t, o.with)
		default:
			on, err = b.optionCost(t, append(o.without[:len(o.without):len(o.without)], o.with...))
		}
		if err != nil {
			return fmt.Errorf("%s: %w", o.name, err)
		}
		target := ""
		if o.free {
			target = number(off.runs) + " runs"
			if on.runs > off.runs+max(0.05*off.runs, 2) {
				return fmt.Errorf("%s has a cost: %.1f runs of programs in a step, and %.1f without it", o.name, on.runs, off.runs)
			}
		}
		b.row(o.name, target, number(off.runs), number(on.runs), fmt.Sprintf("%.3f", off.ms), fmt.Sprintf("%.3f", on.ms))
	}
	return nil
}

// optionCost is per step.
type optionCost struct{ runs, ms float64 }

// optionCost runs a gadget beside the training.
func (b *bench) optionCost(t *training, command []string) (optionCost, error) {
	a, err := b.startOn(t.cmd.Process.Pid, command...)
	if err != nil {
		return optionCost{}, err
	}
	defer a.stop()
	time.Sleep(trainingSettles)
	p, err := probesOf(a.cmd.Process.Pid)
	if err != nil {
		return optionCost{}, err
	}
	defer p.close()
	var runs, ms []float64
	for range optionWindows {
		n0, err := t.next(0)
		if err != nil {
			return optionCost{}, err
		}
		before, err := p.runs()
		if err != nil {
			return optionCost{}, err
		}
		n1, err := t.next(40)
		if err != nil {
			return optionCost{}, err
		}
		after, err := p.runs()
		if err != nil {
			return optionCost{}, err
		}
		runs = append(runs, float64(after.enters-before.enters)/(n1-n0))
		ms = append(ms, (after.time-before.time).Seconds()*1e3/(n1-n0))
	}
	return optionCost{overhead.Median(runs), overhead.Median(ms)}, nil
}

// next waits for the next report of the training after so many steps, and returns the step.
func (t *training) next(steps float64) (float64, error) {
	from, _ := t.now()
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(time.Millisecond) {
		if n, _ := t.now(); n > from && n >= from+steps {
			return n, nil
		}
	}
	return 0, fmt.Errorf("PyTorch stands still: %s", t.errors.String())
}

// commandCost runs a command of ig-gpu on the process to its end, and divides what its programs,
// of any type, took by the steps of that time.
func (b *bench) commandCost(t *training, command []string) (optionCost, error) {
	n0, _ := t.now()
	args := append([]string{command[0], strconv.Itoa(t.cmd.Process.Pid)}, command[1:]...)
	c, err := start(nil, b.agent, args...)
	if err != nil {
		return optionCost{}, err
	}
	defer c.stop()
	var last runs
	for {
		if p, err := programsNamed(c.cmd.Process.Pid, "", ""); err == nil {
			if r, err := p.runs(); err == nil && r.enters >= last.enters {
				last = r
			}
			p.close()
		}
		select {
		case <-c.done:
			n1, _ := t.now()
			if n1 <= n0 {
				return optionCost{}, fmt.Errorf("PyTorch stands still: %s", t.errors.String())
			}
			return optionCost{float64(last.enters) / (n1 - n0), last.time.Seconds() * 1e3 / (n1 - n0)}, nil
		case <-time.After(10 * time.Millisecond):
		}
	}
}
