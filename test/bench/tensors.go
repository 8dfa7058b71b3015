// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"path/filepath"
	"strconv"
	"sync"
	"time"
)

const (
	tensorRate  = 50000 // blocks a second, each handed out and taken back
	tensorDepth = 40    // Python frames
)

// tensors measures what following PyTorch's pool costs: the programs, ig-gpu, and the
// processor time that the workload needs for a block, probes included.
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

// tensorLoss measures how much longer a thread takes that never pauses, which is the
// worst case: it pays for each probe. The same process is measured with and without
// tracing in turn, by the processor time that it needs for a block and what it computes
// in between.
func (b *bench) tensorLoss(libraries string) error {
	w, blocks, err := b.startTensors(libraries, "busy")
	if err != nil {
		return err
	}
	defer w.stop()
	b.title(fmt.Sprintf("What a thread without pauses loses, %d blocks/s, %d Python frames", tensorRate, tensorDepth),
		"alone ns", "traced ns", "more %")
	perBlock := func() (float64, error) {
		time.Sleep(2 * time.Second)
		n0, s0 := blocks()
		time.Sleep(4 * time.Second)
		n1, s1 := blocks()
		if n1 <= n0 {
			return 0, fmt.Errorf("the workload stands still: %s", w.errors.String())
		}
		return (s1 - s0) / (n1 - n0) * 1e9, nil
	}
	var alone, traced, more []float64
	for range lossPairs {
		without, err := perBlock()
		if err != nil {
			return err
		}
		a, err := b.tracedTensors("run")
		if err != nil {
			return err
		}
		with, err := perBlock()
		a.stop()
		if err != nil {
			return err
		}
		alone, traced, more = append(alone, without), append(traced, with), append(more, (with/without-1)*100)
	}
	b.row("automatic sampling, medians", "3 more", number(median(alone)), number(median(traced)), percent(median(more)))
	return nil
}

// startTensors starts the workload; the function returned tells how many blocks it has
// had, and its processor time in seconds.
func (b *bench) startTensors(libraries string, args ...string) (*child, func() (float64, float64), error) {
	w, err := start(nil, "env", append([]string{"LD_LIBRARY_PATH=" + filepath.Dir(b.library), "python3", "test/bench/tensors.py",
		libraries, strconv.Itoa(tensorRate), strconv.Itoa(tensorDepth)}, args...)...)
	if err != nil {
		return nil, nil, err
	}
	var said sync.Mutex
	var blocks, seconds float64
	w.listen(func(line []byte) {
		said.Lock()
		defer said.Unlock()
		_, _ = fmt.Sscan(string(line), &blocks, &seconds)
	})
	return w, func() (float64, float64) {
		said.Lock()
		defer said.Unlock()
		return blocks, seconds
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
	var before, after usage
	if a != nil {
		if from, err = p.runs(); err == nil {
			before, err = a.usage()
		}
	}
	if err != nil {
		return v, err
	}
	n0, s0 := progress()
	begun := time.Now()
	time.Sleep(watched)
	wall := time.Since(begun).Seconds()
	n1, s1 := progress()
	if n1 <= n0 {
		return v, fmt.Errorf("the workload stands still: %s", w.errors.String())
	}
	v.perBlock, v.rate = (s1-s0)/(n1-n0)*1e9, (n1-n0)/wall
	if a == nil {
		return v, nil
	}
	if to, err = p.runs(); err == nil {
		after, err = a.usage()
	}
	v.programs = (to.time - from.time).Seconds() / wall * 100
	v.agent = (after.cpu - before.cpu).Seconds() / wall * 100
	return v, err
}
