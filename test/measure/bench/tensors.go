// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"github.com/cilium/ebpf/link"

	"github.com/gpu-gadgets/gpu-gadgets/internal/tracer/overhead"
)

const (
	tensorRate  = 50000 // blocks a second, each allocated and freed
	tensorDepth = 40    // Python frames
)

// tensors measures the cost of following PyTorch's pool: the programs, ig-gpu, and the
// workload's CPU time per block, including probes.
func (b *bench) tensors() error {
	libraries, err := filepath.Abs("build/simtorch")
	if err != nil {
		return err
	}
	b.title(fmt.Sprintf("PyTorch's pool, %d blocks/s, %d Python frames", tensorRate, tensorDepth),
		"eBPF %", "ns/block", "ig-gpu %", "ns workload", "blocks/s")
	alone, err := b.tensorCase(libraries)
	if err != nil {
		return err
	}
	b.row("alone", "", "", "", "", number(alone.perBlock), number(alone.rate))
	for _, c := range []struct {
		name, target string
		args         []string
	}{
		{"--torch off", "", []string{"--torch", "off"}},
		{"no block, almost", "", []string{"--sample-bytes", "128MiB"}},
		{"automatic sampling", "5 eBPF + ig-gpu", nil},
		{"every block", "", []string{"--sample-bytes", "0"}},
	} {
		v, err := b.tensorCase(libraries, append([]string{"run"}, c.args...)...)
		if err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
		b.row(c.name, c.target, percent(v.programs), number(v.programs*1e7/v.rate), percent(v.agent), number(v.perBlock), number(v.rate))
	}
	return b.tensorLoss(libraries)
}

// lossPairs is how often the workload is measured with and without tracing.
const lossPairs = 5

// tensorLoss measures the slowdown of a traced thread at 50,000 blocks a second: the same
// process untraced, with an empty program at our probe, which is the lower bound for any
// tracer there, and with ig-gpu, in turn.
func (b *bench) tensorLoss(libraries string) error {
	b.title(fmt.Sprintf("What a thread loses, %d blocks/s, %d Python frames", tensorRate, tensorDepth),
		"alone", "empty", "loss %", "traced", "loss %")
	for _, c := range []struct {
		name string
		args []string
		// of blocks, seconds of CPU time and seconds between two readings
		measure func(blocks, cpu, wall float64) float64
		loss    func(before, after float64) float64
	}{
		{"blocks/s, with pauses", nil, func(blocks, _, wall float64) float64 { return blocks / wall },
			func(before, after float64) float64 { return 1 - after/before }},
		// The worst case: it pays for each probe with time that it has another use for.
		{"ns for a block and what it computes, without", []string{"busy"},
			func(blocks, cpu, _ float64) float64 { return cpu / blocks * 1e9 },
			func(before, after float64) float64 { return 1 - before/after }},
	} {
		w, blocks, err := b.startTensors(libraries, c.args...)
		if err != nil {
			return err
		}
		measure := func() (float64, error) {
			time.Sleep(2 * time.Second)
			n0, s0, t0 := blocks()
			time.Sleep(4 * time.Second)
			n1, s1, t1 := blocks()
			if n1 <= n0 {
				return 0, fmt.Errorf("the workload stands still: %s", w.errors.String())
			}
			return c.measure(n1-n0, s1-s0, t1-t0), nil
		}
		err = b.lossOf(libraries, c.name, measure, c.loss)
		w.stop()
		if err != nil {
			return err
		}
	}
	return nil
}

// lossOf prints the medians of pairs; the losses are medians of the pairs' own.
func (b *bench) lossOf(libraries, name string, measure func() (float64, error), loss func(before, after float64) float64) error {
	var alone, empty, emptyLoss, traced, tracedLoss []float64
	for range lossPairs {
		without, err := measure()
		if err != nil {
			return err
		}
		probe, err := emptyProbe(filepath.Join(libraries, "libc10.so"), blockReport)
		if err != nil {
			return err
		}
		probed, err := measure()
		probe()
		if err != nil {
			return err
		}
		a, err := b.tracedTensors("run")
		if err != nil {
			return err
		}
		with, err := measure()
		a.stop()
		if err != nil {
			return err
		}
		alone, empty, traced = append(alone, without), append(empty, probed), append(traced, with)
		emptyLoss, tracedLoss = append(emptyLoss, loss(without, probed)*100), append(tracedLoss, loss(without, with)*100)
	}
	b.row(name, "3 loss", number(overhead.Median(alone)), number(overhead.Median(empty)), percent(overhead.Median(emptyLoss)),
		number(overhead.Median(traced)), percent(overhead.Median(tracedLoss)))
	return nil
}

// blockReport is the function that PyTorch calls for each block that it allocates or frees.
const blockReport = "_ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE"

// emptyProbe attaches a program that does nothing to the start of a function, with the
// kernel's cheapest probe. The returned function detaches it.
func emptyProbe(library, symbol string) (func(), error) {
	file, err := link.OpenExecutable(library)
	if err != nil {
		return nil, err
	}
	program, err := overhead.EmptyProgram(0)
	if err != nil {
		return nil, err
	}
	probe, err := file.UprobeMulti([]string{symbol}, program, nil)
	if err != nil {
		program.Close()
		return nil, fmt.Errorf("attach an empty program to %s: %w", symbol, err)
	}
	return func() {
		probe.Close()
		program.Close()
	}, nil
}

// startTensors starts the workload; the returned function returns its number of blocks,
// its CPU time in seconds, and the time of that, in seconds.
func (b *bench) startTensors(libraries string, args ...string) (*child, func() (blocks, cpu, now float64), error) {
	w, err := start(nil, "env", append([]string{"LD_LIBRARY_PATH=" + filepath.Dir(b.library), "python3", "test/measure/bench/tensors.py",
		libraries, strconv.Itoa(tensorRate), strconv.Itoa(tensorDepth)}, args...)...)
	if err != nil {
		return nil, nil, err
	}
	var said sync.Mutex
	var blocks, seconds, now float64
	w.listen(func(line []byte) {
		said.Lock()
		defer said.Unlock()
		_, _ = fmt.Sscan(string(line), &blocks, &seconds, &now)
	})
	return w, func() (float64, float64, float64) {
		said.Lock()
		defer said.Unlock()
		return blocks, seconds, now
	}, nil
}

// tracedTensors starts ig-gpu and waits until it is attached.
func (b *bench) tracedTensors(args ...string) (*agent, error) {
	a, err := b.startAgent(args[1:]...)
	if err != nil {
		return nil, err
	}
	select {
	case <-a.attached:
		return a, nil
	case <-a.done:
		err = fmt.Errorf("ig-gpu ended: %s", a.errors.String())
	case <-time.After(30 * time.Second):
		err = fmt.Errorf("ig-gpu attached to nothing in 30 s: %s", a.errors.String())
	}
	a.stop()
	return nil, err
}

func percent(v float64) string { return strconv.FormatFloat(v, 'f', 2, 64) }

// tensorCost is in percent of a core, and in nanoseconds of the workload's per block.
type tensorCost struct{ programs, agent, perBlock, rate float64 }

// tensorCase runs the workload, and ig-gpu where there are arguments: "run" and more.
func (b *bench) tensorCase(libraries string, args ...string) (v tensorCost, err error) {
	w, progress, err := b.startTensors(libraries)
	if err != nil {
		return v, err
	}
	defer w.stop()
	var a *agent
	var p *programs
	if len(args) > 0 {
		if a, err = b.tracedTensors(args...); err != nil {
			return v, err
		}
		defer a.stop()
		if p, err = programsNamed(a.cmd.Process.Pid, "torch_enter", ""); err != nil {
			return v, err
		}
		defer p.close()
	}
	time.Sleep(3 * time.Second) // until the sampling has found its mean
	const watched = 10 * time.Second
	var from, to runs
	var before, after taken
	if a != nil {
		if from, err = p.runs(); err == nil {
			before, err = a.taken()
		}
	}
	if err != nil {
		return v, err
	}
	n0, s0, t0 := progress()
	begun := time.Now()
	time.Sleep(watched)
	wall := time.Since(begun).Seconds()
	n1, s1, t1 := progress()
	if n1 <= n0 {
		return v, fmt.Errorf("the workload stands still: %s", w.errors.String())
	}
	v.perBlock, v.rate = (s1-s0)/(n1-n0)*1e9, (n1-n0)/(t1-t0)
	if a == nil {
		return v, nil
	}
	if to, err = p.runs(); err == nil {
		after, err = a.taken()
	}
	v.programs = (to.time - from.time).Seconds() / wall * 100
	v.agent = (after.cpu - before.cpu).Seconds() / wall * 100
	return v, err
}
