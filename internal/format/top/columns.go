// SPDX-License-Identifier: Apache-2.0

package top

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/gpu-gadgets/gpu-gadgets/internal/format/screen"
	"github.com/gpu-gadgets/gpu-gadgets/internal/profile"
)

// column of numbers. drop is its place in the order in which columns are left out on a
// narrow screen, the highest first; 0 stays.
type column struct {
	title string
	drop  int
	value func(*group) float64
	text  func(*group) string
}

const (
	dropAtPeak  = 10
	dropWaste   = 2
	dropProcess = 9
	dropDevice  = 4
	dropKind    = 3
	// minLine is the width from which on a line needs no more room than other columns.
	minLine = 48
)

// columnsOf a view, the one first by which it is sorted. The order in which they are left
// out is stated in docs/top.md.
func columnsOf(v View, diff bool) []column {
	bytes := func(title string, drop int, of func(*profile.Values) int64) column {
		return column{title, drop, func(g *group) float64 { return float64(of(&g.values)) }, func(g *group) string {
			return signed(diff, of(&g.values), profile.FormatBytes)
		}}
	}
	count := func(title string, drop int, of func(*profile.Values) int64) column {
		return column{title, drop, func(g *group) float64 { return float64(of(&g.values)) }, func(g *group) string {
			return signed(diff, of(&g.values), func(n int64) string { return strconv.FormatInt(n, 10) })
		}}
	}
	timed := func(title string, drop int, of func(*profile.Values) int64) column {
		return column{title, drop, func(g *group) float64 { return float64(of(&g.values)) }, func(g *group) string {
			return signed(diff, of(&g.values), duration)
		}}
	}
	switch v {
	case Memory:
		if diff {
			return []column{
				bytes("GREW", 0, func(v *profile.Values) int64 { return v.InuseBytes }),
				count("OBJECTS", 5, func(v *profile.Values) int64 { return v.InuseObjects }),
				bytes("ALLOC", 6, func(v *profile.Values) int64 { return v.AllocBytes }),
				{"BEFORE", 8, func(g *group) float64 { return float64(g.before.InuseBytes) }, func(g *group) string { return profile.FormatBytes(g.before.InuseBytes) }},
				{"AFTER", 7, func(g *group) float64 { return float64(g.before.InuseBytes + g.values.InuseBytes) }, func(g *group) string {
					return profile.FormatBytes(g.before.InuseBytes + g.values.InuseBytes)
				}},
			}
		}
		return []column{
			bytes("IN-USE", 0, func(v *profile.Values) int64 { return v.InuseBytes }),
			count("OBJECTS", 6, func(v *profile.Values) int64 { return v.InuseObjects }),
			bytes("ALLOC", 7, func(v *profile.Values) int64 { return v.AllocBytes }),
			bytes("PEAK", 5, func(v *profile.Values) int64 { return v.PeakBytes }),
			bytes("AT-PEAK", dropAtPeak, func(v *profile.Values) int64 { return v.AtPeakBytes }),
		}
	case Launches:
		return []column{
			count("LAUNCHES", 0, func(v *profile.Values) int64 { return v.Launches }),
			{"PER-SEC", 2, func(g *group) float64 { return g.perSecond }, func(g *group) string { return fmt.Sprintf("%.0f", max(g.perSecond, 0)) }},
			bytes("COPIED", 5, func(v *profile.Values) int64 { return v.CopiedBytes }),
			timed("HOST", 6, func(v *profile.Values) int64 { return v.HostNanoseconds - v.WaitNanoseconds }),
			timed("ON-GPU", 7, func(v *profile.Values) int64 { return v.DeviceNanoseconds }),
		}
	case Waits:
		return []column{
			timed("WAITED", 0, func(v *profile.Values) int64 { return v.WaitNanoseconds }),
			count("CALLS", 5, func(v *profile.Values) int64 { return v.Calls }),
		}
	}
	return []column{
		count("SAMPLES", 0, func(v *profile.Values) int64 { return v.Samples }),
		timed("TIME", 5, func(v *profile.Values) int64 { return v.Nanoseconds }),
		count("GIL", 6, func(v *profile.Values) int64 { return v.GILSamples }),
	}
}

// waste of the pool: see profile.Values.
func waste(v *profile.Values) int64 { return v.RoundingBytes + v.FragmentedBytes }

// columns are those of the view; with waste where any was recorded.
func (m *Model) columns() []column {
	all := columnsOf(m.View, m.Diff)
	if m.View == Memory && !m.Diff && slices.ContainsFunc(m.table(profile.Memory).now, func(r Row) bool { return waste(&r.Values) != 0 }) {
		all = append(all, column{"WASTE", dropWaste, func(g *group) float64 { return float64(waste(&g.values)) },
			func(g *group) string { return profile.FormatBytes(waste(&g.values)) }})
	}
	return all
}

// signed writes differences with their sign.
func signed(diff bool, n int64, format func(int64) string) string {
	if diff && n > 0 {
		return "+" + format(n)
	}
	return format(n)
}

// sortColumn is the index of the column by which the view is sorted.
func (m *Model) sortColumn(columns []column) int {
	for n, c := range columns {
		if c.title == m.sorted[m.View] {
			return n
		}
	}
	return 0
}

// share is which part of the layer's total the group has, in its view's own column.
func share(g, total *group, own column) string {
	part, whole := own.value(g), own.value(total)
	if whole <= 0 || part < 0 {
		return ""
	}
	return fmt.Sprintf("%.1f %%", 100*part/whole)
}

// Table is the rows of the view, laid out by Render.
func (m *Model) Table() screen.Table {
	columns := m.columns()
	at := m.sortColumn(columns)
	groups := m.groups()
	m.sortGroups(groups, columns[at])
	sums := totals(groups)

	t := screen.Table{Sorted: at}
	for _, c := range columns {
		t.Columns = append(t.Columns, screen.Column{Title: c.title, Right: true, Drop: c.drop})
	}
	extra := m.extraColumns()
	for _, e := range extra {
		t.Columns = append(t.Columns, e.Column)
	}
	for _, g := range groups {
		row := m.row(g, totalOf(sums, g.layer), columns, extra)
		if m.Diff && g.values.InuseBytes > 0 {
			row.Styles = map[int]screen.Style{0: screen.Yellow}
		}
		t.Rows = append(t.Rows, row)
	}
	for _, sum := range sums {
		row := m.row(sum, sum, columns, extra)
		row.Style = screen.Bold
		row.Cells[len(row.Cells)-1] = totalName(sum.layer, len(sums))
		t.Totals = append(t.Totals, row)
	}
	return t
}

func totalName(layer profile.Layer, layers int) string {
	switch {
	case layer == profile.Torch:
		return "total of tensors, within the driver's memory"
	case layers > 1:
		return "total of the driver's memory"
	}
	return "total"
}

func totalOf(sums []*group, layer profile.Layer) *group {
	for _, sum := range sums {
		if sum.layer == layer {
			return sum
		}
	}
	return &group{}
}

// extra is a column of text.
type extra struct {
	screen.Column
	text func(g, total *group) string
}

// extraColumns are the share, what the rows have in common, and the name.
func (m *Model) extraColumns() []extra {
	own := columnsOf(m.View, m.Diff)[0]
	var out []extra
	if !m.Diff {
		out = append(out, extra{screen.Column{Title: "SHARE", Right: true, Drop: 8}, func(g, total *group) string { return share(g, total, own) }})
	}
	if m.View == Memory {
		out = append(out, extra{screen.Column{Title: "KIND", Drop: dropKind}, func(g, _ *group) string { return g.kind.plural("kinds") }})
	}
	if m.By != ByDevice && m.View != Samples {
		out = append(out, extra{screen.Column{Title: "DEVICE", Drop: dropDevice}, func(g, _ *group) string { return g.devices() }})
	}
	if m.By != ByProcess {
		out = append(out, extra{screen.Column{Title: "PROCESS", Drop: dropProcess}, func(g, _ *group) string { return screen.Clean(g.process.plural("processes")) }})
	}
	name := extra{screen.Column{Title: "LINE", Shorten: screen.ShortenFrame, Min: minLine}, func(g, _ *group) string { return screen.Clean(g.name) }}
	if m.By == ByStack {
		name.Title, name.Shorten = "STACK", screen.ShortenStack
	} else if m.By != ByLine {
		name.Title = map[By]string{ByProcess: "PROCESS", ByDevice: "DEVICE", ByPod: "POD", ByKernel: "KERNEL"}[m.By]
	}
	return append(out, name)
}

func (m *Model) row(g, total *group, columns []column, extra []extra) screen.Row {
	var row screen.Row
	for _, c := range columns {
		row.Cells = append(row.Cells, c.text(g))
	}
	for _, e := range extra {
		row.Cells = append(row.Cells, e.text(g, total))
	}
	return row
}
