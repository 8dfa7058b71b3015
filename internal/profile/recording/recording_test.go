// SPDX-License-Identifier: Apache-2.0

package recording

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/internal/process/procmaps"
	"github.com/gpu-gadgets/gpu-gadgets/internal/profile"
	"github.com/gpu-gadgets/gpu-gadgets/internal/stack"
)

// A row of samples that the kernel forgot and begins again goes on from where it was.
func TestSamplesThatBeginAgainAddUp(t *testing.T) {
	r := &Recording{}
	id := profile.RowID{Process: 1, StackID: 2}
	for _, samples := range []int64{5, 9, -1, 2, 4, 3, 8} {
		r.Begin(time.Unix(1, 0))
		if samples >= 0 {
			r.See(id, profile.Values{Samples: samples, GILSamples: samples - 1, Nanoseconds: 10 * samples}, 0,
				func() profile.Row { return profile.Row{} })
		}
		r.End()
	}
	require.Equal(t, profile.Values{Samples: 9 + 4 + 8, GILSamples: 8 + 3 + 7, Nanoseconds: 210}, r.Profile().Rows[0].Values)
}

// The names of a stack may be known seconds after its row.
func TestARowHasTheNamesThatComeLater(t *testing.T) {
	r := &Recording{}
	id, made := profile.RowID{Process: 1, StackID: 2}, 0
	see := func(version uint64, function string) (changed bool) {
		r.Begin(time.Unix(1, 0))
		row, changed := r.See(id, profile.Values{AllocBytes: 10, InuseBytes: 10}, version, func() profile.Row {
			made++
			return profile.Row{Stack: stack.Stack{{Kind: stack.KindNative, Function: function}}}
		})
		require.Equal(t, function, row.Stack[0].Function)
		r.End()
		return changed
	}
	require.True(t, see(1, "0x100"))
	require.False(t, see(1, "0x100"))
	require.Equal(t, 1, made)
	require.True(t, see(2, "gemm"))
	require.False(t, see(2, "gemm"))
	require.False(t, see(3, "gemm"), "the names are the same")
	require.Equal(t, 3, made)
	r.Begin(time.Unix(31, 0))
	r.End()
	require.Equal(t, 30*time.Second, r.Profile().Duration, "from the first reading to the last")
	rows := r.Profile().Rows
	require.Len(t, rows, 1)
	require.Equal(t, "gemm", rows[0].Stack[0].Function)
	require.EqualValues(t, 10, rows[0].AllocBytes)
}

// A process may set its title seconds after its first rows, as vLLM's workers do.
func TestARowHasTheLabelsThatComeLater(t *testing.T) {
	r := &Recording{}
	for version, want := range []struct {
		labels  string
		changed bool
	}{{"vllm=", true}, {"vllm=", false}, {"vllm=Worker_TP0", true}, {"vllm=Worker_TP0", false}} {
		r.Begin(time.Unix(1, 0))
		row, changed := r.See(profile.RowID{Process: 1, StackID: 2}, profile.Values{AllocBytes: 10}, uint64(version), func() profile.Row {
			return profile.Row{Process: profile.Process{ID: 1, Labels: want.labels}}
		})
		require.Equal(t, want.labels, row.Process.Labels)
		require.Equal(t, want.changed, changed)
		r.End()
	}
	require.Equal(t, "vllm=Worker_TP0", r.Profile().Rows[0].Process.Labels)
}

// What was held at the peak stays when the process has ended.
func TestThePeakOutlivesItsProcess(t *testing.T) {
	r := &Recording{}
	at := time.Date(2026, 9, 30, 12, 0, 0, 0, time.UTC)
	for second, rows := range []map[uint64]int64{{1: 100, 2: 10}, {1: 40, 2: 90}, {1: 40, 2: 5}, {}} {
		r.Begin(at.Add(time.Duration(second) * time.Second))
		for stack, inuse := range rows {
			values := profile.Values{AllocBytes: 100, AllocObjects: 1, FreedBytes: 100 - inuse, InuseBytes: inuse, PeakBytes: 100}
			_, changed := r.See(profile.RowID{Process: 1, StackID: stack}, values, 0, func() profile.Row { return profile.Row{Thread: uint32(stack), Kind: "device"} })
			require.True(t, changed || stack == 1 && second == 2)
		}
		r.End()
	}
	held := map[uint32]int64{}
	p := r.Profile()
	for _, row := range p.Rows {
		held[row.Thread] = row.AtPeakBytes
		require.Zero(t, row.InuseBytes)
	}
	require.Equal(t, map[uint32]int64{1: 40, 2: 90}, held)
	require.Equal(t, []string{"[0] held the most on GPU 0 at 12:00:01: 130 B; between two readings at most 200 B"}, p.Notes)
}

// Two calls of one native function have stacks of the same names: their rows end as they were, one by one.
func TestRowsWithTheSameNamesEndOnTheirOwn(t *testing.T) {
	r := &Recording{}
	r.Begin(time.Unix(1, 0))
	for id, bytes := range map[uint64]int64{3: 50, 2: 100} {
		r.See(profile.RowID{Process: 1, StackID: id}, profile.Values{AllocBytes: bytes, InuseBytes: bytes, InuseObjects: 1}, 0, func() profile.Row { return profile.Row{} })
	}
	require.Empty(t, r.End())
	r.Begin(time.Unix(2, 0))
	ended := r.End()
	require.Len(t, ended, 2)
	for n, want := range []int64{100, 50} {
		require.Equal(t, profile.RowID{Process: 1, StackID: uint64(n + 2)}, ended[n].ID)
		require.Equal(t, want, ended[n].AllocBytes)
		require.Equal(t, want, ended[n].ImplicitBytes)
	}
}

// A container starts short processes without end; the rows of another one's, which has ended, stay, and their end is reported.
func TestATenantLeavesRowsToOthers(t *testing.T) {
	const honest, newest = 1 << 40, 1<<40 + 1
	r := &Recording{Tenant: func(pid uint32) procmaps.Tenant { return procmaps.Tenant(pid) }}
	see := func(id uint64, tenant uint32, bytes int64) {
		r.See(profile.RowID{Process: id, StackID: 1, Kind: "device"}, profile.Values{AllocBytes: bytes, AllocObjects: 1, InuseBytes: bytes, InuseObjects: 1}, 0,
			func() profile.Row { return profile.Row{Process: profile.Process{ID: id, PID: tenant}, Kind: "device"} })
	}
	has := func(rows []profile.Row, id uint64) bool {
		return slices.ContainsFunc(rows, func(row profile.Row) bool { return row.Process.ID == id })
	}
	end := func() (changed []profile.Row) {
		for _, row := range r.End() {
			changed = append(changed, row.Row)
		}
		return changed
	}
	const each, turns = 4096, MaxGone/4096 + 8
	for turn := range turns {
		r.Begin(time.Unix(int64(turn), 0))
		for n := range each {
			see(uint64(turn*each+n+1), 1, 1)
		}
		if turn < 2 || turn == turns-1 {
			see(honest, 2, 1<<30) // ends, is missed, and ends again
		}
		if turn > MaxGone/each {
			see(newest, 3, 1<<20)
		}
		changed := end()
		require.Equal(t, turn == 2, has(changed, honest))
	}
	r.Begin(time.Unix(turns, 0))
	changed := end()
	require.Len(t, changed, each+2, "also the ends of rows that have no room are reported")
	require.True(t, has(changed, honest) && has(changed, newest))
	p := r.Profile()
	require.Len(t, p.Rows, MaxGone)
	require.Len(t, r.processes, MaxGone)
	require.Len(t, r.Peaks(), MaxGone, "the peaks of processes without rows are forgotten")
	require.True(t, has(p.Rows, honest) && has(p.Rows, newest))
	require.True(t, has(p.Rows, turns*each) && !has(p.Rows, 1), "the oldest are forgotten")
	require.Equal(t, turns*each+2-MaxGone, r.Forgotten)
}

func TestTenantsWithManyRowsHaveTheSameRoom(t *testing.T) {
	r := &Recording{Tenant: func(pid uint32) procmaps.Tenant { return procmaps.Tenant(pid) }}
	r.Begin(time.Unix(1, 0))
	for tenant, n := range []int{MaxGone, MaxGone / 2, 100} {
		for row := range n {
			r.See(profile.RowID{Process: uint64(tenant), StackID: uint64(row)}, profile.Values{Calls: 1}, 0, func() profile.Row {
				return profile.Row{Process: profile.Process{ID: uint64(tenant), PID: uint32(tenant)}}
			})
		}
	}
	r.End()
	r.Begin(time.Unix(2, 0))
	r.End()
	left := map[uint64]int{}
	r.Each(func(id profile.RowID, _ *profile.Row) { left[id.Process]++ })
	require.Equal(t, map[uint64]int{0: (MaxGone - 100) / 2, 1: (MaxGone - 100) / 2, 2: 100}, left)
}
