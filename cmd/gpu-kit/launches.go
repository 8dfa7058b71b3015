// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/gpu-gadgets/gpu-gadgets/cmd/gpu-kit/internal/gadget"
	"github.com/gpu-gadgets/gpu-gadgets/cmd/gpu-kit/internal/report"
)

// launches compares cuda_kernel's rows with the workload's launches.
func (k *kit) launches(ctx context.Context, s *report.Step) error {
	w, err := k.workload(ctx)
	if err != nil {
		return err
	}
	defer w.Stop()
	run, stop, err := k.trace(ctx, w.PID, "cuda_kernel", driverLibrary)
	if err != nil {
		return err
	}
	defer stop()
	const nodes, replays = 5, 7
	truth := map[string]uint64{}
	for _, c := range []struct {
		command string
		counts  map[string]uint64
	}{
		{"launch kit_empty plain 1000", map[string]uint64{"cuLaunchKernel kit_empty": 1000}},
		{"launch kit_empty ex 100", map[string]uint64{"cuLaunchKernelEx kit_empty": 100}},
		{"launch kit_cooperative coop 10", map[string]uint64{"cuLaunchCooperativeKernel kit_cooperative": 10}},
		{fmt.Sprintf("graph %d %d", nodes, replays), map[string]uint64{
			"cuLaunchKernel kit_node, captured": nodes, "cuGraphLaunch": replays, "cuGraphLaunch, nodes": nodes * replays}},
	} {
		a, err := w.Do(commandLimit, "%s", c.command)
		if err != nil {
			return err
		}
		if a.Err() != nil {
			s.Impossible(c.command, a.Err().Error())
			continue
		}
		maps.Copy(truth, c.counts)
	}
	stop()
	measured := launchesBy(run.Table("calls"))
	for _, name := range slices.Sorted(maps.Keys(truth)) {
		s.Equal(name, truth[name], measured[name])
	}
	s.Equal("drops", "none", listed(run.Drops()))
	return nil
}

// launchesBy sums cuda_kernel's rows of launches by function and kernel.
func launchesBy(rows []gadget.Row) map[string]uint64 {
	sums := map[string]uint64{}
	for _, r := range rows {
		switch name := r.Text("api"); r.Text("operation") {
		case "launch":
			sums[name+" "+r.Text("kernel")] += r.Number("calls")
		case "captured":
			sums[name+" "+r.Text("kernel")+", captured"] += r.Number("calls")
		case "graph":
			sums[name] += r.Number("calls")
			sums[name+", nodes"] += r.Number("nodes")
		}
	}
	return sums
}

// nccl compares nccl_trace's rows with the collectives that the workload made.
func (k *kit) nccl(ctx context.Context, s *report.Step) error {
	w, err := k.workload(ctx)
	if err != nil {
		return err
	}
	defer w.Stop()
	first, err := w.Do(commandLimit, "nccl 2")
	if err != nil {
		return err
	}
	if first.Number("is_installed") == 0 {
		return errNotHere("NCCL is not installed: no libnccl.so.2")
	}
	if first.Err() != nil {
		return first.Err()
	}
	run, stop, err := k.trace(ctx, w.PID, "nccl_trace", "libnccl.so")
	if err != nil {
		return err
	}
	defer stop()
	const n = 20 // every second one with a broadcast
	if _, err := w.Must(commandLimit, "nccl %d", n); err != nil {
		return err
	}
	stop()
	got := map[string]uint64{}
	for _, r := range run.Table("operations") {
		got[r.Text("op")] += r.Number("calls")
	}
	s.Equal("operations of one rank", listed(map[string]uint64{"AllReduce": n, "Broadcast": n / 2}), listed(got))
	s.Equal("drops", "none", listed(run.Drops()))
	return nil
}
