// SPDX-License-Identifier: Apache-2.0

// Package compare compares a tracer's rows with the truth of a workload on the simulated
// CUDA driver: the driver's journal has the bytes that each tag allocated and freed, the
// truth files have the Python stack of each tag.
//
//	journals, _ := journal.ReadDir(dir)
//	truth, _ := compare.ReadTruth(dir)
//	want, _ := compare.Expected(journals, truth, compare.Options{})
//	compare.Print(os.Stdout, compare.Diff(want, got), 20)
package compare

import (
	"fmt"
	"io"
	"sort"
	"strings"
	"text/tabwriter"

	"github.com/gpu-gadgets/gpu-gadgets/examples/simcuda/journal"
)

// Counts are the compared values. Signed, so that negative errors of a tracer are
// visible.
type Counts struct {
	AllocBytes, AllocObjects       int64
	FreedBytes, FreedObjects       int64
	ImplicitBytes, ImplicitObjects int64
	InUseBytes, InUseObjects       int64
	HeldBytes                      int64 // of those in use
}

func (c *Counts) add(d Counts) {
	c.AllocBytes += d.AllocBytes
	c.AllocObjects += d.AllocObjects
	c.FreedBytes += d.FreedBytes
	c.FreedObjects += d.FreedObjects
	c.ImplicitBytes += d.ImplicitBytes
	c.ImplicitObjects += d.ImplicitObjects
	c.InUseBytes += d.InUseBytes
	c.InUseObjects += d.InUseObjects
	c.HeldBytes += d.HeldBytes
}

// Row has the counts of one Python stack of one process, for one kind of memory on one
// device.
type Row struct {
	PID    uint32
	Stack  []Frame // Python frames only, leaf first
	Kind   string  // device, managed, host, array, vmm, pool
	Device int32   // ordinal; -1: unknown, or host memory of cuMemCreate
	Counts
}

// Options are those of Expected.
type Options struct {
	// Exited: the processes have ended, so that what was in use has been freed
	// implicitly. Without it they still hold it.
	Exited bool
	// MaxFrames is the number of leaf frames that the tracer keeps; rows that
	// differ only above it are one. 0: all.
	MaxFrames int
}

// Expected makes the rows that a perfect tracer would give, sorted, without those
// that never allocated. A tag without a truth line is an error: the workload is
// wrong then. Tag 0 is a call without a tag and gives a row without frames.
func Expected(journals []*journal.Journal, truth Truth, o Options) ([]Row, error) {
	sum, err := journal.Summarize(journals)
	if err != nil {
		return nil, fmt.Errorf("add up the journals: %w", err)
	}
	last := map[uint32]uint32{} // the latest image by pid
	for _, j := range journals {
		last[j.PID] = max(last[j.PID], j.Image)
	}
	var rows []Row
	for _, k := range sum.Keys() {
		s := sum.Rows[k]
		if s.AllocObjects == 0 {
			continue
		}
		stack, ok := truth[Caller{k.Process.PID, k.Process.StartTicks, k.Process.Image, k.Tag}]
		if !ok && k.Tag != 0 {
			return nil, fmt.Errorf("no stack is known for tag %d of pid %d", k.Tag, k.Process.PID)
		}
		if o.MaxFrames > 0 && len(stack) > o.MaxFrames {
			stack = stack[:o.MaxFrames]
		}
		c := Counts{
			AllocBytes: int64(s.AllocBytes), AllocObjects: int64(s.AllocObjects),
			FreedBytes: int64(s.FreedBytes), FreedObjects: int64(s.FreedObjects),
			ImplicitBytes: int64(s.ImplicitBytes), ImplicitObjects: int64(s.ImplicitObjects),
			InUseBytes: int64(s.InUseBytes()), InUseObjects: int64(s.InUseObjects()),
			HeldBytes: int64(s.HeldBytes),
		}
		// An image that another one has followed ended with its exec.
		if o.Exited || k.Process.Image < last[k.Process.PID] {
			c.ImplicitBytes += c.InUseBytes
			c.ImplicitObjects += c.InUseObjects
			c.InUseBytes, c.InUseObjects, c.HeldBytes = 0, 0, 0
		}
		rows = append(rows, Row{PID: k.Process.PID, Stack: stack, Kind: k.Kind.String(), Device: k.Device, Counts: c})
	}
	return Merge(rows), nil
}

func (r *Row) identity() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d\x00%s\x00%d", r.PID, r.Kind, r.Device)
	for _, f := range r.Stack {
		fmt.Fprintf(&b, "\x00%s\x00%s\x00%d", f.Function, f.File, f.Line)
	}
	return b.String()
}

// Merge adds up the rows that have the same process, stack, kind and device, and
// sorts them. The argument is not changed.
func Merge(rows []Row) []Row {
	at := map[string]int{}
	var out []Row
	for _, r := range rows {
		id := r.identity()
		if i, ok := at[id]; ok {
			out[i].add(r.Counts)
			continue
		}
		at[id] = len(out)
		out = append(out, r)
	}
	sort.SliceStable(out, func(i, j int) bool { return out[i].identity() < out[j].identity() })
	return out
}

// Difference is a row that is not as it should be. Missing and unexpected rows
// are compared with zero.
type Difference struct {
	Row       // the identity; its counts are the wanted ones
	Got       Counts
	IsMissing bool // the tracer has no such row
	IsExtra   bool // only the tracer has such a row
}

// Diff compares rows, merged by identity. Rows of the tracer with all counts zero
// are no difference. None: the tracer is exact.
func Diff(want, got []Row) []Difference {
	left := map[string]Row{}
	for _, r := range Merge(got) {
		left[r.identity()] = r
	}
	var all []Difference
	for _, w := range Merge(want) {
		id := w.identity()
		g, ok := left[id]
		delete(left, id)
		if w.Counts != g.Counts {
			all = append(all, Difference{Row: w, Got: g.Counts, IsMissing: !ok})
		}
	}
	for _, g := range left {
		if g.Counts == (Counts{}) {
			continue
		}
		d := Difference{Row: g, Got: g.Counts, IsExtra: true}
		d.Counts = Counts{}
		all = append(all, d)
	}
	sort.SliceStable(all, func(i, j int) bool { return all[i].identity() < all[j].identity() })
	return all
}

// Total adds up rows, whatever their identity.
func Total(rows []Row) Counts {
	var c Counts
	for _, r := range rows {
		c.add(r.Counts)
	}
	return c
}

// Print writes at most `most` differences (0: all) as a table of wanted and got
// values; only the columns that differ, each row with its stack below.
func Print(w io.Writer, diffs []Difference, most int) error {
	if len(diffs) == 0 {
		_, err := fmt.Fprintln(w, "no differences")
		return err
	}
	fmt.Fprintf(w, "%d rows differ\n", len(diffs))
	for i, d := range diffs {
		if most > 0 && i == most {
			_, err := fmt.Fprintf(w, "… and %d more\n", len(diffs)-most)
			return err
		}
		what := ""
		if d.IsMissing {
			what = " (missing)"
		} else if d.IsExtra {
			what = " (unexpected)"
		}
		fmt.Fprintf(w, "\npid %d %s device %d%s\n", d.PID, d.Kind, d.Device, what)
		tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
		fmt.Fprintln(tw, "\twant\tgot\tgot − want\t")
		for _, c := range columns(d.Counts, d.Got) {
			if c.want != c.got {
				fmt.Fprintf(tw, "%s\t%d\t%d\t%+d\t\n", c.name, c.want, c.got, c.got-c.want)
			}
		}
		if err := tw.Flush(); err != nil {
			return err
		}
		for _, f := range d.Stack {
			fmt.Fprintf(w, "    %s %s:%d\n", f.Function, f.File, f.Line)
		}
	}
	return nil
}

type column struct {
	name      string
	want, got int64
}

func columns(want, got Counts) []column {
	return []column{
		{"alloc bytes", want.AllocBytes, got.AllocBytes},
		{"alloc objects", want.AllocObjects, got.AllocObjects},
		{"freed bytes", want.FreedBytes, got.FreedBytes},
		{"freed objects", want.FreedObjects, got.FreedObjects},
		{"implicit bytes", want.ImplicitBytes, got.ImplicitBytes},
		{"implicit objects", want.ImplicitObjects, got.ImplicitObjects},
		{"in use bytes", want.InUseBytes, got.InUseBytes},
		{"in use objects", want.InUseObjects, got.InUseObjects},
		{"held bytes", want.HeldBytes, got.HeldBytes},
	}
}
