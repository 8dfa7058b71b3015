// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"time"
)

// Targets of cuda_kernel: added run time of one call.
const (
	targetLaunch      = 800.0  // ns, without stacks
	targetLaunchStack = 1000.0 // ns, with one that was seen before
	targetLaunchFrame = 150.0  // ns, for each of its Python frames
)

// launch measures cuda_kernel: the cost of a launch, and of ig-gpu at 20,000 a second.
func (b *bench) launch() error {
	b.gadget, b.rowMark = "cuda_kernel", `"calls_error":`
	defer func() { b.gadget, b.rowMark = "cuda_alloc", `"alloc_objects":` }()

	b.title("eBPF run time of a launch, caller in C", "ns")
	for _, c := range []struct {
		name, target string
		args         []string
	}{
		{"without stacks", ns(targetLaunch), []string{"--stacks=false"}},
		{"with stacks, 1 frame", ns(targetLaunchStack), nil},
		{"with the stack of one in 100", "", []string{"--sample", "100"}},
		{"with stacks and events", "", []string{"--events"}},
		{"with --spans, of a process that publishes none", "", []string{"--spans"}},
	} {
		v, err := b.launchCase(nil, c.args...)
		if err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
		b.row(c.name, c.target, number(v))
	}
	v, err := b.launchCase([]string{"-c"}, "--spans")
	if err != nil {
		return fmt.Errorf("spans: %w", err)
	}
	b.row("with --spans, of one that publishes them", "", number(v))
	if err := b.launchPython(); err != nil {
		return err
	}
	b.title("ig-gpu run cuda_kernel, all of its threads", "CPU %", "user %", "RSS MiB", "anon MiB", "rows/s")
	return b.agentCase(agentCase{name: "20,000 launches/s, one row", target: "3 user", seconds: 20,
		command: []string{b.workload, "-l", b.library, "-n", "100000000", "-r", "20000", "-k"}})
}

func (b *bench) launchCase(workload []string, args ...string) (float64, error) {
	w, err := start(nil, b.workload, append(workload, "-l", b.library, "-n", "100000000", "-k")...)
	if err != nil {
		return 0, err
	}
	defer w.stop()
	a, p, err := b.traced(args...)
	if err != nil {
		return 0, err
	}
	defer a.stop()
	defer p.close()
	v, err := p.nsPerPair(1500 * time.Millisecond)
	return v / 2, err // a pair is two calls
}

// launchPython measures callers in Python by depth, all of the time.
func (b *bench) launchPython() error {
	var columns []string
	for _, d := range depths {
		columns = append(columns, fmt.Sprint(d))
	}
	b.title("eBPF run time of a launch by Python frames, ns", append(columns, "fixed", "per frame")...)
	w, err := start(nil, b.workload, "-l", b.library, "-n", "100000000", "-r", "100", "-k")
	if err != nil {
		return err
	}
	defer w.stop()
	a, p, err := b.traced()
	if err != nil {
		return err
	}
	defer a.stop()
	defer p.close()
	w.stop() // it only made ig-gpu attach
	for _, minor := range []int{8, 11, 12, 13} {
		name := fmt.Sprintf("CPython 3.%d", minor)
		python := findPython(minor)
		if python == "" {
			b.row(name, "", "not on this machine")
			continue
		}
		if err := b.depths(name, ns(targetLaunchStack)+" + "+number(targetLaunchFrame)+"·n", python, "launches", func() (float64, error) {
			v, err := p.nsPerPair(800 * time.Millisecond)
			return v / 2, err
		}); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}
