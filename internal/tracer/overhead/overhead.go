// SPDX-License-Identifier: Apache-2.0

// Package overhead has what measurements of a tracer's cost share: programs that do
// nothing at the places of a gadget's own, and the median of what was measured. The
// difference between such programs and the gadget's is what the gadget itself costs.
package overhead

import (
	"context"
	"fmt"
	"math"
	"slices"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"golang.org/x/sys/unix"

	"github.com/gpu-gadgets/gpu-gadgets/internal/tracer"
)

// EmptyProgram is for probes (uprobe_multi, Linux 6.6) of which only the kernel's own
// part is measured. Flags are those of loading, e.g. BPF_F_SLEEPABLE. The caller closes it.
func EmptyProgram(flags uint32) (*ebpf.Program, error) {
	program, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: "bare", Type: ebpf.Kprobe, AttachType: ebpf.AttachTraceUprobeMulti, License: "GPL", Flags: flags,
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 0), asm.Return()},
	})
	if err != nil {
		return nil, fmt.Errorf("load an empty program: %w", err)
	}
	return program, nil
}

// AttachEmpty puts programs that do nothing at the points of one or more gadgets in a
// process. The function returned removes them.
func AttachEmpty(pid int, tables ...[]tracer.Point) (remove func(), err error) {
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
	for _, points := range tables {
		cfg := tracer.Config{Points: points, PIDs: []uint32{uint32(pid)}, Mode: tracer.Multi}
		for to, flags := range map[**ebpf.Program]uint32{
			&cfg.Programs.EnterMulti: 0, &cfg.Programs.ExitMulti: unix.BPF_F_SLEEPABLE,
			&cfg.Programs.SleepingEnterMulti: unix.BPF_F_SLEEPABLE,
		} {
			if *to, err = EmptyProgram(flags); err != nil {
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

// Median of what was measured; NaN of nothing.
func Median(values []float64) float64 {
	if len(values) == 0 {
		return math.NaN()
	}
	sorted := slices.Sorted(slices.Values(values))
	n := len(sorted)
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}
