// SPDX-License-Identifier: Apache-2.0

package screen

import "strings"

// Column of a table. One column of each table is its subject: Line.
type Column struct {
	Title string
	// Right: numbers.
	Right bool
	// Drop says when the column is left out for want of room: the highest goes first.
	// 0 stays.
	Drop int
	// Shorten makes a cell fit; nil: its end is cut.
	Shorten func(cell string, width int) string
	// Min is how narrow the column may become, for a column with Shorten: others are as
	// wide as their widest cell.
	Min int
}

// Row of a table: a cell per column. Style applies to the whole row, unless a cell has its own.
type Row struct {
	Cells  []string
	Style  Style
	Styles map[int]Style
}

// Table is laid out by Render. Rows have as many cells as there are columns.
type Table struct {
	Columns []Column
	Rows    []Row
	// Totals stand below the rows.
	Totals []Row
	// Sorted is the column that the head marks, -1: none.
	Sorted int
}

// gap is between two columns.
const gap = "  "

// Render lays the table out in width columns: a head, at most limit rows (0: all of them)
// and the totals.
func (t Table) Render(width, limit int) []Line {
	rows := t.Rows
	if limit > 0 && len(rows) > limit {
		rows = rows[:limit]
	}
	widths := t.widths(rows)
	shown := t.fit(widths, width)
	lines := make([]Line, 0, len(rows)+len(t.Totals)+1)
	lines = append(lines, t.head(shown, widths, width))
	for _, r := range rows {
		lines = append(lines, t.line(r, shown, widths, width))
	}
	for _, r := range t.Totals {
		lines = append(lines, t.line(r, shown, widths, width))
	}
	return lines
}

// widths are those of the widest cells.
func (t Table) widths(rows []Row) []int {
	widths := make([]int, len(t.Columns))
	for i, c := range t.Columns {
		widths[i] = Width(c.Title)
	}
	for _, all := range [][]Row{rows, t.Totals} {
		for _, r := range all {
			for i, cell := range r.Cells {
				widths[i] = max(widths[i], Width(cell))
			}
		}
	}
	return widths
}

// fit decides which columns are shown, and narrows those that can be shortened: only as
// far as they stay whole from their Min on are others dropped for them.
func (t Table) fit(widths []int, width int) []int {
	shown := make([]int, len(t.Columns))
	for i := range shown {
		shown[i] = i
	}
	for {
		need := 0
		for _, i := range shown {
			w := widths[i]
			if c := t.Columns[i]; c.Shorten != nil {
				w = min(w, c.Min)
			}
			need += w + len(gap)
		}
		if need-len(gap) <= width {
			break
		}
		drop := -1
		for n, i := range shown {
			if d := t.Columns[i].Drop; d > 0 && (drop < 0 || d > t.Columns[shown[drop]].Drop) {
				drop = n
			}
		}
		if drop < 0 {
			break
		}
		shown = append(shown[:drop:drop], shown[drop+1:]...)
	}
	t.narrow(shown, widths, width)
	return shown
}

// narrow takes what is missing from the columns that can be shortened, from the last one
// first.
func (t Table) narrow(shown, widths []int, width int) {
	over := -len(gap) - width
	for _, i := range shown {
		over += widths[i] + len(gap)
	}
	for n := len(shown) - 1; n >= 0 && over > 0; n-- {
		i := shown[n]
		if c := t.Columns[i]; c.Shorten != nil {
			less := min(over, max(widths[i]-c.Min, 0))
			if n == 0 || !t.canNarrow(shown[:n]) {
				less = min(over, max(widths[i]-1, 0)) // narrower than is good
			}
			widths[i] -= less
			over -= less
		}
	}
}

func (t Table) canNarrow(shown []int) bool {
	for _, i := range shown {
		if t.Columns[i].Shorten != nil {
			return true
		}
	}
	return false
}

func (t Table) head(shown, widths []int, width int) Line {
	var line Line
	for n, i := range shown {
		style := Bold
		if i == t.Sorted {
			style = Reverse
		}
		line = append(line, t.cell(n, i, shown, widths, t.Columns[i].Title, style)...)
	}
	return line.clip(width)
}

func (t Table) line(r Row, shown, widths []int, width int) Line {
	var line Line
	for n, i := range shown {
		style := r.Style
		if s, ok := r.Styles[i]; ok {
			style = s
		}
		text := r.Cells[i]
		if shorten := t.Columns[i].Shorten; shorten != nil {
			text = shorten(text, widths[i])
		}
		line = append(line, t.cell(n, i, shown, widths, text, style)...)
	}
	return line.clip(width)
}

// cell pads: not behind the last column, whose blanks are not needed.
func (t Table) cell(n, column int, shown, widths []int, text string, style Style) Line {
	var line Line
	if n > 0 {
		line = append(line, Span{Text: gap})
	}
	blanks := strings.Repeat(" ", max(widths[column]-Width(text), 0))
	switch {
	case t.Columns[column].Right:
		return append(line, Span{Text: blanks}, Span{text, style})
	case n == len(shown)-1:
		return append(line, Span{text, style})
	}
	return append(line, Span{text, style}, Span{Text: blanks})
}
