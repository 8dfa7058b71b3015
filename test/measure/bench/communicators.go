// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"time"
)

// communicators measures what --communicators of cuda_alloc costs: each call of NCCL has a probe
// at its entry and its return; without it there is none.
func (b *bench) communicators() error {
	b.title("cuda_alloc --communicators: probes of an ncclAllReduce, caller in C", "program runs per call", "ns")
	for _, how := range []string{"off", "on"} {
		calls, v, err := b.communicatorsCase(how)
		if err != nil {
			return fmt.Errorf("%s: %w", how, err)
		}
		b.row(how, "", number(calls), number(v))
	}
	return nil
}

// communicatorsCase watches 20,000 calls a second for three seconds.
func (b *bench) communicatorsCase(how string) (runs, ns float64, err error) {
	const rate = 20000
	w, err := b.collectives("-r", fmt.Sprint(rate))
	if err != nil {
		return 0, 0, err
	}
	defer w.stop()
	a, err := b.startAgent("--communicators", how)
	if err != nil {
		return 0, 0, err
	}
	defer a.stop()
	select {
	case <-a.attached:
	case <-a.done:
		return 0, 0, fmt.Errorf("ig-gpu ended: %s", a.errors.String())
	case <-time.After(30 * time.Second):
		return 0, 0, fmt.Errorf("ig-gpu attached to nothing in 30 s: %s", a.errors.String())
	}
	time.Sleep(time.Second)
	p, err := programsOf(a.cmd.Process.Pid)
	if err != nil {
		return 0, 0, err
	}
	defer p.close()
	from, err := p.runs()
	if err != nil {
		return 0, 0, err
	}
	begun := time.Now()
	time.Sleep(3 * time.Second)
	to, err := p.runs()
	if err != nil {
		return 0, 0, err
	}
	all := rate * time.Since(begun).Seconds()
	return float64(to.enters+to.exits-from.enters-from.exits) / all, float64(to.time-from.time) / all, nil
}
