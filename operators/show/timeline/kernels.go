// SPDX-License-Identifier: Apache-2.0

package timeline

import (
	"cmp"
	"slices"

	"github.com/inspektor-gadget/inspektor-gadget/pkg/datasource"

	"github.com/gpu-gadgets/gpu-gadgets/internal/timeline/gpuclock"
	"github.com/gpu-gadgets/gpu-gadgets/internal/timeline/weave"
)

// deviceEvents are the kernels that the GPU ran, of --device-times.
const deviceEvents = "device_events"

// ran is a kernel, its times still by CUPTI's clock.
type ran struct {
	kernel   *weave.Kernel
	reported uint64 // boot ns
}

// kernels are those that the GPU ran and are not written yet. They are reported seconds
// late, so they do not wait for others' events, nor those for them.
type kernels struct {
	waiting []ran
	clocks  map[uint64]*gpuclock.Clock // of processes
	drawn   map[gpuclock.Source]int
}

// bindKernels reads device_events.
func bindKernels(f *fields, s *stacks) func(datasource.Data) ran {
	who, start, end, reported := f.who(), f.u64("start_device_ns"), f.u64("end_device_ns"), f.u64("reported_boot_ns")
	launch, name, function, stack := f.u64("launch_boot_ns"), f.optional("kernel"), f.text("api"), f.u64("stack_id")
	device, stream, graph, node := f.u32("device"), f.u32("stream"), f.u32("graph"), f.u64("node")
	correlation := f.u32("correlation")
	return func(d datasource.Data) ran {
		k := &weave.Kernel{
			Thread: who(d), Start: start(d), End: end(d), Launch: launch(d), Name: name(d), Function: function(d),
			Device: weave.DeviceOf(int32(min(device(d), 1<<16))), Stream: stream(d), Graph: graph(d), Node: node(d),
			Correlation: correlation(d),
		}
		k.Stack = s.get(k.Process, k.PID, stack(d))
		return ran{k, reported(d)}
	}
}

func (r *recorder) ran(k ran) {
	r.kernels.waiting = append(r.kernels.waiting, k)
	if len(r.kernels.waiting) >= maxHeld {
		r.drawKernels()
	}
}

// drawKernels writes all that have arrived, at their times by the kernel's clock.
func (r *recorder) drawKernels() {
	all := &r.kernels
	if len(all.waiting) == 0 {
		return
	}
	wall := int64(wallOffset())
	lots := map[uint64][]gpuclock.Seen{}
	for _, k := range all.waiting {
		lots[k.kernel.Process] = append(lots[k.kernel.Process],
			gpuclock.Seen{Start: k.kernel.Start, End: k.kernel.End, Launch: k.kernel.Launch, Reported: k.reported})
	}
	if all.clocks == nil || len(all.clocks) >= maxProcesses {
		all.clocks = map[uint64]*gpuclock.Clock{}
	}
	if all.drawn == nil {
		all.drawn = map[gpuclock.Source]int{}
	}
	offsets := map[uint64]int64{}
	for process, lot := range lots {
		clock := all.clocks[process]
		if clock == nil {
			clock = &gpuclock.Clock{}
			all.clocks[process] = clock
		}
		var source gpuclock.Source
		offsets[process], source = clock.Offset(lot, wall)
		all.drawn[source] += len(lot)
	}
	slices.SortStableFunc(all.waiting, func(a, b ran) int {
		return cmp.Or(cmp.Compare(a.kernel.Process, b.kernel.Process), cmp.Compare(a.kernel.Start, b.kernel.Start))
	})
	for _, k := range all.waiting {
		offset := offsets[k.kernel.Process]
		k.kernel.Start, k.kernel.End = shifted(k.kernel.Start, offset), shifted(k.kernel.End, offset)
		r.weaver.Kernel(k.kernel)
		if r.lines != nil {
			r.lines.Kernel(k.kernel)
		}
	}
	clear(all.waiting)
	all.waiting = all.waiting[:0]
}

func shifted(at uint64, by int64) uint64 { return uint64(max(int64(at)+by, 0)) }

// logCounts logs how many kernels were written, and by which clock.
func (all *kernels) logCounts(log logger) {
	for _, source := range []gpuclock.Source{gpuclock.Realtime, gpuclock.Boottime, gpuclock.Unknown} {
		if n := all.drawn[source]; n > 0 {
			log.Infof("timeline: %d kernels on the GPU, timed by %s", n, source)
		}
	}
}
