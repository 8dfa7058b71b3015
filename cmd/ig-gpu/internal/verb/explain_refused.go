// SPDX-License-Identifier: Apache-2.0

package verb

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/inspektor-gadget/inspektor-gadget/pkg/datasource"

	"github.com/gpu-gadgets/gpu-gadgets/cmd/ig-gpu/internal/targets"
	"github.com/gpu-gadgets/gpu-gadgets/internal/profile"
	"github.com/gpu-gadgets/gpu-gadgets/operators/judge/ooms"
)

// refusals are allocations that failed during the watch, in their order.
type refusals struct {
	reader  *ooms.Reader
	all     []ooms.Failure // there was no memory
	barred  []ooms.Failure // for another reason
	others  []neighbour    // when the watch ended
	retries retries        // of all
}

// neighbour is a process that is not watched, and what the vendor's driver counts for it.
type neighbour struct {
	pid     uint32
	command string
	bytes   int64 // on all GPUs
}

func (f *facts) ooms(ds datasource.DataSource, rows []datasource.Data) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.refused.reader == nil {
		f.refused.reader = ooms.NewReader(ds)
	}
	for _, row := range rows {
		if failed := f.refused.reader.Read(row); failed.LacksMemory() {
			f.refused.retries.refused(len(f.refused.all), &failed, &f.peaks)
			f.refused.all = append(f.refused.all, failed)
		} else {
			f.refused.barred = append(f.refused.barred, failed)
		}
	}
}

// neighbours are the processes that hold GPU memory and are not watched, the largest first.
func neighbours(cfg Config, used map[uint32]uint64) (all []neighbour) {
	for pid, bytes := range used {
		if bytes > 0 {
			all = append(all, neighbour{pid, targets.Command(cfg.ProcFS, pid), int64(bytes)})
		}
	}
	slices.SortFunc(all, func(a, b neighbour) int {
		return cmp.Or(-cmp.Compare(a.bytes, b.bytes), cmp.Compare(a.pid, b.pid))
	})
	return all
}

// outcomes are refusals by what came of them, each in their order.
type outcomes struct {
	failed []*ooms.Failure // there was no memory
	pooled []*ooms.Failure // PyTorch's pool was not out of memory after them: it returns its cache, and asks the driver again
	given  []*ooms.Failure // the same line got memory after them
}

// outcomes separates allocations for which there was no memory from refusals that a program does not see. Refusals of the
// driver that led to one of PyTorch's pool are part of that.
func (f *facts) outcomes() (found outcomes) {
	type pool struct {
		pid    uint32
		device int32
	}
	next := map[pool]*ooms.Failure{} // a pool's refusal, of those that follow
	hasTensors := f.withTensors()
	for n := range slices.Backward(f.refused.all) {
		r := &f.refused.all[n]
		switch {
		case r.API == profile.PoolAPI:
			next[pool{r.PID, r.Device}] = r
			found.failed = append(found.failed, r)
		case slices.ContainsFunc(slices.Collect(maps.Values(next)), r.Leads):
		case !r.IsHost && hasTensors[r.PID]:
			found.pooled = append(found.pooled, r)
		case f.wasGivenLater(n):
			found.given = append(found.given, r)
		default:
			found.failed = append(found.failed, r)
		}
	}
	slices.Reverse(found.failed)
	slices.Reverse(found.pooled)
	slices.Reverse(found.given)
	return found
}

// withTensors are the processes that held tensors when the rows were last read: they live, and have a pool.
func (f *facts) withTensors() map[uint32]bool {
	found := map[uint32]bool{}
	for _, known := range f.peaks.rows {
		if r := &known.row; r.Kind == profile.KindTensor && r.InuseBytes > 0 {
			found[r.Process.PID] = true
		}
	}
	return found
}

// last is the last allocation for which there was no memory; nil: there was enough.
func (o *outcomes) last() *ooms.Failure {
	if len(o.failed) == 0 {
		return nil
	}
	return o.failed[len(o.failed)-1]
}

// isHeldFromBefore reports whether most of what the process held at a refusal was allocated before the watch, as far as that
// is known: the line that was refused is not to blame then. Memory without a row when the watch ends is from before, or is the
// runtime's; of a process that has ended, all that the driver counted when the watch began. Which of its GPUs is meant is not
// known: each has its share of that.
func (f *facts) isHeldFromBefore(r *ooms.Failure) bool {
	inRows := int64(r.InuseBytes)
	switch {
	case r.API == profile.PoolAPI && r.Pool.AllocatedBytes > 0:
		return inRows < int64(r.Pool.AllocatedBytes/2)
	case r.API != profile.PoolAPI && !r.IsHost && len(f.used[r.PID]) > 0:
		return inRows < f.withoutRow(r)
	}
	return r.Holders == ""
}

// withoutRow returns the bytes that the driver counts for the process that was refused and no row has, without what
// stream-ordered pools may keep: on the GPU of the refusal, where that is known.
func (f *facts) withoutRow(r *ooms.Failure) int64 {
	gpus := f.used[r.PID]
	rest := -f.peaks.heldBy(r.PID) - f.peaks.freedIntoPools(r.PID)
	for _, bytes := range gpus {
		rest += int64(bytes)
	}
	if r.Device >= 0 {
		rest /= int64(len(gpus))
	}
	return rest
}

// request says what was refused, and to which process where there are several.
func (f *facts) request(r *ooms.Failure) string {
	if len(f.processes()) > 1 {
		return fmt.Sprintf("%s[%d] %s", r.Comm, r.PID, r.Request())
	}
	return r.Request()
}

func composeRefused(p *page, f *facts, found outcomes, ids string) {
	p.part = "Refused"
	more := "ig-gpu run " + f.vendor.memory + " --pid " + ids + " -o ooms:json"
	composeBarred(p, f, more)
	composeRecovered(p, f, found, more)
	last := found.last()
	if last == nil {
		if len(found.pooled)+len(found.given) == 0 {
			p.say("", "No allocation was refused during the watch.")
		}
		return
	}
	text := fmt.Sprintf("An allocation was refused: %s.", f.request(last))
	if n := len(found.failed); n > 1 {
		text = fmt.Sprintf("%d allocations were refused; the last was %s.", n, f.request(last))
	}
	text += "\n" + sentenceCase(last.Held()) + "."
	if f.isHeldFromBefore(last) {
		text += "\nMost of what the process held then was allocated before the watch began, or other processes held it: the lines are unknown."
	}
	if last.IsOfGPU() {
		text += f.neighboursText()
	}
	p.say(more, "%s", text)
}

// composeRecovered is of refusals that a program does not see.
func composeRecovered(p *page, f *facts, found outcomes, more string) {
	for _, of := range []struct {
		all   []*ooms.Failure
		after string
	}{
		{found.pooled, "PyTorch's pool was not out of memory after that: it returns its cache to the driver and asks again, which takes time. " +
			"If another library asked, such as NCCL, it got nothing."},
		{found.given, "The same line got memory later: it asked again, or for less, as the allocators of XLA, TensorFlow, ONNX Runtime and CuPy do. " +
			"If that was for another request, this one failed."},
	} {
		n := len(of.all)
		if n == 0 {
			continue
		}
		times := ""
		if n > 1 {
			times = fmt.Sprintf(" %d times, the last time", n)
		}
		p.say(more, "The driver refused%s %s.\n%s", times, f.request(of.all[n-1]), of.after)
	}
}

// neighboursText names other processes that hold GPU memory: where a GPU is shared, one of them may be why it is full.
func (f *facts) neighboursText() string {
	all := f.refused.others
	if len(all) == 0 {
		return ""
	}
	var sum int64
	for _, n := range all {
		sum += n.bytes
	}
	text := fmt.Sprintf("\nWhen the watch ended, other processes held %s, on all GPUs:", profile.FormatBytes(sum))
	for _, n := range all[:min(len(all), named)] {
		text += fmt.Sprintf("\n%s by %d %s", profile.FormatBytes(n.bytes), n.pid, brief(n.command, 60))
	}
	if rest := len(all) - named; rest > 0 {
		text += fmt.Sprintf("\nand %d more", rest)
	}
	return text
}

// composeBarred is of allocations that failed for another reason than memory: of what the GPU, or the moment, does not allow.
func composeBarred(p *page, f *facts, more string) {
	n := len(f.refused.barred)
	if n == 0 {
		return
	}
	text := "An allocation failed, though not for lack of memory:"
	if n > 1 {
		text = fmt.Sprintf("%d allocations failed, though not for lack of memory; the last was", n)
	}
	p.say(more, "%s %s.", text, f.request(&f.refused.barred[n-1]))
}
