// SPDX-License-Identifier: Apache-2.0

package profile

import (
	"cmp"
	"slices"

	"github.com/gpu-gadgets/gpu-gadgets/internal/stack"
)

// Change is one stack in two snapshots. A stack that is in one only is zero in
// the other.
type Change struct {
	Stack         stack.Stack
	Kind          string
	Device        int32
	Before, After Values
}

// Delta is after − before: positive grew, negative shrank.
func (c Change) Delta(t Type) int64 { return c.After.Get(t) - c.Before.Get(t) }

// Changes is the difference of two snapshots.
type Changes []Change

// Diff compares two snapshots stack by stack, the most grown in-use bytes
// or samples first. Processes and spans do not take part: a restarted server, or another
// replica, is compared by what its code holds.
func Diff(before, after *Profile) Changes {
	index := map[rowKey]int{}
	var changes Changes
	at := func(r Row) *Change {
		r.Process, r.Thread, r.Span = Process{}, 0, 0
		k := r.key()
		i, ok := index[k]
		if !ok {
			i = len(changes)
			index[k] = i
			changes = append(changes, Change{Stack: r.Stack, Kind: r.Kind, Device: r.Device})
		}
		return &changes[i]
	}
	for _, r := range before.Rows {
		c := at(r)
		c.Before = c.Before.Add(r.Values)
	}
	for _, r := range after.Rows {
		c := at(r)
		c.After = c.After.Add(r.Values)
	}
	slices.SortFunc(changes, func(a, b Change) int {
		return cmp.Or(
			-cmp.Compare(a.Delta(InuseSpace), b.Delta(InuseSpace)),
			-cmp.Compare(a.Delta(AllocSpace), b.Delta(AllocSpace)),
			-cmp.Compare(a.Delta(Samples), b.Delta(Samples)),
			compareStack(a.Stack, b.Stack),
			cmp.Compare(a.Kind, b.Kind),
			cmp.Compare(a.Device, b.Device),
		)
	})
	return changes
}

// Freed is how many bytes were freed between the two snapshots; which of them had been
// allocated between the two, too, counters do not show. Negative for snapshots that are not of
// one run.
func (c Change) Freed() int64 {
	return c.Delta(AllocSpace) - c.Delta(InuseSpace)
}

// ByLine adds up the changes of one line, kind and device, over the stacks that end there:
// first what grew, the most first, then what shrank, the most first, then what was given
// back as it was taken, the most first.
func (cs Changes) ByLine() Changes {
	type line struct {
		label, kind string
		device      int32
	}
	index := map[line]int{}
	var lines Changes
	for _, c := range cs {
		k := line{c.Stack.Where(), c.Kind, c.Device}
		i, ok := index[k]
		if !ok {
			index[k] = len(lines)
			lines = append(lines, c)
			continue
		}
		lines[i].Before, lines[i].After = lines[i].Before.Add(c.Before), lines[i].After.Add(c.After)
	}
	slices.SortStableFunc(lines, func(a, b Change) int {
		x, y := a.Delta(InuseSpace), b.Delta(InuseSpace)
		switch {
		case x > 0 || y > 0:
			return cmp.Compare(y, x)
		case x != y:
			return cmp.Compare(x, y)
		}
		return cmp.Compare(b.Freed(), a.Freed())
	})
	return lines
}
