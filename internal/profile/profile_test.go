// SPDX-License-Identifier: Apache-2.0

package profile

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/internal/stack"
)

// each runs a property on many random inputs; a failure names its seed.
func each(t *testing.T, property func(t *testing.T, r *rand.Rand)) {
	for seed := range uint64(200) {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			property(t, rand.New(rand.NewPCG(seed, 0)))
		})
	}
}

// randomRows makes few frames, so that stacks share callers and recur, and
// rows whose keys collide.
func randomRows(r *rand.Rand) []Row {
	frame := func() stack.Frame {
		return stack.Frame{
			Kind:     stack.Kind(r.IntN(4)),
			Function: string(rune('a' + r.IntN(4))),
			Line:     uint32(r.IntN(2)),
		}
	}
	rows := make([]Row, r.IntN(40))
	for i := range rows {
		s := make(stack.Stack, 1+r.IntN(8))
		for j := range s {
			s[j] = frame()
		}
		pid := uint32(r.IntN(3))
		rows[i] = Row{
			Process: Process{ID: uint64(pid) + 1, PID: pid, Comm: "python"},
			Stack:   s,
			Kind:    []string{"device", "pool"}[r.IntN(2)],
			Device:  int32(r.IntN(3)) - 1,
			Values:  randomValues(r),
		}
	}
	return rows
}

func randomValues(r *rand.Rand) Values {
	var v Values
	v.AllocBytes, v.AllocObjects = r.Int64N(1000), r.Int64N(100)
	v.FreedBytes, v.FreedObjects = r.Int64N(v.AllocBytes+1), r.Int64N(v.AllocObjects+1)
	v.ImplicitBytes, v.ImplicitObjects = r.Int64N(v.AllocBytes-v.FreedBytes+1), r.Int64N(v.AllocObjects-v.FreedObjects+1)
	v.InuseBytes, v.InuseObjects = v.AllocBytes-v.FreedBytes-v.ImplicitBytes, v.AllocObjects-v.FreedObjects-v.ImplicitObjects
	v.PeakBytes = v.InuseBytes + r.Int64N(100)
	return v
}

func sum(rows []Row) Values {
	var v Values
	for _, r := range rows {
		v = v.Add(r.Values)
	}
	return v
}

func TestSelfAddsUpAndTotalIsAtLeastSelf(t *testing.T) {
	each(t, func(t *testing.T, r *rand.Rand) {
		rows := randomRows(r)
		p := New(time.Time{}, rows)
		for _, typ := range Types() {
			var self int64
			for _, f := range p.Frames(typ) {
				self += f.Self
				require.GreaterOrEqual(t, f.Total, f.Self)
				require.LessOrEqual(t, f.Total, sum(rows).Get(typ))
			}
			require.Equal(t, sum(rows).Get(typ), self)
		}
	})
}

func TestRootTotalIsTheSum(t *testing.T) {
	each(t, func(t *testing.T, r *rand.Rand) {
		p := New(time.Time{}, randomRows(r))
		tree := p.Tree()
		for _, typ := range Types() {
			self, total := tree.Values(func(i int) int64 { return p.Rows[i].Get(typ) })
			require.Equal(t, p.Sum().Get(typ), total[0])
			var all int64
			for i := range self {
				require.GreaterOrEqual(t, total[i], self[i])
				all += self[i]
			}
			require.Equal(t, total[0], all)
		}
	})
}

func TestTreeKeepsEveryStack(t *testing.T) {
	each(t, func(t *testing.T, r *rand.Rand) {
		p := New(time.Time{}, randomRows(r))
		tree := p.Tree()
		for i, row := range p.Rows {
			var s stack.Stack
			for n := tree.Leaf[i]; n != 0; n = tree.Nodes[n].Parent {
				s = append(s, tree.Frames[tree.Nodes[n].Frame])
			}
			require.Equal(t, row.Stack, s)
		}
	})
}

func TestTotalCountsRecursionOnce(t *testing.T) {
	f, g := stack.Frame{Function: "f"}, stack.Frame{Function: "g"}
	p := New(time.Time{}, []Row{{Stack: stack.Stack{f, g, f, f}, Values: Values{AllocBytes: 7}}})
	require.Equal(t, []FrameValue{{f, 7, 7}, {g, 0, 7}}, p.Frames(AllocSpace))
}

func TestOrderOfRowsDoesNotMatter(t *testing.T) {
	each(t, func(t *testing.T, r *rand.Rand) {
		rows := randomRows(r)
		want := New(time.Time{}, rows)
		shuffled := slices.Clone(rows)
		r.Shuffle(len(shuffled), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
		got := New(time.Time{}, shuffled)
		require.Equal(t, want, got)
		require.Equal(t, want.Frames(InuseSpace), got.Frames(InuseSpace))
		require.Equal(t, want.Tree(), got.Tree())
	})
}

func TestRowsAreUniqueAndConsistent(t *testing.T) {
	each(t, func(t *testing.T, r *rand.Rand) {
		rows := randomRows(r)
		p := New(time.Time{}, rows)
		keys := map[rowKey]bool{}
		for _, row := range p.Rows {
			require.False(t, keys[row.key()])
			keys[row.key()] = true
			require.NoError(t, row.Check())
		}
		require.Equal(t, sum(rows), p.Sum())
	})
}

func TestDiffIsTheDifferenceOfTheSums(t *testing.T) {
	each(t, func(t *testing.T, r *rand.Rand) {
		before, after := New(time.Time{}, randomRows(r)), New(time.Time{}, randomRows(r))
		diff, back := Diff(before, after), Diff(after, before)
		require.Len(t, back, len(diff))
		for _, typ := range Types() {
			var delta, reverse int64
			for i := range diff {
				delta += diff[i].Delta(typ)
				reverse += back[i].Delta(typ)
			}
			want := after.Sum().Get(typ) - before.Sum().Get(typ)
			require.Equal(t, want, delta)
			require.Equal(t, -want, reverse)
		}
		for _, c := range Diff(after, after) {
			require.Equal(t, c.Before, c.After)
		}
	})
}

func TestDiffPutsTheMostGrownFirst(t *testing.T) {
	row := func(name string, inuse int64) Row {
		return Row{Stack: stack.Stack{{Function: name}}, Values: Values{InuseBytes: inuse}}
	}
	before := New(time.Time{}, []Row{row("shrank", 50), row("same", 10), row("gone", 20)})
	after := New(time.Time{}, []Row{row("shrank", 5), row("same", 10), row("new", 7)})
	var got []string
	for _, c := range Diff(before, after) {
		got = append(got, fmt.Sprintf("%s %+d", c.Stack.Folded(), c.Delta(InuseSpace)))
	}
	require.Equal(t, []string{"new +7", "same +0", "gone -20", "shrank -45"}, got)
}

func TestDiffIgnoresWhichProcess(t *testing.T) {
	row := Row{Process: Process{ID: 1, PID: 1}, Stack: stack.UnknownStack(), Values: Values{InuseBytes: 5}}
	restarted := row
	restarted.Process = Process{ID: 2, PID: 9}
	diff := Diff(New(time.Time{}, []Row{row}), New(time.Time{}, []Row{restarted}))
	require.Len(t, diff, 1)
	require.Zero(t, diff[0].Delta(InuseSpace))
}

func TestCheckFindsCountersThatDisagree(t *testing.T) {
	require.NoError(t, Values{}.Check())
	require.NoError(t, Values{AllocBytes: 3, FreedBytes: 1, InuseBytes: 2, PeakBytes: 3}.Check())
	require.Error(t, Values{AllocBytes: 3, InuseBytes: 2, PeakBytes: 3}.Check())
	require.Error(t, Values{AllocObjects: 1}.Check())
	require.Error(t, Values{FreedBytes: 1, InuseBytes: -1}.Check())
	require.Error(t, Values{AllocBytes: 3, InuseBytes: 3, PeakBytes: 2}.Check())
}

// Rows that differ in any field of their RowID are different ones, in files and in their order.
func TestARowIDIsAllOfItsFields(t *testing.T) {
	all := []RowID{{}, {Born: 1}, {Span: 1}, {Thread: 1}, {Row: 1}, {Device: 1}, {Kind: "a"}, {StackID: 1}, {Process: 1}, {Process: 1, Device: -1}}
	hashes := map[string]bool{}
	for _, id := range all {
		require.Regexp(t, "^[0-9a-f]{16}$", id.Hash())
		hashes[id.Hash()] = true
	}
	require.Len(t, hashes, len(all))
	require.True(t, slices.IsSortedFunc(all[:9], RowID.Compare))
	require.Zero(t, all[3].Compare(RowID{Thread: 1}))
}
