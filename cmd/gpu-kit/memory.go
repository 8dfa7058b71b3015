// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/gpu-gadgets/gpu-gadgets/cmd/gpu-kit/internal/gadget"
	"github.com/gpu-gadgets/gpu-gadgets/cmd/gpu-kit/internal/lockstep"
	"github.com/gpu-gadgets/gpu-gadgets/cmd/gpu-kit/internal/report"
)

// allocation is one kind of memory of the workload.
type allocation struct {
	kind  string // the workload's word
	ours  string // cuda_alloc's kind
	bytes uint64 // a multiple of the driver's 2 MiB, where it counts them
	n     int
	// onDevice: its bytes are taken from the device at once, and the driver counts them.
	onDevice bool
}

var allocations = []allocation{
	{"device", "device", 64 * mib, 2, true},
	{"pitch", "device", 8_000_000, 1, false}, // its pitch is the driver's
	{"managed", "managed", 16 * mib, 2, false},
	{"host", "host", 8 * mib, 2, false},
	{"registered", "host", 4*mib + 4096, 2, false},
	{"array", "array", 16 * mib, 2, true},
	{"array3d", "array", 16 * mib, 1, false},
	{"mipmap", "array", 16 * mib, 1, false},
	{"vmm", "vmm", 64 * mib, 2, true},
	{"pool", "pool", 32 * mib, 2, false}, // the driver chooses by how much its pool grows
	{"frompool", "pool", 32 * mib, 1, false},
}

// held has the allocated and freed bytes of a kind.
type held struct{ allocObjects, allocBytes, freedObjects, freedBytes uint64 }

func (h held) String() string {
	return fmt.Sprintf("%d allocated, %d bytes; %d freed, %d bytes; %d in use, %d bytes", h.allocObjects, h.allocBytes,
		h.freedObjects, h.freedBytes, h.allocObjects-h.freedObjects, h.allocBytes-h.freedBytes)
}

// heldBy sums cuda_alloc's rows by kind. What is in use is a field of its own: it is
// checked against the difference by hold.
func heldBy(rows []gadget.Row) map[string]held {
	sums := map[string]held{}
	for _, r := range rows {
		h := sums[r.Text("kind")]
		h.allocObjects += r.Number("alloc_objects")
		h.allocBytes += r.Number("alloc_bytes")
		h.freedObjects += r.Number("freed_objects")
		h.freedBytes += r.Number("freed_bytes")
		sums[r.Text("kind")] = h
	}
	return sums
}

// memory compares cuda_alloc's rows with the counts of the workload and the driver.
func (k *kit) memory(ctx context.Context, s *report.Step) error {
	w, err := k.workload(ctx)
	if err != nil {
		return err
	}
	defer w.Stop()
	if err := k.moduleOverhead(w, s); err != nil {
		return err
	}
	run, stop, err := k.trace(ctx, w.PID, "cuda_alloc", driverLibrary)
	if err != nil {
		return err
	}
	defer stop()
	before, err := w.Must(commandLimit, "nvml 0")
	hasNVML := err == nil
	truth, err := k.allocateAll(w, s)
	if err != nil {
		return err
	}
	after, _ := w.Do(commandLimit, "nvml 0")
	stop()

	measured := heldBy(run.Table("allocs"))
	for _, kind := range slices.Sorted(maps.Keys(truth)) {
		s.Equal("cuda_alloc: "+kind, truth[kind], measured[kind])
	}
	var inUse, ours uint64
	for _, h := range truth {
		inUse += h.allocBytes - h.freedBytes
	}
	for _, r := range run.Table("allocs") {
		ours += r.Number("inuse_bytes")
	}
	s.Equal("cuda_alloc: in use, all kinds", inUse, ours)
	s.Equal("cuda_alloc: drops", "none", listed(run.Drops()))
	if !hasNVML {
		why := "there is no NVML"
		if k.isSimulated {
			why = simulated
		}
		s.Impossible("NVML: growth of the process", why)
		s.Impossible("NVML: context and modules", why)
		return nil
	}
	device := uint64(0)
	for _, kind := range []string{"device", "array", "vmm", "pool"} {
		device += measured[kind].allocBytes - measured[kind].freedBytes
	}
	s.Equal("NVML: growth of the process, MiB", toMiB(device), toMiB(after.Number("process_used")-before.Number("process_used")))
	s.Record("NVML: context and modules, MiB", toMiB(before.Number("process_used")), true)
	return nil
}

func toMiB(bytes uint64) uint64 { return (bytes + mib/2) / mib }

// available are the free bytes of the device by cuMemGetInfo.
func available(w *lockstep.Workload) (uint64, error) {
	a, err := w.Must(commandLimit, "info")
	return a.Number("free"), err
}

// moduleOverhead is the device memory that the first kernel takes.
func (k *kit) moduleOverhead(w *lockstep.Workload, s *report.Step) error {
	before, err := available(w)
	if err != nil {
		return err
	}
	if _, err := w.Must(commandLimit, "launch kit_empty plain 1"); err != nil {
		return err
	}
	after, err := available(w)
	s.Record("cuMemGetInfo: a module and its first launch, bytes", int64(before-after), true)
	return err
}

// allocateAll allocates each kind, and frees one of it.
func (k *kit) allocateAll(w *lockstep.Workload, s *report.Step) (map[string]held, error) {
	truth := map[string]held{}
	for _, a := range allocations {
		before, err := available(w)
		if err != nil {
			return nil, err
		}
		made, err := w.Must(commandLimit, "alloc %s %d %d", a.kind, a.bytes, a.n)
		if err != nil {
			s.Impossible("cuda_alloc: "+a.kind+" of the workload", err.Error())
			continue
		}
		after, err := available(w)
		if err != nil {
			return nil, err
		}
		if took := int64(before - after); a.onDevice {
			s.Equal("cuMemGetInfo: "+a.kind+", MiB", toMiB(made.Number("bytes")), (took+mib/2)/mib)
		} else {
			s.Record("cuMemGetInfo: "+a.kind+", bytes", took, true)
		}
		freed, err := w.Must(commandLimit, "free %s 1", a.kind)
		if err != nil {
			return nil, err
		}
		h := truth[a.ours]
		h.allocObjects += made.Number("objects")
		h.allocBytes += made.Number("bytes")
		h.freedObjects += freed.Number("objects")
		h.freedBytes += freed.Number("bytes")
		truth[a.ours] = h
	}
	return truth, nil
}

// late attaches to a process that holds memory already.
func (k *kit) late(ctx context.Context, s *report.Step) error {
	w, err := k.workload(ctx)
	if err != nil {
		return err
	}
	defer w.Stop()
	if _, err := w.Must(commandLimit, "alloc device %d 3", mib); err != nil {
		return err
	}
	run, stop, err := k.trace(ctx, w.PID, "cuda_alloc", driverLibrary)
	if err != nil {
		return err
	}
	defer stop()
	if _, err := w.Must(commandLimit, "free device 1"); err != nil {
		return err
	}
	made, err := w.Must(commandLimit, "alloc device %d 2", 5*mib)
	if err != nil {
		return err
	}
	stop()
	truth := held{allocObjects: made.Number("objects"), allocBytes: made.Number("bytes")}
	s.Equal("what is allocated after attach", truth, heldBy(run.Table("allocs"))["device"])
	s.Equal("drops", "freed_before_attach 1", listed(run.Drops()))
	return nil
}

// oom has the driver refuse an allocation of more than the device has; and one when it
// is full, where that disturbs no other process.
func (k *kit) oom(ctx context.Context, s *report.Step) error {
	w, err := k.workload(ctx)
	if err != nil {
		return err
	}
	defer w.Stop()
	others, _ := w.Do(commandLimit, "nvml 0")
	commands := []string{"refuse"}
	switch {
	case k.isSimulated || others.Err() == nil && others.Number("others") == 0:
		commands = append(commands, "fill")
	case others.Err() != nil:
		s.Impossible("a full device", "without NVML it is unknown whether others use it")
	default:
		s.Impossible("a full device", fmt.Sprintf("%d other processes use it", others.Number("others")))
	}
	run, stop, err := k.trace(ctx, w.PID, "cuda_alloc", driverLibrary)
	if err != nil {
		return err
	}
	defer stop()
	var expected []string
	for _, command := range commands {
		a, err := w.Do(commandLimit, "%s", command)
		if err != nil {
			return err
		}
		if a.Result != 2 {
			return fmt.Errorf("%s: the driver answers %d, not that memory is out", command, a.Result)
		}
		expected = append(expected, refusal("cuMemAlloc_v2", "CUDA_ERROR_OUT_OF_MEMORY", a.Number("requested"), a.Number("held")))
	}
	stop()
	var measured []string
	for _, r := range run.Rows() {
		if r.Number("requested_bytes") > 0 {
			measured = append(measured, refusal(r.Text("api"), r.Text("error"), r.Number("requested_bytes"), r.Number("inuse_bytes")))
		}
	}
	s.Equal("refused allocations", len(expected), len(measured))
	for i, text := range expected {
		got := "no row"
		if i < len(measured) {
			got = measured[i]
		}
		s.Equal(map[string]string{"refuse": "more than the device has", "fill": "a full device"}[commands[i]], text, got)
	}
	return nil
}

func refusal(api, why string, requested, held uint64) string {
	return fmt.Sprintf("%s of %d bytes: %s, %d bytes held", api, requested, why, held)
}
