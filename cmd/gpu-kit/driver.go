// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/gpu-gadgets/gpu-gadgets/cmd/gpu-kit/internal/report"
	"github.com/gpu-gadgets/gpu-gadgets/cmd/gpu-kit/internal/taps"
)

// maxDevices is the number of devices that the kit checks; a machine may have more.
const maxDevices = 8

// severalDevices compares cuda_alloc's devices with the workload's.
func (k *kit) severalDevices(ctx context.Context, s *report.Step) error {
	w, err := k.workload(ctx)
	if err != nil {
		return err
	}
	defer w.Stop()
	const name = "memory by device"
	if n := min(k.devices, maxDevices); n < 2 {
		s.Impossible(name, "there is one device")
	} else {
		run, stop, err := k.trace(ctx, w.PID, "cuda_alloc", driverLibrary)
		if err != nil {
			return err
		}
		defer stop()
		truth, measured := map[string]uint64{}, map[string]uint64{}
		for i := range n {
			if _, err := w.Must(commandLimit, "device %d", i); err != nil {
				return err
			}
			a, err := w.Must(commandLimit, "alloc device %d", (i+1)*mib)
			if err != nil {
				return err
			}
			truth[fmt.Sprint(i)] = a.Number("bytes")
		}
		stop()
		for _, r := range run.Table("allocs") {
			measured[fmt.Sprint(r["device"])] += r.Number("inuse_bytes")
		}
		s.Equal(name, listed(truth), listed(measured))
	}
	a, err := w.Do(commandLimit, "nvml 0")
	switch {
	case err != nil:
		return err
	case k.isSimulated:
		s.Impossible("MIG", simulated)
	case a.Err() != nil:
		s.Impossible("MIG", "there is no NVML")
	case a.Number("mig") == 0:
		s.Impossible("MIG", "it is off on device 0, and the kit changes no setting")
	default:
		s.Record("MIG: device 0 of CUDA is an instance; its bytes", k.report.Machine["devices"], false)
	}
	return nil
}

// nvml compares NVML's values, as the workload and ig-gpu's metrics read them, with nvidia-smi.
func (k *kit) nvml(ctx context.Context, s *report.Step) error {
	if k.isSimulated {
		return errNotHere(simulated)
	}
	w, err := k.workload(ctx)
	if err != nil {
		return err
	}
	defer w.Stop()
	out, err := exec.CommandContext(ctx, "nvidia-smi", "-i", "0", "--format=csv,noheader,nounits",
		"--query-gpu=memory.total,memory.used,temperature.gpu,utilization.gpu").Output()
	if err != nil {
		return errNotHere(fmt.Sprintf("nvidia-smi: %v", err))
	}
	a, err := w.Must(commandLimit, "nvml 0")
	if err != nil {
		return errNotHere(err.Error())
	}
	fields := strings.Split(strings.TrimSpace(string(out)), ",")
	if len(fields) != 4 {
		return fmt.Errorf("nvidia-smi printed %q", out)
	}
	for i, c := range []struct {
		name  string
		ours  uint64
		apart float64 // changes between two readings
	}{
		{"memory in all, MiB", a.Number("total") / mib, 0},
		{"memory in use, MiB", a.Number("used") / mib, 16},
		{"temperature, °C", a.Number("celsius"), 2},
		{"utilization, %", a.Number("utilization"), 100},
	} {
		theirs, err := strconv.ParseFloat(strings.TrimSpace(fields[i]), 64)
		if err != nil {
			s.Impossible(c.name, fmt.Sprintf("nvidia-smi says %q", fields[i]))
			continue
		}
		apart := max(float64(c.ours)-theirs, theirs-float64(c.ours))
		s.Record(c.name+": NVML and nvidia-smi", fmt.Sprintf("%d and %g", c.ours, theirs), true)
		if c.apart < 100 {
			s.AtMost(c.name+": difference", "%.0f", c.apart, apart)
		}
	}
	return nil
}

// ioctls records the requests to the kernel's driver for each kind of memory.
func (k *kit) ioctls(ctx context.Context, s *report.Step) error {
	w, err := k.workload(ctx)
	if err != nil {
		return err
	}
	defer w.Stop()
	tap, err := taps.RecordIoctls(w.PID)
	if err != nil {
		return err
	}
	defer tap.Close()
	for _, a := range allocations {
		made, err := w.Do(commandLimit, "alloc %s %d", a.kind, a.bytes)
		if err != nil {
			return err
		}
		all, err := tap.Read()
		if err != nil {
			return err
		}
		name := fmt.Sprintf("%s, %d bytes", a.kind, a.bytes)
		switch counts, bytes := ioctlTable(all); {
		case made.Err() != nil:
			s.Impossible(name, made.Err().Error())
		case k.isSimulated && len(counts) == 0:
			s.Impossible(name, simulated)
		default:
			s.Record(name, listed(counts), true)
			if a.kind == "device" || a.kind == "vmm" {
				s.Equal(name+": of NV01_MEMORY_LOCAL_USER", made.Number("bytes"), bytes)
			}
		}
	}
	if _, err := w.Do(commandLimit, "free all"); err != nil {
		return err
	}
	time.Sleep(50 * time.Millisecond) // the driver's ioctls during a call
	return nil
}

// ioctlTable counts ioctls of NVIDIA's files by request, and sums the bytes of
// video memory.
func ioctlTable(all []taps.Ioctl) (counts map[string]int, localBytes uint64) {
	counts = map[string]int{}
	for _, i := range all {
		if !strings.HasPrefix(i.Path, "/dev/nvidia") {
			continue
		}
		name := strings.TrimPrefix(i.Path, "/dev/") + " " + i.Name
		if i.Class != "" {
			name += " " + i.Class
		}
		if i.Bytes > 0 {
			name += fmt.Sprintf(" %d bytes", i.Bytes)
		}
		if i.Failed {
			name += " (parameters unreadable)"
		}
		counts[name]++
		if i.Class == "NV01_MEMORY_LOCAL_USER" {
			localBytes += i.Bytes
		}
	}
	return counts, localBytes
}
