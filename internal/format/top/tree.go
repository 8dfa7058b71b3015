// SPDX-License-Identifier: Apache-2.0

package top

import (
	"cmp"
	"slices"
	"strings"

	"github.com/gpu-gadgets/gpu-gadgets/internal/format/screen"
	"github.com/gpu-gadgets/gpu-gadgets/internal/profile"
	"github.com/gpu-gadgets/gpu-gadgets/internal/stack"
)

// minShare of the total is what a branch of the tree needs to be shown, in percent; of a difference, of all that grew and
// shrank.
const minShare = 1

// node is a frame below its callers.
type node struct {
	label       string
	self, total int64
	// gross is the sum of self and those of all callees without their signs: of a difference, what grew and
	// what shrank; total otherwise.
	gross    int64
	children map[string]*node
}

// addGross sets gross, of its callees, too.
func (n *node) addGross() int64 {
	n.gross = abs(n.self)
	for _, c := range n.children {
		n.gross += c.addGross()
	}
	return n.gross
}

func (n *node) child(label string) *node {
	if n.children == nil {
		n.children = map[string]*node{}
	}
	c := n.children[label]
	if c == nil {
		c = &node{label: label}
		n.children[label] = c
	}
	return c
}

// treeValue is the value that the view's tree adds up.
func (m *Model) treeValue(v *profile.Values) int64 {
	switch m.View {
	case Memory:
		return v.InuseBytes
	case Launches:
		return v.Launches
	case Waits:
		return v.WaitNanoseconds
	}
	return v.Samples
}

func (m *Model) treeText(n int64) string {
	switch m.View {
	case Memory:
		return signed(m.Diff, n, profile.FormatBytes)
	case Waits:
		return signed(m.Diff, n, duration)
	}
	return signed(m.Diff, n, func(n int64) string { return columnNumber(n) })
}

// tree adds the stacks up: one root per layer, since tensors lie in the driver's memory.
// Only frames of Python are shown, and the kernel; native ones where there are no others.
func (m *Model) tree() []*node {
	t := m.table(m.View.Subject())
	roots := map[profile.Layer]*node{}
	add := func(r *Row, sign int64) {
		value := sign * m.treeValue(&r.Values)
		if value == 0 {
			return
		}
		root := roots[r.Layer()]
		if root == nil {
			root = &node{label: totalName(r.Layer(), 1)}
			roots[r.Layer()] = root
		}
		root.total += value
		at := root
		for _, label := range callers(r) {
			at = at.child(label)
			at.total += value
		}
		at.self += value
	}
	for i := range t.now {
		add(&t.now[i], 1)
	}
	if m.Diff {
		for i := range t.base {
			add(&t.base[i], -1)
		}
	}
	var out []*node
	for _, layer := range []profile.Layer{profile.Driver, profile.Torch} {
		if roots[layer] != nil {
			roots[layer].addGross()
			out = append(out, roots[layer])
		}
	}
	return out
}

// callers are the labels of the frames of Python, root first, and the kernel; of a stack
// without any, its innermost frame.
func callers(r *Row) []string {
	var labels []string
	for i := len(r.Stack) - 1; i >= 0; i-- {
		if r.Stack[i].Kind == stack.KindPython {
			labels = append(labels, r.Stack[i].Label())
		}
	}
	if len(labels) == 0 {
		labels = append(labels, label(r))
	}
	if r.Kernel != "" {
		labels = append(labels, r.Kernel)
	}
	return labels
}

// TreeTable is the tree, laid out by Render. The label of a frame is indented by its depth;
// a frame that only calls another one with all it has stands in the same column as that.
func (m *Model) TreeTable() screen.Table {
	t := screen.Table{Sorted: 0, Columns: []screen.Column{
		{Title: "TOTAL", Right: true}, {Title: "SELF", Right: true, Drop: 1}, {Title: "SHARE", Right: true, Drop: 2},
		{Title: "CALLERS, THEN WHAT THEY CALL", Shorten: screen.ShortenFrame, Min: minLine},
	}}
	var walk func(n, root *node, depth int)
	walk = func(n, root *node, depth int) {
		percent := ""
		if root.gross > 0 {
			percent = percentOf(n.total, root.gross)
		}
		self := ""
		if n.self != 0 {
			self = m.treeText(n.self)
		}
		style := screen.Plain
		if n == root {
			style = screen.Bold
		}
		t.Rows = append(t.Rows, screen.Row{Style: style, Cells: []string{
			m.treeText(n.total), self, percent, strings.Repeat("  ", min(depth, 20)) + screen.Clean(n.label),
		}})
		children := make([]*node, 0, len(n.children))
		for _, c := range n.children {
			children = append(children, c)
		}
		slices.SortFunc(children, func(a, b *node) int {
			return cmp.Or(cmp.Compare(b.total, a.total), strings.Compare(a.label, b.label))
		})
		for _, c := range children {
			if c.gross == 0 || c.gross*100 < root.gross*minShare {
				continue
			}
			next := depth + 1
			if len(n.children) == 1 && n.self == 0 && n != root {
				next = depth
			}
			walk(c, root, next)
		}
	}
	for _, root := range m.tree() {
		walk(root, root, 0)
	}
	return t
}

func abs(n int64) int64 { return max(n, -n) }
