// SPDX-License-Identifier: Apache-2.0

package verb

import (
	"fmt"
	"slices"
	"time"

	"github.com/gpu-gadgets/gpu-gadgets/internal/format/screen"
	"github.com/gpu-gadgets/gpu-gadgets/internal/ig"
	"github.com/gpu-gadgets/gpu-gadgets/internal/process/holder"
	"github.com/gpu-gadgets/gpu-gadgets/internal/profile"
)

// watchHolders reads the processes now, and when the returned function is called: which of
// them hold memory, have done nothing meanwhile, and are abandoned.
func watchHolders(cfg Config, f *facts) func() []holder.Verdict {
	tracker := holder.Tracker{ProcFS: cfg.ProcFS, After: f.duration / 2}
	watched := slices.Concat(f.pids, f.children())
	look := func(bytes func(pid uint32) int64, calls int64) []holder.Verdict {
		all := make([]holder.Holder, len(watched))
		for n, pid := range watched {
			all[n] = holder.Holder{PID: pid, Bytes: bytes(pid), Calls: calls}
		}
		return tracker.Look(time.Now(), ig.SinceBoot(), all)
	}
	look(func(uint32) int64 { return 1 }, 0) // whatever it holds
	return func() []holder.Verdict {
		f.mu.Lock()
		defer f.mu.Unlock()
		driver := memoryOf(cfg)
		return look(func(pid uint32) int64 { return max(int64(driver[pid]), f.peaks.heldBy(pid)) }, f.calledSince())
	}
}

// children are descendants of the processes that use the GPU.
func (f *facts) children() []uint32 {
	return slices.DeleteFunc(slices.Clone(f.users), func(pid uint32) bool { return slices.Contains(f.pids, pid) })
}

// calledSince is how many calls of the driver the gadgets saw, of all processes.
func (f *facts) calledSince() (sum int64) {
	for _, known := range f.peaks.rows {
		sum += known.row.AllocObjects + known.row.FreedObjects
	}
	for _, w := range f.waits {
		sum += int64(w.launches + w.waits + w.copied)
	}
	return sum
}

// heldBy is the GPU memory in the rows of a process.
func (p *peakFacts) heldBy(pid uint32) (sum int64) {
	for _, known := range p.rows {
		if known.row.Process.PID == pid && known.row.Kind != "host" && known.row.Layer() == profile.Driver {
			sum += known.row.InuseBytes
		}
	}
	return sum
}

// composeHolders names abandoned processes, and what ends them.
func composeHolders(p *page, f *facts, ids string) {
	if len(f.holders) == 0 {
		return
	}
	p.part = "Idle holder"
	for _, v := range f.holders {
		what := fmt.Sprintf("kill %d ends it and gives the memory back, if no other process waits for it.", v.PID)
		if v.Reason == holder.Blocked || v.Reason == holder.Killed {
			what = "No signal ends it while the kernel waits, mostly for the GPU's driver: dmesg may say why."
		}
		p.say("ig-gpu dump "+ids, "%s. It holds %s of GPU memory and began %s ago.\n%s", screen.Clean(v.String()), profile.FormatBytes(v.Bytes), v.Age.Round(time.Second), what)
	}
}
