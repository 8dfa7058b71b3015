// SPDX-License-Identifier: Apache-2.0

package launches

import (
	"math/bits"
	"os"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/examples/simcuda/journal"
	"github.com/gpu-gadgets/gpu-gadgets/test/support/simulated"
	"github.com/gpu-gadgets/gpu-gadgets/test/support/subject"
	"github.com/gpu-gadgets/gpu-gadgets/test/support/tracer"
)

// callsVariable makes more calls than make test does.
const callsVariable = "LAUNCHES_CALLS"

func number(t *testing.T, otherwise int) int {
	t.Helper()
	if text := os.Getenv(callsVariable); text != "" {
		n, err := strconv.Atoi(text)
		require.NoError(t, err, callsVariable)
		return n
	}
	return otherwise
}

// withRoom makes the ring hold all events, however late they are read: of 272 bytes each
// with its header.
func withRoom(calls int) func(*tracer.Spec) {
	return func(spec *tracer.Spec) {
		spec.Maps["calls_ring"].MaxEntries = 1 << bits.Len(uint(calls*300))
	}
}

// TestEveryCall compares all rows and all events with the journal: 8 threads on two
// devices, and some calls that fail.
func TestEveryCall(t *testing.T) {
	lib, dir := simulated.DriverCopy(t), t.TempDir()
	calls := number(t, subject.Volume(15000, 40000))
	g := start(t, lib, tracer.Options{Offset: 10, Edit: withRoom(calls)}, map[string]any{"events": true})
	ring := g.follow()
	workload(t, lib, dir, func() {
		tr := readTruth(t, dir)
		g.requireRows(tr)
		g.requireEvents(tr, ring.stop())
	}, []string{"SIMCUDA_FAIL_EVERY=97", "SIMCUDA_DEVICES=2"}, "--calls", strconv.Itoa(calls))
	require.Empty(t, g.Drops())
}

// requireRows compares each row with its calls in the journal.
func (g *gadget) requireRows(tr *truth) {
	t := g.t
	t.Helper()
	want, calls := tr.sums(), uint64(0)
	rows, devices := g.rows(), map[int32]uint64{}
	for _, row := range rows {
		k := key{
			stack: g.python(row.StackID), api: text(row.API[:]), direction: text(row.Direction[:]),
			kernel: g.kernel(row.Function), result: row.Status, device: row.Device, isCaptured: text(row.Operation[:]) == "captured",
		}
		s := want[k]
		require.NotNil(t, s, "nobody made these calls: %+v", k)
		delete(want, k)
		require.Equal(t, []uint64{s.calls, s.bytes, s.blocks, s.threads, s.nodes},
			[]uint64{row.Calls, row.Bytes, row.Blocks, row.Threads, row.Nodes}, "%+v", k)
		require.Equal(t, row.Calls, row.Sampled)
		require.Zero(t, row.CallsError+row.BytesError+row.HostNSError)
		require.True(t, s.shapes[shape{row.Grid, row.Block, row.Shared}], "%+v: %v", k, row.Grid)
		require.Equal(t, len(s.shapes) > 1, row.Varies&7 != 0, "%+v", k)
		require.GreaterOrEqual(t, row.HostNS, s.hostNS, "%+v", k)
		var inSlots uint64
		for _, n := range row.Time {
			inSlots += uint64(n)
		}
		require.Equal(t, row.Calls, inSlots)
		calls += row.Calls
		devices[row.Device] += row.Calls
	}
	require.Empty(t, want, "these calls are in no row")
	require.Greater(t, devices[0], uint64(1000))
	require.Greater(t, devices[1], uint64(1000))
	require.NotZero(t, devices[-1], "some calls have no context, or several devices")
	t.Logf("%d rows, %d calls, by device %v", len(rows), calls, devices)
}

// requireEvents compares each thread's events with its records, in their order.
func (g *gadget) requireEvents(tr *truth, all []event) {
	t := g.t
	t.Helper()
	byThread := map[uint32][]event{}
	for _, e := range all {
		byThread[e.Proc.TID] = append(byThread[e.Proc.TID], e)
	}
	stacks, at := map[uint64]string{}, map[uint32]int{}
	tr.each(func(r *journal.Record, k key) {
		n := at[r.TID]
		at[r.TID]++
		require.Less(t, n, len(byThread[r.TID]), "events are missing")
		e := byThread[r.TID][n]
		if _, ok := stacks[e.StackID]; !ok {
			stacks[e.StackID] = g.python(e.StackID)
		}
		require.Equal(t, k, key{
			stack: stacks[e.StackID], api: text(e.API[:]), direction: text(e.Direction[:]),
			kernel: g.kernel(e.Function), result: e.Status, device: e.Device, isCaptured: text(e.Operation[:]) == "captured",
		})
		require.Equal(t, shape{r.Grid, r.Block, r.SharedBytes}, shape{e.Grid, e.Block, e.Shared})
		require.Equal(t, r.Size, e.Bytes)
		require.EqualValues(t, 1, e.Weight)
		require.LessOrEqual(t, e.StartNS, e.EndNS)
		require.GreaterOrEqual(t, e.EndNS-e.StartNS, r.TimeNS-r.StartNS)
		if k.result == journal.Success { // an injected failure comes before the event's stream is known
			require.Equal(t, r.Stream, e.Stream, "%+v", k)
		}
	})
	require.Equal(t, len(all), func() (sum int) {
		for _, n := range at {
			sum += n
		}
		return sum
	}())
	t.Logf("%d events", len(all))
}
