// SPDX-License-Identifier: Apache-2.0

package verb

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gpu-gadgets/gpu-gadgets/internal/format/screen"
	"github.com/gpu-gadgets/gpu-gadgets/internal/profile"
)

// deviceCalls are the calls on a device, from a row of calls.
type deviceCalls struct {
	process   uint64
	operation string
	device    int32
	calls     int64
}

// contexts finds the processes' CUDA contexts, and those on devices that are not used.
func (f *facts) contexts() *profile.Contexts {
	c := &profile.Contexts{}
	for _, known := range f.peaks.rows {
		c.Memory(known.row.Process, known.row.Kind, known.row.Device, known.row.Values)
	}
	for _, called := range f.called {
		c.Calls(profile.Process{ID: called.process}, called.operation, called.device, called.calls)
	}
	return c
}

// makers are the lines that made the contexts of a process on a device.
func (f *facts) makers(c profile.Context) string {
	var lines []string
	for _, known := range f.peaks.rows {
		r := &known.row
		if r.Kind == profile.KindContext && r.InuseObjects > 0 && r.Process.ID == c.Process.ID && r.Device == c.Device {
			lines = append(lines, frameOr(known.frame))
		}
	}
	slices.Sort(lines)
	return strings.Join(slices.Compact(lines), " and ")
}

// unexplained returns the bytes that the vendor's driver counts and no row has; 0 where that is not known. What was counted
// of processes that have all ended is from before the watch, and gone.
func (f *facts) unexplained() int64 {
	if f.driver < 0 || f.isOver() {
		return 0
	}
	return max(f.driver-f.peaks.onGPUs(), 0)
}

// keptByPools says that memory without a row may be in stream-ordered pools; "": hardly any of it is.
func (f *facts) keptByPools(rest int64) string {
	freed := f.peaks.freedIntoPools(0)
	if freed < rest/10 || freed == 0 {
		return ""
	}
	allocate, trim := "cuMemAllocAsync", "cuMemPoolTrimTo"
	if f.vendor.library == amd.library {
		allocate, trim = "hipMallocAsync", "hipMemPoolTrimTo"
	}
	return fmt.Sprintf("kept by stream-ordered pools (%s): up to %s was freed into them; %s returns it.", allocate, profile.FormatBytes(freed), trim)
}

// composeContexts lists the contexts with the lines that made them, and those that serve no purpose.
func composeContexts(p *page, f *facts, ids string) {
	found := f.contexts()
	all := found.All()
	if len(all) == 0 {
		return
	}
	p.part = "Contexts"
	var made []string
	var objects int64
	for _, c := range all {
		objects += c.Objects
		made = append(made, fmt.Sprintf("on GPU %d by %s", c.Device, f.makers(c)))
	}
	text := fmt.Sprintf("CUDA contexts that were made during the watch:\n%s", strings.Join(made, "\n"))
	if rest := f.unexplained(); rest > 0 {
		text += fmt.Sprintf("\nNVIDIA's driver counts %s that no row explains", profile.FormatBytes(rest))
		if kept := f.keptByPools(rest); kept != "" {
			text += ". Of that, some may be " + kept
		} else {
			text += fmt.Sprintf(", at most %s for each of them.", profile.FormatBytes(rest/objects))
		}
	}
	p.say("ig-gpu run "+f.vendor.memory+" --pid "+ids+" -o none,allocs:columns --fields allocs:proc.pid,kind,device,inuse_objects,where", "%s", text)
	for _, c := range found.Idle() {
		text := fmt.Sprintf("%s[%d] has a context on GPU %d and does nothing else there: %s made it.", screen.Clean(c.Process.Comm), c.Process.PID, c.Device, f.makers(c))
		if c.PinnedBytes > 0 {
			text += fmt.Sprintf(" It pinned %s of the host's memory there, which is usable from each GPU.", profile.FormatBytes(c.PinnedBytes))
		}
		p.say("", "%s\nA context takes some hundreds of MiB. Select the device before that line (torch.cuda.set_device, device_id=, map_location=), or hide the others (CUDA_VISIBLE_DEVICES).", text)
	}
}
