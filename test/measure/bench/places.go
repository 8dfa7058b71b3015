// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"runtime"
	"slices"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/gpu-gadgets/gpu-gadgets/internal/ig"
	"github.com/gpu-gadgets/gpu-gadgets/internal/tracer"
)

// places are where gadgets have their probes, one table for each.
type places struct {
	pid    int
	tables [][]tracer.Point
}

// trainingPoints are the places of the gadgets of a case, without those that are probed
// on demand, which are gone when a step is measured.
func trainingPoints(pid int, c trainingCase) (*places, error) {
	p := &places{pid: pid}
	for _, command := range c.commands {
		points, err := pointsOf(command[0], slices.Contains(command, "off"))
		if err != nil {
			return nil, err
		}
		if len(points) > 0 {
			p.tables = append(p.tables, points)
		}
	}
	return p, nil
}

// pointsOf are the places that are always probed.
func pointsOf(gadget string, withoutTorch bool) (points []tracer.Point, err error) {
	all, err := tableOf(gadget)
	if err != nil {
		return nil, err
	}
	for _, p := range all {
		if p.OnDemand() || p.USDT || withoutTorch && p.Library == "libc10" {
			continue
		}
		points = append(points, tracer.Point{
			Library: p.Library, Symbol: p.Symbol, Cookie: p.Cookie, Exit: p.Exit, EntrySleeps: p.EntrySleeps,
		})
	}
	return points, nil
}

// tableOf reads the table of a gadget out of its object, as ig-gpu does. A gadget that
// attaches to no functions has none.
func tableOf(gadget string) ([]ig.AttachPoint, error) {
	spec, err := ebpf.LoadCollectionSpec(fmt.Sprintf("build/bpf/%s/%s.bpf.o", gadget, runtime.GOARCH))
	if err != nil {
		return nil, fmt.Errorf("run make build first: %w", err)
	}
	table := spec.Maps[".rodata.attach"]
	if table == nil {
		return nil, nil
	}
	points, err := ig.ParseAttachPoints(table)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", gadget, err)
	}
	return points, nil
}

// empty puts programs that do nothing at these places. The function returned takes them
// away.
func (p *places) empty() (remove func(), err error) {
	var undo []func()
	remove = func() {
		for _, f := range slices.Backward(undo) {
			f()
		}
	}
	defer func() {
		if err != nil {
			remove()
		}
	}()
	for _, points := range p.tables {
		cfg := tracer.Config{Points: points, PIDs: []uint32{uint32(p.pid)}, Mode: tracer.Multi}
		for to, flags := range map[**ebpf.Program]uint32{
			&cfg.Programs.EnterMulti: 0, &cfg.Programs.ExitMulti: unix.BPF_F_SLEEPABLE,
			&cfg.Programs.SleepingEnterMulti: unix.BPF_F_SLEEPABLE,
		} {
			if *to, err = emptyProgram(flags); err != nil {
				return nil, err
			}
			undo = append(undo, func() { (*to).Close() })
		}
		var t *tracer.Tracer
		if t, err = tracer.New(cfg); err == nil {
			undo = append(undo, t.Stop)
			err = t.Start(context.Background())
		}
		if err != nil {
			return nil, fmt.Errorf("attach empty programs: %w", err)
		}
	}
	return remove, nil
}
