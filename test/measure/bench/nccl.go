// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"
)

// Targets of nccl_trace: run time of a call without its stack, and user space at that many
// calls a second.
const (
	targetOperation = 1000.0 // ns
	operationRate   = 50000
	targetUser      = "3 user"
)

// collectives starts calls of ncclAllReduce.
func (b *bench) collectives(args ...string) (*child, error) {
	nccl, err := filepath.Abs("build/simnccl/libnccl.so.2")
	if err != nil {
		return nil, err
	}
	ready := make(chan struct{}, 1)
	w, err := start(func([]byte) { ready <- struct{}{} }, filepath.Join(filepath.Dir(b.workload), "collectives"),
		append([]string{"-l", b.library, "-n", nccl}, args...)...)
	if err != nil {
		return nil, err
	}
	select {
	case <-ready:
		return w, nil
	case <-w.done:
		return nil, fmt.Errorf("make simcuda first: %s", w.errors.String())
	case <-time.After(time.Minute):
		w.stop()
		return nil, fmt.Errorf("the workload is not ready after a minute")
	}
}

// tracedCollectives starts ig-gpu, and waits until it has reported a communicator.
func (b *bench) tracedCollectives(args ...string) (*child, *programs, error) {
	row := make(chan struct{}, 1)
	// A table as JSON has the report of each rank; the gadget's own data is for
	// programs, and twice as large.
	const output = "collectives:json,hangs:json,communicators:none,operations:none,peers:none,operation_events:none,attachments:none"
	a, err := start(func(line []byte) {
		if bytes.Contains(line, []byte(`"rank":0`)) {
			select {
			case row <- struct{}{}:
			default:
			}
		}
	}, b.agent, append([]string{"run", "nccl_trace", "--host", "--pid", strconv.Itoa(os.Getpid()), "-o", output}, args...)...)
	if err != nil {
		return nil, nil, err
	}
	select {
	case <-row:
	case <-a.done:
		return nil, nil, fmt.Errorf("ig-gpu ended: %s", a.errors.String())
	case <-time.After(time.Minute):
		a.stop()
		return nil, nil, fmt.Errorf("ig-gpu reported no rank in a minute: %s", a.errors.String())
	}
	p, err := programsOf(a.cmd.Process.Pid)
	if err != nil {
		a.stop()
		return nil, nil, err
	}
	return a, p, nil
}

// nccl measures a call of NCCL, and ig-gpu at 50,000 of them a second.
func (b *bench) nccl() error {
	b.title("eBPF run time of an ncclAllReduce, caller in C", "ns")
	for _, c := range []struct {
		name, target string
		workload     []string
		args         []string
	}{
		{"without stacks", ns(targetOperation), nil, []string{"--stacks=false"}},
		{"and a wait for each 8 of them, per call", "", []string{"-w", "8"}, []string{"--stacks=false"}},
		{"10,000 communicators", "", []string{"-c", "10000"}, []string{"--stacks=false"}},
		{"with stacks, 1 frame", "", nil, nil},
	} {
		v, err := b.ncclCase(c.workload, c.args)
		if err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
		b.row(c.name, c.target, number(v))
	}
	b.title(fmt.Sprintf("ig-gpu run nccl_trace at %d calls a second", operationRate), "CPU %", "user %", "anon MiB", "kernel MiB")
	for _, communicators := range []int{1, 8, 1000, 10000} {
		if err := b.ncclAgent(communicators); err != nil {
			return err
		}
	}
	return nil
}

func (b *bench) ncclCase(workload, args []string) (float64, error) {
	w, err := b.collectives(append([]string{"-r", "20000"}, workload...)...)
	if err != nil {
		return 0, err
	}
	defer w.stop()
	a, p, err := b.tracedCollectives(args...)
	if err != nil {
		return 0, err
	}
	defer a.stop()
	defer p.close()
	v, err := p.nsPerPair(3 * time.Second)
	return v / 2, err // one call: an entry and a return
}

func (b *bench) ncclAgent(communicators int) error {
	w, err := b.collectives("-r", strconv.Itoa(operationRate), "-c", strconv.Itoa(communicators), "-w", "64")
	if err != nil {
		return err
	}
	defer w.stop()
	a, p, err := b.tracedCollectives()
	if err != nil {
		return err
	}
	defer a.stop()
	defer p.close()
	a.listen(nil)
	time.Sleep(2 * time.Second) // excludes work that is done once
	from, err := a.taken()
	if err != nil {
		return err
	}
	before, err := p.runs()
	if err != nil {
		return err
	}
	begun := time.Now()
	time.Sleep(20 * time.Second)
	to, err := a.taken()
	if err != nil {
		return err
	}
	after, err := p.runs()
	if err != nil {
		return err
	}
	wall := time.Since(begun).Seconds()
	share := 0.0
	if all := to.user + to.system - from.user - from.system; all > 0 {
		share = float64(to.user-from.user) / float64(all)
	}
	percent := (to.cpu - from.cpu).Seconds() / wall * 100
	target := targetUser
	if communicators > 1000 {
		target = "" // that it is bounded
	}
	kernel, err := a.mapBytes()
	if err != nil {
		return err
	}
	b.row(fmt.Sprintf("%d communicators, %.0f calls/s", communicators, float64(after.enters-before.enters)/wall), target,
		strconv.FormatFloat(percent, 'f', 2, 64), strconv.FormatFloat(percent*share, 'f', 2, 64), number(float64(to.anon)/(1<<20)),
		number(float64(kernel)/(1<<20)))
	return nil
}
