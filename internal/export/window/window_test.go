// SPDX-License-Identifier: Apache-2.0

package window

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/internal/process/procmaps"
	"github.com/gpu-gadgets/gpu-gadgets/internal/profile"
	"github.com/gpu-gadgets/gpu-gadgets/internal/stack"
)

var begin = time.Date(2026, 9, 30, 12, 0, 0, 0, time.UTC)

func held(alloc, inuse int64) profile.Values {
	return profile.Values{
		AllocBytes: alloc, AllocObjects: alloc / 10, FreedBytes: alloc - inuse, FreedObjects: (alloc - inuse) / 10,
		InuseBytes: inuse, InuseObjects: inuse / 10, PeakBytes: alloc,
	}
}

// read gives one reading of rows, by stack id.
func read(r *Recorder, values map[uint64]profile.Values) {
	r.Begin()
	for stack, v := range values {
		r.See(profile.RowID{Process: 1, StackID: stack}, v, 0, func() profile.Row { return profile.Row{Thread: uint32(stack)} })
	}
	r.End()
}

// sums are (allocated bytes, bytes in use) of a window, by stack id.
func sums(w Window) map[uint32][2]int64 {
	m := map[uint32][2]int64{}
	for _, r := range w.Rows {
		m[r.Thread] = [2]int64{r.AllocBytes, r.InuseBytes}
	}
	return m
}

func TestFlowsAreOfTheWindowAndLevelsOfItsEnd(t *testing.T) {
	r := NewRecorder(profile.Memory, 0, 10*time.Second, begin)
	read(r, map[uint64]profile.Values{1: held(100, 100), 2: held(50, 50)})
	require.False(t, r.Due(begin.Add(9*time.Second)))
	require.True(t, r.Due(begin.Add(10*time.Second)))
	w := r.Close(begin.Add(10 * time.Second))
	require.Equal(t, begin, w.Start)
	require.Equal(t, begin.Add(10*time.Second), w.End)
	require.Equal(t, map[uint32][2]int64{1: {100, 100}, 2: {50, 50}}, sums(w))

	read(r, map[uint64]profile.Values{1: held(300, 20), 2: held(50, 50)})
	w = r.Close(begin.Add(20 * time.Second))
	require.Equal(t, begin.Add(10*time.Second), w.Start)
	require.Equal(t, map[uint32][2]int64{1: {200, 20}, 2: {0, 50}}, sums(w))

	read(r, map[uint64]profile.Values{1: held(300, 0)}) // 2 has ended
	require.Empty(t, r.Close(begin.Add(30*time.Second)).Rows)
}

func TestRowThatEndsWithinAWindowIsInIt(t *testing.T) {
	r := NewRecorder(profile.Memory, 0, 10*time.Second, begin)
	read(r, map[uint64]profile.Values{1: held(100, 100)})
	read(r, nil)
	require.Equal(t, map[uint32][2]int64{1: {100, 0}}, sums(r.Close(begin.Add(10*time.Second))))
}

// The names of a stack may be known seconds after its row.
func TestLaterWindowsHaveTheNamesThatComeLater(t *testing.T) {
	r := NewRecorder(profile.Memory, 0, 10*time.Second, begin)
	n, made := int64(0), 0
	window := func(version uint64, function string) profile.Row {
		n += 10
		r.Begin()
		r.See(profile.RowID{Process: 1, StackID: 1}, held(n, n), version, func() profile.Row {
			made++
			return profile.Row{Process: profile.Process{ID: 1, Labels: "vllm=" + function}, Stack: stack.Stack{{Kind: stack.KindNative, Function: function}}}
		})
		r.End()
		rows := r.Close(begin).Rows
		require.Len(t, rows, 1)
		require.EqualValues(t, 10, rows[0].AllocBytes)
		require.Equal(t, "vllm="+rows[0].Stack[0].Function, rows[0].Process.Labels)
		return rows[0]
	}
	require.Equal(t, "0x100", window(1, "0x100").Stack[0].Function)
	window(1, "0x100")
	require.Equal(t, 1, made)
	require.Equal(t, "gemm", window(2, "gemm").Stack[0].Function)
	window(2, "gemm")
	require.Equal(t, 2, made)
}

func TestRowThatWasMissedIsNotCountedAgain(t *testing.T) {
	r := NewRecorder(profile.Memory, 0, 10*time.Second, begin)
	read(r, map[uint64]profile.Values{1: held(100, 100)})
	r.Close(begin.Add(10 * time.Second))
	for range keepGone - 1 {
		read(r, nil)
		require.Empty(t, r.Close(begin).Rows)
	}
	read(r, map[uint64]profile.Values{1: held(110, 110)})
	require.Equal(t, map[uint32][2]int64{1: {10, 110}}, sums(r.Close(begin)))
	for range keepGone {
		read(r, nil)
		r.Close(begin)
	}
	require.Empty(t, r.rows, "what is gone is forgotten in the end")
	require.Empty(t, r.gone)
}

func TestRestartedRowLosesNothing(t *testing.T) {
	r := NewRecorder(profile.Memory, 0, 10*time.Second, begin)
	read(r, map[uint64]profile.Values{1: held(100, 100)})
	r.Close(begin.Add(10 * time.Second))
	read(r, map[uint64]profile.Values{1: held(150, 0)})
	read(r, map[uint64]profile.Values{1: held(20, 20)})
	require.Equal(t, map[uint32][2]int64{1: {70, 20}}, sums(r.Close(begin.Add(20*time.Second))))
}

func TestLateWindowsDoNotPileUp(t *testing.T) {
	r := NewRecorder(profile.CPU, 10*time.Millisecond, 10*time.Second, begin)
	w := r.Close(begin.Add(35 * time.Second))
	require.Equal(t, 35*time.Second, w.End.Sub(w.Start))
	require.False(t, r.Due(begin.Add(44*time.Second)))
	require.True(t, r.Due(begin.Add(45*time.Second)))
	// On the schedule otherwise: 1 s late once does not make all later ones late.
	r.Close(begin.Add(46 * time.Second))
	require.True(t, r.Due(begin.Add(55*time.Second)))
}

// Before Linux 6.0 a stack that allocates in two contexts has two rows, which differ only
// in their counts.
func TestRowsOfOneIDAreOne(t *testing.T) {
	r := NewRecorder(profile.Memory, 0, 10*time.Second, begin)
	id := profile.RowID{Process: 1, StackID: 1}
	reading := func(all ...profile.Values) {
		r.Begin()
		for _, v := range all {
			r.See(id, v, 0, func() profile.Row { return profile.Row{Thread: 1} })
		}
		r.End()
	}
	reading(held(100, 100), held(10, 10))
	reading(held(10, 10), held(100, 100))
	require.Equal(t, map[uint32][2]int64{1: {110, 110}}, sums(r.Close(begin.Add(10*time.Second))))
	reading(held(100, 0), held(30, 30))
	require.Equal(t, map[uint32][2]int64{1: {20, 30}}, sums(r.Close(begin.Add(20*time.Second))))
}

// For any order of rows and windows, the windows add up to the rows.
func TestWindowsAddUpToTheRows(t *testing.T) {
	for seed := range uint64(50) {
		random := rand.New(rand.NewPCG(seed, 1))
		r := NewRecorder(profile.Memory, 0, 10*time.Second, begin)
		values, want, got := map[uint64]profile.Values{}, map[uint32]int64{}, map[uint32]int64{}
		take := func() {
			for _, row := range r.Close(begin).Rows {
				got[row.Thread] += row.AllocBytes
				require.GreaterOrEqual(t, row.AllocBytes, int64(0))
				require.Equal(t, values[uint64(row.Thread)].InuseBytes, row.InuseBytes)
			}
		}
		for range 200 {
			n := uint64(random.IntN(20) + 1)
			// The kernel forgets a row and begins it again at 0.
			if random.IntN(10) == 0 && values[n].AllocBytes > 10 {
				delete(values, n)
			} else {
				// A row that restarts above its former value would be taken for the
				// old one; this cannot happen, because ids of processes are not
				// reused.
				more := int64(20 + random.IntN(100)*10)
				if _, ok := values[n]; !ok && want[uint32(n)] > 0 {
					more = 10
				}
				values[n] = values[n].Add(held(more, 0))
				want[uint32(n)] += more
			}
			read(r, values)
			if random.IntN(4) == 0 {
				take()
			}
		}
		take()
		require.Equal(t, want, got, "seed %d", seed)
	}
}

func TestOverflowIsCounted(t *testing.T) {
	r := NewRecorder(profile.Memory, 0, 10*time.Second, begin)
	values := map[uint64]profile.Values{}
	for i := range uint64(maxGone + 5) {
		values[i] = held(10, 10)
	}
	read(r, values)
	read(r, nil)
	require.EqualValues(t, 5, r.Forgotten())
	require.Len(t, r.Close(begin).Rows, maxGone)
}

// A process of another tenant ends while a tenant's have taken all the room for rows of those that have ended.
func TestATenantLeavesRowsToOthers(t *testing.T) {
	const hostile, honest = 1, 2
	r := NewRecorder(profile.Memory, 0, 10*time.Second, begin)
	r.Tenant = func(p profile.Process) procmaps.Tenant { return procmaps.Tenant(p.ID) }
	see := func(tenant, stack uint64) {
		r.See(profile.RowID{Process: tenant, StackID: stack}, held(10, 10), 0, func() profile.Row {
			return profile.Row{Process: profile.Process{ID: tenant}}
		})
	}
	r.Begin()
	see(honest, 1)
	for stack := range uint64(maxGone) {
		see(hostile, stack)
	}
	r.End()
	r.Begin()
	see(honest, 1)
	r.End() // the hostile ones are missing
	r.Begin()
	r.End() // and the honest one
	require.EqualValues(t, 1, r.Forgotten(), "of the hostile one")
	rows := map[uint64]int{}
	for _, row := range r.Close(begin).Rows {
		rows[row.Process.ID]++
	}
	require.Equal(t, map[uint64]int{honest: 1, hostile: maxGone - 1}, rows)
	for range keepGone {
		r.Close(begin)
	}
	require.Empty(t, r.rows)
	require.Empty(t, r.gone)
}

func TestSameRowsGiveTheSameOrder(t *testing.T) {
	var first []profile.Row
	for range 5 {
		r := NewRecorder(profile.Memory, 0, 10*time.Second, begin)
		values := map[uint64]profile.Values{}
		for i := range uint64(100) {
			values[i] = held(10, 10)
		}
		read(r, values)
		w := r.Close(begin)
		if first == nil {
			first = w.Rows
		}
		require.Equal(t, first, w.Rows)
	}
}

// TestThePeakIsOfTheWindow: each window has its own, and what is gone has no part in it.
func TestThePeakIsOfTheWindow(t *testing.T) {
	r := NewRecorder(profile.Memory, 0, 10*time.Second, begin)
	peaks := func(w Window) map[uint32]int64 {
		m := map[uint32]int64{}
		for _, r := range w.Rows {
			m[r.Thread] = r.AtPeakBytes
		}
		return m
	}
	read(r, map[uint64]profile.Values{1: held(100, 100), 2: held(50, 50)})
	read(r, map[uint64]profile.Values{1: held(300, 300), 2: held(50, 20)})
	read(r, map[uint64]profile.Values{1: held(300, 10), 2: held(330, 300)})
	require.Equal(t, map[uint32]int64{1: 300, 2: 20}, peaks(r.Close(begin.Add(10*time.Second))))
	read(r, map[uint64]profile.Values{1: held(300, 10), 2: held(330, 290)})
	require.Equal(t, map[uint32]int64{1: 10, 2: 290}, peaks(r.Close(begin.Add(20*time.Second))))
	read(r, map[uint64]profile.Values{1: held(300, 10)}) // 2 has ended
	require.Equal(t, map[uint32]int64{1: 10}, peaks(r.Close(begin.Add(30*time.Second))))
}
