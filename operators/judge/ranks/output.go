// SPDX-License-Identifier: Apache-2.0

package ranks

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/inspektor-gadget/inspektor-gadget/pkg/datasource"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/gadget-service/api"
	clioperator "github.com/inspektor-gadget/inspektor-gadget/pkg/operators/cli"
	"golang.org/x/sys/unix"

	"github.com/gpu-gadgets/gpu-gadgets/internal/collective"
	"github.com/gpu-gadgets/gpu-gadgets/internal/ig"
)

// Names of the data sources.
const (
	Collectives = "collectives"
	Hangs       = "hangs"
)

const annotationOutput = "cli.default-output-mode"

// output is the two data sources with their fields.
type output struct {
	ranks, hangs           datasource.DataSource
	rankFields, hangFields map[string]datasource.FieldAccessor
}

type field struct {
	name, width, description string
	kind                     api.Kind
	hidden, right            bool
}

// rankFieldList is the table: who, how far, since when, where, why.
var rankFieldList = []field{
	{name: "name", width: "12", description: "Name that the program gave the communicator", kind: api.Kind_String},
	{name: "communicator", width: "18", description: "Identity that is the same in all ranks, on all nodes", kind: api.Kind_String},
	{name: "rank", width: "5", description: "Rank of the process in the communicator", kind: api.Kind_Int32, right: true},
	{name: "size", width: "5", description: "Ranks in the communicator, 0 if unknown", kind: api.Kind_Int32, right: true},
	{name: "device", width: "6", description: "CUDA ordinal of the rank's device, -1 when not known", kind: api.Kind_Int32, right: true, hidden: true},
	{name: "issued", width: "9", description: "Collectives issued", kind: api.Kind_Uint64, right: true},
	{name: "done", width: "9", description: "Collectives known to be complete, because a thread waited for them", kind: api.Kind_Uint64, right: true},
	{name: "operation", width: "14", description: "The newest operation", kind: api.Kind_String},
	{name: "bytes", width: "9", description: "Bytes of its buffer", kind: api.Kind_Uint64, right: true, hidden: true},
	{name: "waits", width: "8", description: "How long other ranks have waited for it", kind: api.Kind_String, right: true},
	{name: "waits_ns", width: "12", description: "The same in nanoseconds, 0 if no thread waits", kind: api.Kind_Uint64, hidden: true},
	{name: "wait_share", width: "10", description: "Share of the last half to whole minute in which the rank was in a collective before the others arrived, at most; -1 if unknown", kind: api.Kind_Float64, hidden: true, right: true},
	{name: "state", width: "9", description: "State of the thread that the others wait for: running, sleeping, uninterruptible, stopped, traced; or zombie, gone, aborted, destroyed", kind: api.Kind_String},
	{name: "wchan", width: "20", description: "Kernel function in which it sleeps", kind: api.Kind_String, hidden: true},
	{name: "verdict", width: "10", description: "What is wrong with this rank: missing, mismatch, unmatched, straggler, dead, slow, inside, slowdown, elsewhere", kind: api.Kind_String},
	{name: "late", width: "5", description: "The communicator is older than this run: numbers begin there", kind: api.Kind_Bool, hidden: true},
	{name: "where", width: "50", description: "The program's current line and the library's that it has called, or else those of its newest operation", kind: api.Kind_String},
	{name: "line", width: "50", description: "Innermost line of Python there", kind: api.Kind_String, hidden: true},
	{name: "user_line", width: "50", description: "Innermost line of Python there that is not a library's", kind: api.Kind_String, hidden: true},
	{name: "stack", width: "100", description: "The whole stack, innermost line last", kind: api.Kind_String, hidden: true},
	{name: "last", width: "5", description: "The line and stack are those of its newest operation, not its current ones", kind: api.Kind_Bool, hidden: true},
	{name: "process", width: "20", description: "Id of the process, unlike its pid never reused", kind: api.Kind_Uint64, hidden: true},
}

var hangFieldList = []field{
	{name: "event", width: "8", description: "found, changed (the same wait, another reason), ras (the answer of NCCL's RAS), late (judged by stacks alone: no call since attach) or cleared", kind: api.Kind_String},
	{name: "reason", width: "10", description: "missing, mismatch, unmatched, straggler, dead, slow, inside, slowdown or elsewhere; late", kind: api.Kind_String},
	{name: "waited", width: "8", description: "How long ranks have waited", kind: api.Kind_String, right: true},
	{name: "waited_ns", width: "12", description: "The same in nanoseconds", kind: api.Kind_Uint64, hidden: true},
	{name: "text", width: "160", description: "The verdict in one line", kind: api.Kind_String},
	{name: "communicator", width: "18", description: "Identity that is the same in all ranks, on all nodes", kind: api.Kind_String, hidden: true},
	{name: "name", width: "12", description: "Name that the program gave the communicator", kind: api.Kind_String, hidden: true},
	{name: "size", width: "5", description: "Ranks in the communicator", kind: api.Kind_Int32, hidden: true},
	{name: "operation", width: "14", description: "The operation that is missing, or that no rank has completed", kind: api.Kind_String, hidden: true},
	{name: "seq", width: "9", description: "Its number", kind: api.Kind_Uint64, hidden: true},
	{name: "first_seq", width: "9", description: "Where only a range is known in which ranks differ (mismatch), the first number of it, and seq is the last; else 0", kind: api.Kind_Uint64, hidden: true},
	{name: "rank", width: "5", description: "The first rank at fault, -1: none", kind: api.Kind_Int32, hidden: true},
	{name: "ranks", width: "12", description: "All ranks at fault", kind: api.Kind_String, hidden: true},
	{name: "waiting", width: "12", description: "Ranks that wait", kind: api.Kind_String, hidden: true},
	{name: "unseen", width: "12", description: "Ranks that are not on this node, and may be at fault", kind: api.Kind_String, hidden: true},
	{name: "behind", width: "12", description: "Other communicators that hang for the same reason", kind: api.Kind_String, hidden: true},
	{name: "state", width: "9", description: "Of the rank at fault", kind: api.Kind_String, hidden: true},
	{name: "wchan", width: "20", description: "Kernel function in which it sleeps", kind: api.Kind_String, hidden: true},
	{name: "line", width: "50", description: "Innermost line of Python of the rank at fault", kind: api.Kind_String, hidden: true},
	{name: "user_line", width: "50", description: "Innermost one that is not a library's", kind: api.Kind_String, hidden: true},
	{name: "stack", width: "100", description: "Its whole stack, innermost line last", kind: api.Kind_String, hidden: true},
	{name: "since_boot_ns", width: "20", description: "When the wait began (boot clock)", kind: api.Kind_Uint64, hidden: true},
	{name: "process", width: "20", description: "Id of the process at fault, unlike its pid never reused", kind: api.Kind_Uint64, hidden: true},
	{name: "groups", width: "100", description: "Ranks of the communicator by the line that they are at, the largest group first", kind: api.Kind_String, hidden: true},
	{name: "gpus", width: "60", description: "What happened to the GPUs of its ranks in the last minutes: Xid errors, throttling", kind: api.Kind_String, hidden: true},
	{name: "step", width: "9", description: "First iteration that is slow (slowdown)", kind: api.Kind_Uint64, hidden: true},
	{name: "ras", width: "10", description: "Answer of NCCL's own RAS (--ras): agrees, disagrees, knows more", kind: api.Kind_String, hidden: true},
}

// registry has the methods of operators.GadgetContext that newOutput needs.
type registry interface {
	RegisterDataSource(datasource.Type, string) (datasource.DataSource, error)
	GetDataSources() map[string]datasource.DataSource
}

// newOutput registers the data sources: in Instantiate. What the gadget itself reports
// is for programs then, and for who asks for it by -o.
func newOutput(gc registry) (*output, error) {
	for _, name := range []string{communicators, peers, operations, "operation_events"} {
		if ds := gc.GetDataSources()[name]; ds != nil {
			ds.AddAnnotation(annotationOutput, "none")
		}
	}
	o := &output{}
	var err error
	if o.hangs, o.hangFields, err = register(gc, datasource.TypeSingle, Hangs, hangFieldList); err != nil {
		return nil, err
	}
	if o.ranks, o.rankFields, err = register(gc, datasource.TypeArray, Collectives, rankFieldList); err != nil {
		return nil, err
	}
	if _, err := unix.IoctlGetTermios(int(os.Stdout.Fd()), unix.TCGETS); err == nil {
		o.ranks.AddAnnotation(clioperator.AnnotationClearScreenBefore, "true")
	}
	return o, nil
}

func register(gc registry, kind datasource.Type, name string, list []field) (datasource.DataSource, map[string]datasource.FieldAccessor, error) {
	ds, err := gc.RegisterDataSource(kind, name)
	if err != nil {
		return nil, nil, err
	}
	fields := map[string]datasource.FieldAccessor{}
	// The tag makes the container managers add the container's fields.
	if fields["mntns_id"], err = ds.AddField("mntns_id", api.Kind_Uint64, datasource.WithTags(ig.TagMountNS), datasource.WithFlags(datasource.FieldFlagHidden)); err != nil {
		return nil, nil, err
	}
	proc, err := ds.AddField("proc", api.Kind_Invalid, datasource.WithFlags(datasource.FieldFlagEmpty))
	if err != nil {
		return nil, nil, err
	}
	add := func(parent datasource.FieldAccessor, f field) error {
		annotations := map[string]string{"description": f.description, "columns.width": f.width}
		if f.hidden {
			annotations["columns.hidden"] = "true"
		}
		if f.right {
			annotations["columns.alignment"] = "right"
		}
		option := datasource.WithAnnotations(annotations)
		key, accessor := f.name, datasource.FieldAccessor(nil)
		var err error
		if parent != nil {
			key = "proc." + f.name
			accessor, err = parent.AddSubField(f.name, f.kind, option)
		} else {
			accessor, err = ds.AddField(f.name, f.kind, option)
		}
		fields[key] = accessor
		return err
	}
	for _, f := range []field{
		{name: "comm", width: "16", description: "Name of the process", kind: api.Kind_String, hidden: kind == datasource.TypeSingle},
		{name: "pid", width: "7", description: "Process", kind: api.Kind_Uint32, hidden: kind == datasource.TypeSingle},
	} {
		if err := add(proc, f); err != nil {
			return nil, nil, err
		}
	}
	for _, f := range list {
		if err := add(nil, f); err != nil {
			return nil, nil, err
		}
	}
	return ds, fields, nil
}

// values of a row by field.
type values map[string]any

func put(fields map[string]datasource.FieldAccessor, d datasource.Data, v values) error {
	for name, value := range v {
		f := fields[name]
		var err error
		switch value := value.(type) {
		case string:
			err = f.PutString(d, value)
		case uint64:
			err = f.PutUint64(d, value)
		case uint32:
			err = f.PutUint32(d, value)
		case int32:
			err = f.PutInt32(d, value)
		case bool:
			err = f.PutBool(d, value)
		case float64:
			err = f.PutFloat64(d, value)
		default:
			err = fmt.Errorf("unexpected %T", value)
		}
		if err != nil {
			return fmt.Errorf("field %s: %w", name, err)
		}
	}
	return nil
}

// table makes the rows: what is wrong first, then who waits longest.
func (i *instance) table(ranks []collective.Status, open []collective.Verdict, now collective.Time) []values {
	type key struct {
		comm uint64
		rank int
	}
	wrong := map[key]collective.Reason{}
	stuck := map[uint64]collective.Reason{}
	for _, v := range open {
		if len(v.Missing) == 0 {
			stuck[v.Communicator.Hash] = v.Reason
		}
		for _, c := range v.Missing {
			wrong[key{v.Communicator.Hash, c.Rank}] = v.Reason
		}
	}
	type ordered struct {
		values
		class int
		since collective.Time
	}
	rows := make([]ordered, 0, len(ranks))
	for _, s := range ranks {
		reason := wrong[key{s.Communicator.Hash, s.Rank}]
		if reason == "" {
			reason = stuck[s.Communicator.Hash]
		}
		r := ordered{class: 2, since: s.Waited}
		waits, waitsNS := "", uint64(0)
		if s.Waited != 0 {
			r.class = 1
			waitsNS = uint64(max(now-s.Waited, 0))
			waits = spell(time.Duration(waitsNS))
		}
		if reason != "" {
			r.class = 0
		}
		operation := ""
		if s.Newest.Seq != 0 {
			operation = s.Newest.Kind.String()
		}
		line, folded := lines(s.Stack)
		at := place{lines: s.Stack, user: s.UserLine}
		p := i.processes[s.Process.ID]
		mntns := uint64(0)
		if p != nil {
			mntns = p.mntns
		}
		r.values = values{"mntns_id": mntns, "proc.comm": oneLine(s.Process.Comm), "proc.pid": s.Process.PID,
			"name": oneLine(s.Communicator.Name), "communicator": s.Communicator.ID(), "rank": int32(s.Rank), "size": int32(s.Communicator.Size),
			"device": int32(s.Device), "issued": s.Issued, "done": s.Done, "operation": operation, "bytes": s.Newest.Bytes(),
			"waits": waits, "waits_ns": waitsNS, "wait_share": s.WaitShare, "state": s.State.String(), "wchan": oneLine(s.Wchan), "verdict": string(reason),
			"late": s.Late, "last": s.StackIsLast, "where": at.where(), "line": line, "user_line": s.UserLine, "stack": folded, "process": s.Process.ID}
		rows = append(rows, r)
	}
	slices.SortStableFunc(rows, func(a, b ordered) int {
		if a.class != b.class {
			return a.class - b.class
		}
		switch {
		case a.since == b.since:
			return 0
		case a.since < b.since:
			return -1
		}
		return 1
	})
	out := make([]values, len(rows))
	for n, r := range rows {
		out[n] = r.values
	}
	return out
}

// lines are the innermost one and, root first, all.
func lines(stack []string) (innermost, folded string) {
	if len(stack) == 0 {
		return "", ""
	}
	all := slices.Clone(stack)
	slices.Reverse(all)
	return stack[0], strings.Join(all, "; ")
}

// spell writes a duration for a column of eight.
func spell(d time.Duration) string {
	switch {
	case d >= time.Minute:
		return d.Round(time.Second).String()
	case d >= time.Second:
		return fmt.Sprintf("%.1f s", d.Seconds())
	}
	return fmt.Sprintf("%d ms", d.Milliseconds())
}

func (o *output) emitRanks(rows []values) error {
	packet, err := o.ranks.NewPacketArray()
	if err != nil {
		return err
	}
	for _, r := range rows {
		d := packet.New()
		if err := put(o.rankFields, d, r); err != nil {
			packet.Release(d)
			o.ranks.Release(packet)
			return err
		}
		packet.Append(d)
	}
	return o.ranks.EmitAndRelease(packet)
}

func (o *output) emitHangs(events []collective.Verdict, now collective.Time, mntns func(uint64) uint64) error {
	for n := range events {
		v := &events[n]
		if err := o.emitHang(hang(v, now, mntns)); err != nil {
			return err
		}
	}
	return nil
}

func (o *output) emitHang(row values) error {
	packet, err := o.hangs.NewPacketSingle()
	if err != nil {
		return err
	}
	if err := put(o.hangFields, packet, row); err != nil {
		o.hangs.Release(packet)
		return err
	}
	return o.hangs.EmitAndRelease(packet)
}

// hang is the row of a verdict.
func hang(v *collective.Verdict, now collective.Time, mntns func(uint64) uint64) values {
	waited := v.Waited(now)
	operation := v.Kind.String()
	if v.Kind == 0 {
		operation = ""
	}
	var behind, at []string
	for _, c := range v.Behind {
		behind = append(behind, c.ID())
	}
	out := values{"event": event(v), "reason": string(v.Reason), "waited": spell(waited), "waited_ns": uint64(waited), "text": v.String(now),
		"communicator": v.Communicator.ID(), "name": v.Communicator.Name, "size": int32(v.Communicator.Size), "operation": operation, "seq": v.Seq, "first_seq": v.First,
		"rank": int32(-1), "waiting": numbers(v.Waiting), "unseen": numbers(v.Unseen), "behind": strings.Join(behind, " "), "since_boot_ns": uint64(v.Since)}
	for n, c := range v.Missing {
		at = append(at, strconv.Itoa(c.Rank))
		if n == 0 {
			line, folded := lines(c.Stack)
			out["rank"], out["proc.comm"], out["proc.pid"], out["process"] = int32(c.Rank), c.Process.Comm, c.Process.PID, c.Process.ID
			out["state"], out["wchan"], out["line"], out["user_line"], out["stack"] = c.State.String(), oneLine(c.Wchan), line, c.UserLine, folded
			out["mntns_id"] = mntns(c.Process.ID)
		}
	}
	if len(v.Missing) == 0 {
		out["mntns_id"] = mntns(v.Witness.ID)
	}
	out["ranks"] = strings.Join(at, " ")
	var groups []string
	for _, g := range v.Groups {
		groups = append(groups, g.String())
	}
	out["groups"], out["gpus"], out["step"] = strings.Join(groups, "; "), strings.Join(v.GPUs, "; "), v.Step
	return out
}

func numbers(all []int) string {
	text := make([]string, len(all))
	for n, r := range all {
		text[n] = strconv.Itoa(r)
	}
	return strings.Join(text, " ")
}
