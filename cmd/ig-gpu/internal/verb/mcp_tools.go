// SPDX-License-Identifier: Apache-2.0

package verb

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/gpu-gadgets/gpu-gadgets/cmd/ig-gpu/internal/targets"
	"github.com/gpu-gadgets/gpu-gadgets/internal/format/screen"
	"github.com/gpu-gadgets/gpu-gadgets/internal/format/top"
	"github.com/gpu-gadgets/gpu-gadgets/internal/profile"
	"github.com/gpu-gadgets/gpu-gadgets/internal/stack/library"
)

// tidy is a text that a traced program may have chosen: without control characters, and of
// bounded length.
func tidy(text string) string {
	return shorten(screen.Clean(strings.ToValidUTF8(strings.Join(strings.Fields(text), " "), "�")), maxText)
}

// watchInput is the input of tools that measure.
type watchInput struct {
	PIDs    []uint32 `json:"pids,omitempty" jsonschema:"process ids; their children are included"`
	Seconds int      `json:"seconds,omitempty" jsonschema:"how long to measure, 2 to 30, by default 10"`
}

type checkInput struct {
	PIDs []uint32 `json:"pids,omitempty" jsonschema:"processes whose libraries are looked at; may be empty"`
}

// usesCUDA is a process that has libcuda.so mapped.
type usesCUDA struct {
	PID     uint32 `json:"pid"`
	User    string `json:"user"`
	Pod     string `json:"pod,omitempty"`
	Command string `json:"command" jsonschema:"chosen by the process: data"`
	Memory  uint64 `json:"gpu_memory_bytes,omitempty" jsonschema:"as the driver counts it; absent: unknown"`
}

type checkOutput struct {
	Findings     []finding  `json:"findings"`
	Processes    []usesCUDA `json:"processes" jsonschema:"those that have CUDA mapped"`
	RowsCut      int        `json:"rows_cut" jsonschema:"findings left out"`
	ProcessesCut int        `json:"processes_cut" jsonschema:"processes left out"`
}

func (t *tools) check(_ context.Context, in checkInput) (out checkOutput, err error) {
	if err := namedPIDs(in.PIDs, false); err != nil {
		return out, err
	}
	out.Findings, out.RowsCut = first(checkAll(t.cfg, in.PIDs), maxRows)
	for n := range out.Findings {
		f := &out.Findings[n]
		f.Detail, f.Fix = tidy(f.Detail), tidy(f.Fix)
	}
	found, err := targets.Find(t.cfg.ProcFS)
	if err != nil {
		return out, err
	}
	found, out.ProcessesCut = first(holdersOf(t.cfg, found), maxRows)
	out.Processes = make([]usesCUDA, len(found))
	for n, p := range found {
		out.Processes[n] = usesCUDA{p.PID, tidy(p.User), tidy(p.Pod), tidy(p.Command), p.Memory}
	}
	return out, nil
}

type explainOutput struct {
	Sentences []sentence `json:"sentences"`
	RowsCut   int        `json:"rows_cut" jsonschema:"sentences left out"`
}

func (t *tools) explain(ctx context.Context, in watchInput) (out explainOutput, err error) {
	length, err := lengthOf(in.Seconds)
	if err != nil {
		return out, err
	}
	if err := namedPIDs(in.PIDs, true); err != nil {
		return out, err
	}
	ctx, end, err := t.measuring(ctx, length)
	if err != nil {
		return out, err
	}
	defer end()
	facts, err := observe(ctx, t.cfg, in.PIDs, length)
	if err != nil {
		return out, err
	}
	out.Sentences, out.RowsCut = first(compose(facts), maxRows)
	for n := range out.Sentences {
		s := &out.Sentences[n]
		s.Part, s.Text, s.More = tidy(s.Part), tidy(s.Text), tidy(s.More)
	}
	return out, nil
}

type topInput struct {
	watchInput
	View string `json:"view,omitempty" jsonschema:"memory (default), launches or waits"`
	By   string `json:"by,omitempty" jsonschema:"what rows are: line (default), stack, process, device, pod or kernel"`
}

type topOutput struct {
	Rows    []top.Value `json:"rows" jsonschema:"largest first; memory of tensors lies within that of the driver"`
	RowsCut int         `json:"rows_cut" jsonschema:"rows left out"`
	Status  string      `json:"status" jsonschema:"what was attached to, for how long, and what was lost"`
}

func (t *tools) top(ctx context.Context, in topInput) (out topOutput, err error) {
	by, view := top.ByLine, top.Memory
	if in.By != "" {
		var ok bool
		if by, ok = top.Parse(in.By); !ok {
			return out, fmt.Errorf("by: want one of %s", strings.Join(top.Names(), ", "))
		}
	}
	if in.View != "" {
		var ok bool
		if view, ok = viewNamed(in.View); !ok {
			return out, fmt.Errorf("view: want memory, launches or waits")
		}
	}
	length, err := lengthOf(in.Seconds)
	if err != nil {
		return out, err
	}
	if err := namedPIDs(in.PIDs, false); err != nil {
		return out, err
	}
	ctx, end, err := t.measuring(ctx, length)
	if err != nil {
		return out, err
	}
	defer end()
	values, status, err := measureTop(ctx, t.cfg, in.PIDs, by, view, length)
	if err != nil {
		return out, err
	}
	out.Status = tidy(status)
	out.Rows, out.RowsCut = first(values, maxRows)
	for n := range out.Rows {
		r := &out.Rows[n]
		r.Name, r.Kind, r.Device, r.Process = tidy(r.Name), tidy(r.Kind), tidy(r.Device), tidy(r.Process)
	}
	return out, nil
}

type hangsInput struct {
	watchInput
	Hang int `json:"hang_seconds,omitempty" jsonschema:"report a rank when others have waited for it for this long; less than seconds, by default 5, or half of seconds if that is less"`
}

type hangsOutput struct {
	Verdicts    []hang `json:"verdicts" jsonschema:"empty: no rank was found that others wait for"`
	VerdictsCut int    `json:"verdicts_cut"`
	Ranks       []rank `json:"ranks" jsonschema:"those that have called NCCL during the measurement"`
	RanksCut    int    `json:"ranks_cut"`
}

func (t *tools) hangs(ctx context.Context, in hangsInput) (out hangsOutput, err error) {
	length, err := lengthOf(in.Seconds)
	if err != nil {
		return out, err
	}
	if err := namedPIDs(in.PIDs, false); err != nil {
		return out, err
	}
	after, err := hangOf(in.Hang, length)
	if err != nil {
		return out, err
	}
	ctx, end, err := t.measuring(ctx, length)
	if err != nil {
		return out, err
	}
	defer end()
	verdicts, ranks, err := measureHangs(ctx, t.cfg, in.PIDs, after, length)
	if err != nil {
		return out, err
	}
	out.Verdicts, out.VerdictsCut = first(verdicts, maxRows)
	out.Ranks, out.RanksCut = first(ranks, maxRows)
	for n := range out.Verdicts {
		v := &out.Verdicts[n]
		v.Text, v.Process, v.Line = tidy(v.Text), tidy(v.Process), tidy(v.Line)
	}
	for n := range out.Ranks {
		r := &out.Ranks[n]
		r.Communicator, r.Process, r.Line = tidy(r.Communicator), tidy(r.Process), tidy(r.Line)
	}
	return out, nil
}

// hangOf is how long others wait for a rank that is reported: less than the measurement, in which no rank would be found
// otherwise, whatever hangs.
func hangOf(seconds int, length time.Duration) (time.Duration, error) {
	limit := int(length / time.Second)
	switch {
	case seconds == 0:
		seconds = min(5, limit/2)
	case seconds < 0:
		return 0, fmt.Errorf("hang_seconds: want at least 1, not %d", seconds)
	case seconds >= limit:
		return 0, fmt.Errorf("hang_seconds: want less than seconds (%d), not %d", limit, seconds)
	}
	return time.Duration(seconds) * time.Second, nil
}

type dumpInput struct {
	PIDs   []uint32 `json:"pids" jsonschema:"process ids; their children are included"`
	Frozen int      `json:"frozen_seconds,omitempty" jsonschema:"compare dumps for this long, 2 to 30: which processes do not move, and what they wait for"`
}

type dumpOutput struct {
	Threads []thread `json:"threads,omitempty"`
	RowsCut int      `json:"rows_cut" jsonschema:"threads, or processes, left out"`
	// Processes are instead of threads if dumps were compared.
	Processes []still `json:"processes,omitempty" jsonschema:"with frozen_seconds, instead of threads"`
}

func (t *tools) dump(ctx context.Context, in dumpInput) (out dumpOutput, err error) {
	if err := namedPIDs(in.PIDs, true); err != nil {
		return out, err
	}
	length := time.Duration(0)
	if in.Frozen != 0 {
		if length, err = lengthOf(in.Frozen); err != nil {
			return out, fmt.Errorf("frozen_seconds: %w", err)
		}
	}
	ctx, end, err := t.measuring(ctx, length)
	if err != nil {
		return out, err
	}
	defer end()
	if in.Frozen != 0 {
		return t.frozen(ctx, in.PIDs, length)
	}
	threads, err := dumpThreads(ctx, t.cfg, in.PIDs)
	if err != nil {
		return out, err
	}
	out.Threads, out.RowsCut = first(threads, maxRows)
	for n := range out.Threads {
		d := &out.Threads[n]
		d.Process, d.Name, d.Syscall = tidy(d.Process), tidy(d.Name), tidy(d.Syscall)
		d.FramesCut = max(len(d.Stack)-maxFrames, 0)
		d.Stack = d.Stack[d.FramesCut:] // the innermost, where it is now
		for k := range d.Stack {
			d.Stack[k] = tidy(d.Stack[k])
		}
	}
	return out, nil
}

func (t *tools) frozen(ctx context.Context, pids []uint32, length time.Duration) (out dumpOutput, err error) {
	all, err := measureFrozen(ctx, t.cfg, pids, length)
	if err != nil {
		return out, err
	}
	out.Processes, out.RowsCut = first(all, maxRows)
	for n := range out.Processes {
		p := &out.Processes[n]
		p.Process = tidy(p.Process)
		p.Threads, p.ThreadsCut = first(p.Threads, maxRows)
		for k := range p.Threads {
			one := &p.Threads[k]
			one.Name, one.Place = tidy(one.Name), tidy(one.Place)
			one.Stack = nil // dump has it
			one.Waits, _ = first(one.Waits, maxRows)
			for m := range one.Waits {
				one.Waits[m].Name = tidy(one.Waits[m].Name)
			}
		}
	}
	return out, nil
}

type diffInput struct {
	Before string `json:"before" jsonschema:"path of the earlier profile, a .pb.gz of ig-gpu record"`
	After  string `json:"after" jsonschema:"path of the later one"`
}

type diffOutput struct {
	Changes []change `json:"changes" jsonschema:"largest first"`
	RowsCut int      `json:"rows_cut" jsonschema:"changes left out"`
}

func (t *tools) diff(_ context.Context, in diffInput) (out diffOutput, err error) {
	libraries, err := library.Parse("")
	if err != nil {
		return out, err
	}
	before, after, err := readPair(in.Before, in.After, libraries, readBounded)
	if err != nil {
		return out, err
	}
	out.Changes, out.RowsCut = first(changesOf(profile.Diff(before, after)), maxRows)
	for n := range out.Changes {
		out.Changes[n].Frame, out.Changes[n].Kind = tidy(out.Changes[n].Frame), tidy(out.Changes[n].Kind)
	}
	return out, nil
}
