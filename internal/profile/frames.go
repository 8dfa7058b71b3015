// SPDX-License-Identifier: Apache-2.0

package profile

import (
	"cmp"
	"slices"

	"github.com/gpu-gadgets/gpu-gadgets/internal/stack"
)

// FrameValue has the values of one frame itself and with its callees.
type FrameValue struct {
	Frame stack.Frame
	Self  int64
	Total int64
}

// Frames is the table of all frames, largest total first.
func (p *Profile) Frames(t Type) []FrameValue {
	table := frameTable{}
	for _, r := range p.Rows {
		table.add(r.Stack, r.Get(t))
	}
	return table.sorted()
}

type frameTable map[stack.Frame]*FrameValue

func (table frameTable) add(s stack.Stack, value int64) {
	for i, f := range s {
		f = f.Identity()
		v := table[f]
		if v == nil {
			v = &FrameValue{Frame: f}
			table[f] = v
		}
		if i == 0 {
			v.Self += value
		}
		// Recursion counts once: only where the frame is innermost.
		if !seen(s[:i], f) {
			v.Total += value
		}
	}
}

// seen is linear: stacks are at most about 160 frames deep, and a set per stack
// costs more.
func seen(s stack.Stack, f stack.Frame) bool {
	for _, g := range s {
		if g.Line == f.Line && g.Function == f.Function && g.Identity() == f {
			return true
		}
	}
	return false
}

func (table frameTable) sorted() []FrameValue {
	frames := make([]FrameValue, 0, len(table))
	for _, v := range table {
		frames = append(frames, *v)
	}
	slices.SortFunc(frames, func(a, b FrameValue) int {
		return cmp.Or(
			-cmp.Compare(magnitude(a.Total), magnitude(b.Total)),
			-cmp.Compare(magnitude(a.Self), magnitude(b.Self)),
			compareFrame(a.Frame, b.Frame),
		)
	})
	return frames
}

func magnitude(v int64) int64 {
	if v < 0 {
		return -v
	}
	return v
}

// Tree is the stacks with their common callers shared: what a flame graph
// draws, and the most compact form of many stacks. Node 0 is the root, which
// is no frame; parents come before their children.
type Tree struct {
	Frames []stack.Frame
	Nodes  []Node
	// Leaf[i] is the node of row i's innermost frame.
	Leaf []int32
}

// Node is one frame below its callers.
type Node struct {
	Parent int32 // index of Nodes; −1 for the root
	Frame  int32 // index of Frames; −1 for the root
}

// Tree shares the callers of the profile's rows.
func (p *Profile) Tree() *Tree {
	t := &Tree{Nodes: []Node{{-1, -1}}}
	frames := map[stack.Frame]int32{}
	nodes := map[Node]int32{}
	for _, r := range p.Rows {
		at := int32(0)
		for i := len(r.Stack) - 1; i >= 0; i-- {
			f := r.Stack[i].Identity()
			frame, ok := frames[f]
			if !ok {
				frame = int32(len(t.Frames))
				frames[f] = frame
				t.Frames = append(t.Frames, f)
			}
			n := Node{Parent: at, Frame: frame}
			if at, ok = nodes[n]; !ok {
				at = int32(len(t.Nodes))
				nodes[n] = at
				t.Nodes = append(t.Nodes, n)
			}
		}
		t.Leaf = append(t.Leaf, at)
	}
	return t
}

// Values gives self and total of every node, given the value of every row.
func (t *Tree) Values(row func(i int) int64) (self, total []int64) {
	self = make([]int64, len(t.Nodes))
	for i, leaf := range t.Leaf {
		self[leaf] += row(i)
	}
	total = slices.Clone(self)
	for i := len(t.Nodes) - 1; i > 0; i-- {
		total[t.Nodes[i].Parent] += total[i]
	}
	return self, total
}
