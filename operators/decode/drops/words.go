// SPDX-License-Identifier: Apache-2.0

package drops

// Reason explains a name of bpf/program/drops.h to users.
type Reason struct {
	// What was not recorded, after a number.
	What string
	// Effect is its effect: which numbers are too small, and which are not.
	Effect string
	// expected: part of a normal run, not an alarm.
	expected bool
	// isCall: it counts the same as rows, calls or samples, so that a share is meaningful.
	isCall bool
}

// noLoss is the effect of what is counted, and missing nowhere.
const noLoss = "no loss"

// IsLoss reports whether something is missing, be it a caller in a stack.
func (r Reason) IsLoss() bool { return r.Effect != noLoss }

// IsExpected reports whether the reason is part of a normal run.
func IsExpected(reason string) bool { return Words(reason).expected }

// Words returns the words of a reason; for an unknown one, its name.
func Words(reason string) Reason {
	if r, ok := reasons()[reason]; ok {
		return r
	}
	return Reason{What: "× " + reason, Effect: "see the README of the gadget"}
}

// reasons has a line for each row of DROP_REASONS.
func reasons() map[string]Reason {
	return map[string]Reason{
		"call_not_returned":     {What: "calls that did not return", Effect: "they are in no row; an exception or a longjmp left them", isCall: true},
		"died_in_call":          {What: "calls whose thread ended in them", Effect: "they are in no row", isCall: true},
		"argument_unreadable":   {What: "calls with an argument that could not be read", Effect: "they are in no row", isCall: true},
		"rows_full":             {What: "calls without a row for their stack", Effect: "their numbers are under [unknown], and in every total", isCall: true},
		"unknown_rows_full":     {What: "calls without any row", Effect: "they are missing in the totals", isCall: true},
		"live_full":             {What: "allocations that were not remembered", Effect: "they are in use under [unknown] until their process ends", isCall: true},
		freedBefore:             {What: "frees of memory from before attach", Effect: noLoss, expected: true},
		"free_missed":           {What: "frees that were not seen", Effect: "the memory was allocated again, and counted as freed then", isCall: true},
		"processes_full":        {What: "calls of processes for which there was no room", Effect: "they are missing in the totals", isCall: true},
		"contexts_full":         {What: "CUDA contexts whose device was not remembered", Effect: "their rows have the device unknown"},
		"event_lost":            {What: "events", Effect: "refused allocations or calls of a timeline are missing; rows and totals are complete"},
		"selection_full":        {What: "child processes that are not followed", Effect: "none of their calls is recorded"},
		"thread_state_failed":   {What: "calls without memory for the state of their thread", Effect: "they are in no row", isCall: true},
		"stacks_full":           {What: "calls whose stack did not fit in the table", Effect: "their numbers are under [unknown], and in every total", isCall: true},
		"symbols_full":          {What: "frames without a name", Effect: "their lines show as <unreadable>; the numbers are complete"},
		"python_unreadable":     {What: "Python stacks that are incomplete", Effect: "callers are missing in them; the numbers are complete", isCall: true},
		"python_line_unknown":   {What: "places in the code of functions that are too long", Effect: "their frames have no line; the numbers are complete"},
		"python_unsupported":    {What: "stacks of an interpreter that is not supported", Effect: "they have native frames only, and py_stack has no samples of them", isCall: true},
		"python_thread_unknown": {What: "calls of threads that Python does not know", Effect: "they have native frames only; the numbers are complete", expected: true, isCall: true},
		"gil_unknown":           {What: "samples without the holder of the GIL", Effect: "they are not counted", isCall: true},
		"process_unreadable":    {What: "samples of processes that could not be read", Effect: "they are not counted; no call of CUDA is lost by it", expected: true, isCall: true},
		"span_rows_full":        {What: "calls without a row for their span", Effect: "they are counted in the row of their stack", isCall: true},
		"span_sources_full":     {What: "processes whose spans are not followed", Effect: "their calls have no span"},
		"span_unreadable":       {What: "calls whose span could not be read", Effect: "they have no span; the numbers are complete", isCall: true},
		"communicators_full":    {What: "communicators of NCCL that are not followed", Effect: "a hang of theirs is not seen"},
		"buffers_full":          {What: "times that there was no room for a communicator of NCCL, or its sums", Effect: "what NCCL allocated then is not counted by communicator; the numbers by stack are complete"},
		"streams_full":          {What: "streams of NCCL that are not followed", Effect: "which of their operations are done is not known"},
		"kernels_full":          {What: "kernels without a name", Effect: "they show by their handle; the numbers are complete"},
		"totals_full":           {What: "calls that are not in the totals by function", Effect: "they may be in a row", isCall: true},
		"torch_pools_full":      {What: "pools of PyTorch that are not followed", Effect: "their tensors are not counted; the driver's memory is"},
		"launch_not_seen":       {What: "kernels whose launch was not seen", Effect: "their time on the GPU is under [launch not seen]"},
		"device_time_missing":   {What: "launches without a record of CUPTI", Effect: "their time on the GPU is missing; they are counted as launches", isCall: true},
		"backward_unknown":      {What: "calls of a backward pass whose caller is not known", Effect: "they have native frames only; the numbers are complete", isCall: true},
		"native_no_rules":       {What: "calls whose native stack ends at code without unwind information", Effect: "callers are missing in them; the numbers are complete", expected: true, isCall: true},
		"native_not_loaded":     {What: "calls whose native stack ends at unwind information that was not read yet", Effect: "callers are missing in them; the numbers are complete", expected: true, isCall: true},
		"native_truncated":      {What: "calls with more native frames than fit", Effect: "callers are missing in them; the numbers are complete", expected: true, isCall: true},
		"native_broken":         {What: "calls whose native stack has no return address where it should be", Effect: "callers are missing in them; the numbers are complete", isCall: true},
		"native_unreadable":     {What: "calls whose native stack could not be read", Effect: "callers are missing in them; the numbers are complete", isCall: true},
		"native_busy":           {What: "calls whose native stack was read while memory was being mapped", Effect: "callers are missing in them; the numbers are complete", expected: true, isCall: true},
		"context_before_attach": {What: "times that a context from before attach ended, or may have", Effect: "what was allocated in it since then may still count as in use", expected: true},
		"device_time_unknown":   {What: "kernels without times", Effect: "their time on the GPU is missing; they are counted"},
	}
}
