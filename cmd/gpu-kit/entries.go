// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"debug/elf"
	"fmt"
	"slices"
	"strings"

	"github.com/cilium/ebpf/link"

	"github.com/gpu-gadgets/gpu-gadgets/cmd/gpu-kit/internal/lockstep"
	"github.com/gpu-gadgets/gpu-gadgets/cmd/gpu-kit/internal/report"
	"github.com/gpu-gadgets/gpu-gadgets/cmd/gpu-kit/internal/taps"
	"github.com/gpu-gadgets/gpu-gadgets/internal/tracer/overhead"
)

// entries checks the assumptions of probe sites: the shape of the driver's functions, and
// that the runtime gets the exported ones.
func (k *kit) entries(ctx context.Context, s *report.Step) error {
	w, err := k.workload(ctx)
	if err != nil {
		return err
	}
	defer w.Stop()
	path, err := libcuda(w.PID)
	if err != nil {
		return err
	}
	all, err := taps.Entries(path, "cu")
	if err != nil {
		return err
	}
	names := k.probed("cuda_alloc", "cuda_kernel")
	shapes, where, found := map[string]int{}, map[string]int{}, 0
	var machine elf.Machine
	for _, e := range all {
		if slices.Contains(names, e.Name) {
			shapes[e.Shape()]++
			where[fmt.Sprintf("+%d", e.Place)]++
			found++
			machine = e.Machine
		}
	}
	shape, place := "cmpl; je", "+10"
	if machine == elf.EM_AARCH64 {
		shape, place = "adrp", "+0"
	}
	s.Record("functions that are probed, of the exported ones", fmt.Sprintf("%d of %d", found, len(all)), false)
	s.Equal("what they begin with", fmt.Sprintf("%s %d", shape, found), listed(shapes))
	s.Equal("where the probe is", fmt.Sprintf("%s %d", place, found), listed(where))

	a, err := w.Must(commandLimit, "addresses %s", strings.Join(names, " "))
	if err != nil {
		return err
	}
	s.Equal("functions for which cuGetProcAddress gives one that is not probed", 0, a.Number("unknown"))
	if text := a.Text("unknowns"); text != "" {
		s.Record("these functions", strings.TrimSpace(text), false)
	}
	s.Record("the others: it gives the same, another form that is probed, none",
		fmt.Sprintf("%d, %d, %d", a.Number("same"), a.Number("newer"), a.Number("absent")), false)
	return k.probeCosts(w, path, all, s)
}

// probeCosts measures an empty program by where it is, on the clock of the workload.
func (k *kit) probeCosts(w *lockstep.Workload, path string, all []taps.Entry, s *report.Step) error {
	var pair []taps.Entry
	for _, e := range all {
		if e.Name == "cuMemAlloc_v2" || e.Name == "cuMemFree_v2" {
			pair = append(pair, e)
		}
	}
	if len(pair) != 2 {
		return fmt.Errorf("%s does not export cuMemAlloc_v2 or cuMemFree_v2", path)
	}
	program, err := overhead.EmptyProgram(0)
	if err != nil {
		return fmt.Errorf("uprobe_multi needs Linux 6.6: %w", err)
	}
	defer program.Close()
	file, err := link.OpenExecutable(path)
	if err != nil {
		return err
	}
	alone, err := perCall(w)
	if err != nil {
		return err
	}
	s.Record("a call of cuMemAlloc_v2 or cuMemFree_v2, ns", int(alone), true)
	costs := map[string]float64{}
	for _, c := range []struct {
		name     string
		chosen   bool
		isReturn bool
	}{{"at the entry", false, false}, {"at the chosen place", true, false}, {"at the chosen place, return", true, true}} {
		o := &link.UprobeMultiOptions{PID: uint32(w.PID)}
		for _, e := range pair {
			at := e.FileOffset
			if c.chosen {
				at += e.Place
			}
			o.Addresses = append(o.Addresses, at)
		}
		attach := file.UprobeMulti
		if c.isReturn {
			attach = file.UretprobeMulti
		}
		probe, err := attach(nil, program, o)
		if err != nil {
			return fmt.Errorf("probe %s: %w", c.name, err)
		}
		probed, err := perCall(w)
		probe.Close()
		if err != nil {
			return err
		}
		costs[c.name] = probed - alone
		s.Record("an empty probe "+c.name+", ns a call", int(probed-alone), true)
	}
	s.AtMost("the chosen place against the entry", "%.2f times", 1, costs["at the chosen place"]/costs["at the entry"])
	return nil
}

// perCall is half of a pair of cuMemAlloc_v2 and cuMemFree_v2, in ns.
func perCall(w *lockstep.Workload) (float64, error) {
	a, err := w.Must(commandLimit, "time alloc %d", timedCalls)
	return a.Real("ns") / 2, err
}
