// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"time"

	"github.com/gpu-gadgets/gpu-gadgets/cmd/gpu-kit/internal/lockstep"
	"github.com/gpu-gadgets/gpu-gadgets/cmd/gpu-kit/internal/report"
)

// steps in their order. They usually take less than three minutes in total; main's limit
// ends them in any case.
func steps() []step {
	return []step{
		{"machine", "the driver and its devices", time.Minute, (*kit).machine},
		{"entries", "what the driver's functions begin with, and what a probe there costs", time.Minute, (*kit).entries},
		{"memory", "memory of every kind, against the workload's count and the driver's", time.Minute, (*kit).memory},
		{"runtime", "which calls of the driver the CUDA runtime makes", time.Minute, (*kit).runtime},
		{"launches", "launches, names and graphs", time.Minute, (*kit).launches},
		{"late", "attaching to a process that holds memory", time.Minute, (*kit).late},
		{"oom", "allocations that the driver refuses", time.Minute, (*kit).oom},
		{"devices", "several devices, MIG", time.Minute, (*kit).severalDevices},
		{"python", "lines of Python", time.Minute, (*kit).python},
		{"nccl", "collectives", time.Minute, (*kit).nccl},
		{"nvml", "the driver's metrics, against nvidia-smi", time.Minute, (*kit).nvml},
		{"ioctls", "requests to the kernel's driver, for each kind of memory", time.Minute, (*kit).ioctls},
		{"overhead", "what a call takes: alone, with empty programs, traced", 2 * time.Minute, (*kit).overhead},
		{"throughput", "what a busy GPU gets done, alone and traced", 3 * time.Minute, (*kit).throughput},
		{"pytorch", "PyTorch's own counts", 2 * time.Minute, (*kit).pytorch},
		{"vllm", "a server of models", 2 * time.Minute, (*kit).vllm},
		{"clean", "that nothing is left", time.Minute, (*kit).clean},
	}
}

// machine finds the driver; without one the other steps are not possible.
func (k *kit) machine(ctx context.Context, s *report.Step) error {
	w, err := lockstep.Start(ctx, k.temp, nil, k.dir+"/workload")
	if err != nil {
		return err
	}
	defer w.Stop()
	a, err := w.Do(commandLimit, "init")
	if err != nil {
		return err
	}
	if a.Err() != nil {
		return errNotHere(fmt.Sprintf("cuInit: %v", a.Err()))
	}
	version := a.Number("version")
	k.isSimulated, k.devices = a.Number("is_simulated") == 1, int(a.Number("devices"))
	k.hasDriver = k.devices > 0
	k.report.IsSimulated = k.isSimulated
	if !k.hasDriver {
		return errNotHere("the driver has no device")
	}
	k.settings = settings(ctx)
	k.report.Machine["driver"] = fmt.Sprintf("CUDA %d.%d", version/1000, version%1000/10)
	if k.isSimulated {
		k.report.Machine["driver"] += ", simulated"
	}
	s.Record("API of the driver", fmt.Sprintf("%d.%d", version/1000, version%1000/10), false)
	s.Record("devices", k.devices, false)
	for i := range min(k.devices, maxDevices) {
		d, err := w.Must(commandLimit, "device %d", i)
		if err != nil {
			return err
		}
		text := fmt.Sprintf("%s, %d MiB, %d processors", d.Text("name"), d.Number("bytes")/mib, d.Number("processors"))
		s.Record(fmt.Sprint("device ", i), text, false)
		k.report.Machine["devices"] += fmt.Sprintf("%d: %s; ", i, text)
	}
	return nil
}
