// SPDX-License-Identifier: Apache-2.0

package top

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/gpu-gadgets/gpu-gadgets/internal/format/screen"
)

func columnNumber(n int64) string { return strconv.FormatInt(n, 10) }

func percentOf(part, whole int64) string {
	return fmt.Sprintf("%.1f %%", 100*float64(part)/float64(whole))
}

// Names of keys that are not letters.
const (
	Tab      = "tab"
	Left     = "left"
	Right    = "right"
	Up       = "up"
	Down     = "down"
	PageUp   = "pageup"
	PageDown = "pagedown"
	Home     = "home"
)

// page is how many rows PageUp and PageDown go.
const page = 10

// Key does what a key stands for; false: it stands for nothing that the model knows.
func (m *Model) Key(key string) bool {
	switch key {
	case "d":
		m.Diff = !m.Diff
	case "t":
		m.Tree = !m.Tree
		m.First = 0
	case "g":
		m.By = (m.By + 1) % By(len(byNames))
		m.First = 0
	case "s", ">", Right:
		m.sortNext(1)
	case "<", Left:
		m.sortNext(-1)
	case Tab:
		at := slices.Index(m.Views, m.View)
		m.View = m.Views[(at+1)%len(m.Views)]
		m.First = 0
	case Up, "k":
		m.First = max(m.First-1, 0)
	case Down, "j":
		m.First++
	case PageUp:
		m.First = max(m.First-page, 0)
	case PageDown:
		m.First += page
	case Home:
		m.First = 0
	default:
		return false
	}
	return true
}

func (m *Model) sortNext(step int) {
	columns := m.columns()
	at := m.sortColumn(columns)
	m.sorted[m.View] = columns[(at+step+len(columns))%len(columns)].title
	m.First = 0
}

// Body is the view as lines: the first head of them are always to be seen, and so are the
// last foot.
func (m *Model) Body(width int) (lines []screen.Line, head, foot int) {
	if m.Diff {
		if _, ok := m.SinceMark(); !ok {
			return []screen.Line{screen.Text(screen.Plain, "No mark is set yet: m sets one, and what changes from then on is shown here.")}, 1, 0
		}
	}
	t := m.Table()
	if m.Tree {
		t = m.TreeTable()
	}
	if len(t.Rows) == 0 {
		return []screen.Line{screen.Text(screen.Dim, m.nothing())}, 1, 0
	}
	// A scroll beyond the end comes back at the next key.
	m.First = min(m.First, len(t.Rows)-1)
	return t.Render(width, 0), 1, len(t.Totals)
}

// nothing says why the table is empty.
func (m *Model) nothing() string {
	switch {
	case m.Diff:
		return "Nothing has changed since the mark."
	case m.View == Memory:
		return "No GPU memory has been allocated since ig-gpu attached."
	case m.View == Launches:
		return "No kernel has been launched and nothing was copied since ig-gpu attached."
	case m.View == Waits:
		return "No thread has waited for the GPU since ig-gpu attached."
	}
	return "No samples yet."
}

// Help describes the keys.
func Help() []string {
	return []string{
		"Tab          memory, launches, waits",
		"g            group by line, stack, process, device, pod, kernel",
		"t            tree: callers, and what they call",
		"s  <  >      sort by the next column; ← → too",
		"j k ↓ ↑      scroll; PgUp, PgDn, Home",
		"m            set a mark",
		"d            what has changed since the mark, and back",
		"p, space     pause the screen; counting continues",
		"q, Ctrl-C    quit: the table and all messages stay on the screen",
		"?            this help, and back",
		"",
		"IN-USE allocated and not freed   ALLOC allocated, also what was freed",
		"PEAK   most in use at once; of several rows, an upper bound",
		"AT-PEAK   in use when the process held the most on the GPU",
		"HOST   time in calls of the driver, without waits",
		"ON-GPU   time of kernels on the GPU, where known",
	}
}
