// SPDX-License-Identifier: Apache-2.0

package verb

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/gpu-gadgets/gpu-gadgets/internal/format/screen"
	"github.com/gpu-gadgets/gpu-gadgets/internal/profile"
	"github.com/gpu-gadgets/gpu-gadgets/internal/stack/library"
)

// reportOptions are the flags of report.
type reportOptions struct {
	base, kind, output, paths, by string
	limit                         int
	least                         float64
	tensors                       bool
}

func newReport() *cobra.Command {
	var o reportOptions
	cmd := &cobra.Command{
		Use:   "report FILE",
		Short: "Show the totals, the top lines and the call tree of a profile",
		Long: "Show what a profile (.pb.gz of record, --pprof-out or --mark-out) says, on a terminal: totals, the\n" +
			"lines that hold most themselves (SELF) and with all that they call (TOTAL), and the tree of calls.\n" +
			"Of memory and of calls, SELF of the program's own line includes the libraries that it calls.\n" +
			"With --base, the same for the difference: what grew is positive, what shrank is negative,\n" +
			"and shares are of both together.",
		Example: "  ig-gpu report memory.pb.gz\n" +
			"  ig-gpu report memory.pb.gz --by kind              by the values of a label\n" +
			"  ig-gpu report memory.pb.gz --sample alloc_space   what was taken, freed or not\n" +
			"  ig-gpu report after.pb.gz --base before.pb.gz     the difference of two",
		Args: exactly(1, "a profile (.pb.gz)"),
		RunE: func(cmd *cobra.Command, args []string) error { return report(cmd.OutOrStdout(), args[0], o) },
	}
	flags := cmd.Flags()
	flags.StringVar(&o.base, "base", "", "Show the difference to this earlier profile")
	flags.StringVar(&o.kind, "sample", "", "Which values, such as inuse_space or alloc_space; the totals name those that there are")
	flags.IntVar(&o.limit, "max-entries", 20, "Lines of the top table, and of the tree's children; 0 for all")
	flags.Float64Var(&o.least, "min-percent", 1, "Leave out of the tree what has less of the whole")
	flags.StringVar(&o.by, "by", "", "Show a table by the values of a label instead, such as kind, device, span_id or one of --labels")
	flags.BoolVar(&o.tensors, "tensors", false, "Of PyTorch's tensors instead of what the driver gave")
	addLibraryPaths(cmd, &o.paths)
	flags.StringVarP(&o.output, "output", "o", "text", "text or json")
	return cmd
}

func report(w io.Writer, path string, o reportOptions) error {
	if err := textOrJSON(o.output); err != nil {
		return err
	}
	libraries, err := library.Parse(o.paths)
	if err != nil {
		return fmt.Errorf("--library-paths: %w", err)
	}
	p, err := readProfile(path, libraries)
	if err != nil {
		return err
	}
	title := path
	if o.base != "" && o.by != "" {
		return errors.New("--by is for one profile, without --base")
	}
	if o.base != "" {
		base, err := readProfile(o.base, libraries)
		if err != nil {
			return err
		}
		if base.Subject != p.Subject {
			return fmt.Errorf("--base %s: is of %s, and %s of %s", o.base, subjectWord(base.Subject), path, subjectWord(p.Subject))
		}
		p, title = differenceOf(base, p), path+" against "+o.base
	}
	all := p.Rows
	if p.Subject == profile.Memory { // tensors lie in memory that is in the driver's rows
		layer := profile.Driver
		if o.tensors {
			layer = profile.Torch
		}
		rows := slices.DeleteFunc(slices.Clone(p.Rows), func(r profile.Row) bool { return profile.LayerOf(r.Kind) != layer })
		p = &profile.Profile{Time: p.Time, Duration: p.Duration, Subject: p.Subject, Period: p.Period, Rows: rows, Notes: p.Notes}
	}
	kind, err := sampleType(p, o)
	if err != nil {
		return err
	}
	if o.by != "" {
		return reportBy(w, p, kind, o)
	}
	if o.output == "json" {
		return reportJSON(w, p, kind, o.limit)
	}
	fmt.Fprintf(w, "%s: %s, %s\n", title, subjectWord(p.Subject), p.Time.Format(time.DateTime))
	for _, note := range p.Notes {
		fmt.Fprintln(w, screen.Clean(note))
	}
	fmt.Fprintln(w)
	writeTotals(w, p, len(all)-len(p.Rows), kind, o.tensors)
	writeTop(w, p, kind, o.limit)
	writeTree(w, p, kind, o)
	return nil
}

func subjectWord(s profile.Subject) string {
	return [...]string{"GPU memory", "Python on the CPU", "Python, all threads", "calls of the GPU's driver"}[s]
}

// differenceOf has a row for what each stack has more, or less.
func differenceOf(before, after *profile.Profile) *profile.Profile {
	var rows []profile.Row
	for _, c := range profile.Diff(before, after) {
		rows = append(rows, profile.Row{Stack: c.Stack, Kind: c.Kind, Device: c.Device, Values: c.After.Sub(c.Before)})
	}
	out := profile.New(after.Time, rows)
	out.Subject, out.Period = after.Subject, after.Period
	return out
}

// sampleTypes are those that the profile has, of the layer that is shown.
func sampleTypes(p *profile.Profile, tensors bool) []profile.Type {
	return slices.DeleteFunc(p.Types(), func(t profile.Type) bool { return (t.Layer() == profile.Torch) != tensors })
}

// sampleType finds a type by its name.
func sampleType(p *profile.Profile, o reportOptions) (profile.Type, error) {
	isTensors := o.tensors && p.Subject == profile.Memory
	switch {
	case o.kind == "" && isTensors:
		return profile.TensorInuseSpace, nil
	case o.kind == "":
		return p.Subject.Default(), nil
	}
	var names []string
	for _, t := range sampleTypes(p, isTensors) {
		if t.String() == o.kind {
			return t, nil
		}
		names = append(names, t.String())
	}
	return 0, fmt.Errorf("--sample %s: this profile has %s", o.kind, strings.Join(names, ", "))
}

// valueText is a value with its unit.
func valueText(value int64, unit string) string {
	switch unit {
	case "bytes":
		return profile.FormatBytes(value)
	case "nanoseconds":
		d := time.Duration(value)
		switch {
		case d.Abs() >= time.Second:
			d = d.Round(10 * time.Millisecond)
		case d.Abs() >= time.Millisecond:
			d = d.Round(10 * time.Microsecond)
		}
		return d.String()
	}
	return fmt.Sprint(value)
}

// wholeOf is the whole that shares are of: the sum; of a difference, what grew and what shrank, so that no share is more than all.
func wholeOf(p *profile.Profile, t profile.Type) (sum int64) {
	for _, r := range p.Rows {
		sum += abs(r.Get(t))
	}
	return sum
}

func sumOf(p *profile.Profile, t profile.Type) (sum int64) {
	for _, r := range p.Rows {
		sum += r.Get(t)
	}
	return sum
}

func share(part, whole int64) string {
	if whole == 0 {
		return "-"
	}
	return fmt.Sprintf("%.1f %%", 100*float64(part)/float64(whole))
}

func writeTotals(w io.Writer, p *profile.Profile, left int, shown profile.Type, tensors bool) {
	out := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(out, "TOTALS")
	for _, t := range sampleTypes(p, shown.Layer() == profile.Torch) {
		mark := ""
		if t == shown {
			mark = "shown below"
		}
		fmt.Fprintf(out, "  %s\t%s\t%s\n", t, valueText(sumOf(p, t), t.Unit()), mark)
	}
	_ = out.Flush()
	if left > 0 {
		if tensors {
			fmt.Fprintf(w, "  of PyTorch's tensors; %d rows of what the driver gave are not counted\n", left)
		} else {
			fmt.Fprintf(w, "  %d rows of PyTorch's tensors lie inside of that: --tensors shows them\n", left)
		}
	}
	fmt.Fprintln(w)
}

func writeTop(w io.Writer, p *profile.Profile, t profile.Type, limit int) {
	frames := topFrames(p, t)
	whole := wholeOf(p, t)
	out := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(out, "SELF\tSHARE\tTOTAL\tSHARE\t FRAME")
	for n, f := range frames {
		if limit > 0 && n == limit {
			break
		}
		fmt.Fprintf(out, "%s\t%s\t%s\t%s\t %s\n", valueText(f.Self, t.Unit()), share(f.Self, whole), valueText(f.Total, t.Unit()), share(f.Total, whole), f.Frame.Label())
	}
	_ = out.Flush()
	if limit > 0 && len(frames) > limit {
		fmt.Fprintf(w, "%d more lines: --max-entries 0 shows them\n", len(frames)-limit)
	}
	fmt.Fprintln(w)
}

// topFrames are those that hold something themselves, the largest first. Memory and calls end in the driver: there a
// line of the program has what the libraries take that it calls.
func topFrames(p *profile.Profile, t profile.Type) []profile.FrameValue {
	if p.Subject == profile.Memory || p.Subject == profile.Calls {
		rows := slices.Clone(p.Rows)
		for n := range rows {
			rows[n].Stack = rows[n].Stack.Own()
		}
		p = &profile.Profile{Rows: rows}
	}
	frames := slices.DeleteFunc(p.Frames(t), func(f profile.FrameValue) bool { return f.Self == 0 })
	slices.SortStableFunc(frames, func(a, b profile.FrameValue) int {
		switch x, y := abs(a.Self), abs(b.Self); {
		case x > y:
			return -1
		case x < y:
			return 1
		}
		return 0
	})
	return frames
}

func abs(v int64) int64 { return max(v, -v) }

// branch is a node of the call tree with its children.
type branch struct {
	label       string
	self, total int64
	gross       int64 // what grew and what shrank in it; total if the profile is no difference
	children    []*branch
}

func treeOf(p *profile.Profile, t profile.Type) *branch {
	tree := p.Tree()
	self, total := tree.Values(func(n int) int64 { return p.Rows[n].Get(t) })
	_, gross := tree.Values(func(n int) int64 { return abs(p.Rows[n].Get(t)) })
	nodes := make([]*branch, len(tree.Nodes))
	for n, node := range tree.Nodes {
		b := &branch{label: "(all)", self: self[n], total: total[n], gross: gross[n]}
		nodes[n] = b
		if node.Parent >= 0 {
			b.label = tree.Frames[node.Frame].Label()
			parent := nodes[node.Parent]
			parent.children = append(parent.children, b)
		}
	}
	for _, b := range nodes {
		slices.SortStableFunc(b.children, func(x, y *branch) int {
			switch {
			case abs(x.total) > abs(y.total):
				return -1
			case abs(x.total) < abs(y.total):
				return 1
			}
			return strings.Compare(x.label, y.label)
		})
	}
	return nodes[0]
}

// maxIndent keeps the frames of deep stacks on the screen.
const maxIndent = 40

// writeTree prints the tree: a run of frames that only call each other is not indented
// further, so that what branches is seen.
func writeTree(w io.Writer, p *profile.Profile, t profile.Type, o reportOptions) {
	root := treeOf(p, t)
	fmt.Fprintln(w, "TREE (callers first)")
	least := int64(o.least / 100 * float64(root.gross))
	var walk func(b *branch, depth int)
	walk = func(b *branch, depth int) {
		fmt.Fprintf(w, "%10s %7s  %s%s\n", valueText(b.total, t.Unit()), share(b.total, root.gross), strings.Repeat(" ", min(depth, maxIndent)), b.label)
		shown, left, leftValue := 0, 0, int64(0)
		for _, c := range b.children {
			if c.gross == 0 || c.gross < least || o.limit > 0 && shown == o.limit {
				left++
				leftValue += c.total
				continue
			}
			shown++
			deeper := depth
			if len(b.children) > 1 || depth == 0 {
				deeper++
			}
			walk(c, deeper)
		}
		if left > 0 && leftValue != 0 {
			fmt.Fprintf(w, "%10s %7s  %s(%d smaller)\n", valueText(leftValue, t.Unit()), share(leftValue, root.gross), strings.Repeat(" ", min(depth+1, maxIndent)), left)
		}
	}
	walk(root, 0)
}

// reportLine is one frame in JSON.
type reportLine struct {
	Frame  string `json:"frame"`
	Sample string `json:"sample"`
	Unit   string `json:"unit"`
	Self   int64  `json:"self"`
	Total  int64  `json:"total"`
}

func reportJSON(w io.Writer, p *profile.Profile, t profile.Type, limit int) error {
	encoder := json.NewEncoder(w)
	for n, f := range topFrames(p, t) {
		if limit > 0 && n == limit {
			break
		}
		if err := encoder.Encode(reportLine{f.Frame.Label(), t.String(), t.Unit(), f.Self, f.Total}); err != nil {
			return errors.Join(errors.New("print report"), err)
		}
	}
	return nil
}
