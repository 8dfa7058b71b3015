// SPDX-License-Identifier: Apache-2.0

package weave

import (
	"cmp"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/internal/timeline/track"
)

// recorder keeps a timeline, and checks the assumptions of viewers.
type recorder struct {
	t        testing.TB
	names    map[track.Track]string
	open     map[track.Track][]track.Slice
	slices   map[track.Track][]slice
	counters map[string][]point
	arrows   []track.Arrow
	stacks   map[uint64][]string
}

type slice struct {
	track.Slice
	depth int
}

type point struct {
	ns    uint64
	value float64
}

func record(t testing.TB) *recorder {
	return &recorder{
		t: t, names: map[track.Track]string{}, open: map[track.Track][]track.Slice{},
		slices: map[track.Track][]slice{}, counters: map[string][]point{}, stacks: map[uint64][]string{},
	}
}

func (r *recorder) Process(uint32, string)                 {}
func (r *recorder) Name(t track.Track, name string, _ int) { r.names[t] = name }
func (r *recorder) Slice(t track.Track, s track.Slice) {
	require.NotEmpty(r.t, r.names[t])
	require.True(r.t, s.Start <= s.End)
	s.Args = slices.Clone(s.Args)
	r.slices[t] = append(r.slices[t], slice{s, 1000})
}

func (r *recorder) Begin(t track.Track, s track.Slice) {
	require.NotEmpty(r.t, r.names[t])
	if open := r.open[t]; len(open) > 0 {
		require.GreaterOrEqual(r.t, s.Start, open[len(open)-1].Start)
	}
	s.Args = slices.Clone(s.Args)
	r.open[t] = append(r.open[t], s)
}

func (r *recorder) End(t track.Track, end track.Slice) {
	open := r.open[t]
	require.NotEmpty(r.t, open)
	s := open[len(open)-1]
	require.Equal(r.t, [2]string{s.Name, s.Category}, [2]string{end.Name, end.Category})
	require.GreaterOrEqual(r.t, end.End, s.Start)
	s.End = end.End
	r.open[t], r.slices[t] = open[:len(open)-1], append(r.slices[t], slice{s, len(open)})
}

func (r *recorder) Counter(_ uint32, name string, ns uint64, value float64) {
	r.counters[name] = append(r.counters[name], point{ns, value})
}
func (r *recorder) Arrow(a track.Arrow)              { r.arrows = append(r.arrows, a) }
func (r *recorder) Stack(id uint64, frames []string) { r.stacks[id] = frames }

func (r *recorder) of(t track.Track, category string) (out []slice) {
	for _, s := range r.slices[t] {
		if s.Category == category {
			out = append(out, s)
		}
	}
	slices.SortStableFunc(out, func(a, b slice) int {
		return cmp.Or(cmp.Compare(a.Start, b.Start), cmp.Compare(b.End, a.End), cmp.Compare(a.depth, b.depth))
	})
	return out
}

var me = Thread{Process: 99, PID: 7, TID: 7, Comm: "python3"}
var mine = track.Track{PID: 7, ID: 7}

func python(id uint64, names ...string) *Stack {
	s := &Stack{ID: id}
	for _, n := range names {
		s.Python = append(s.Python, Frame{Name: n, Place: "x.py:1", Key: n})
		s.Labels = append([]string{n}, s.Labels...)
	}
	return s
}
