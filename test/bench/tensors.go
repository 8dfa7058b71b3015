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
	return nil
}

func percent(v float64) string { return strconv.FormatFloat(v, 'f', 2, 64) }

// tensorCost is in percent of a core, and in nanoseconds of the workload's per block.
type tensorCost struct{ programs, agent, perBlock, rate float64 }

// tensorCase runs the workload, and ig-gpu where there are arguments: "run" and more.
func (b *bench) tensorCase(libraries string, args ...string) (v tensorCost, err error) {
	w, err := start(nil, "env", "LD_LIBRARY_PATH="+filepath.Dir(b.library), "python3", "test/bench/tensors.py",
		libraries, strconv.Itoa(tensorRate), strconv.Itoa(tensorDepth))
	if err != nil {
		return v, err
	}
	defer w.stop()
	var said sync.Mutex
	var blocks, seconds float64
	w.listen(func(line []byte) {
		said.Lock()
		defer said.Unlock()
		_, _ = fmt.Sscan(string(line), &blocks, &seconds)
	})
	progress := func() (float64, float64) {
		said.Lock()
		defer said.Unlock()
		return blocks, seconds
	}
	var a *agent
	var p *programs
	if len(args) > 0 {
		if a, err = b.startAgent(args[1:]...); err != nil {
			return v, err
		}
		defer a.stop()
		select {
		case <-a.attached:
		case <-a.done:
			return v, fmt.Errorf("ig-gpu ended: %s", a.errors.String())
		case <-time.After(30 * time.Second):
			return v, fmt.Errorf("ig-gpu attached to nothing in 30 s: %s", a.errors.String())
		}
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
