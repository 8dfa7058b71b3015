// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"testing"

	gadgetcontext "github.com/inspektor-gadget/inspektor-gadget/pkg/gadget-context"
	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/internal/profile"
)

// counted is a row of cuda_kernel: of kernels on the GPU, or of launches.
type counted struct {
	operation string
	row, n    int
}

// rowsOf emits one reading.
func (g *gadget) rowsOf(t *testing.T, rows ...counted) {
	t.Helper()
	packet, err := g.sources["calls"].NewPacketArray()
	require.NoError(t, err)
	for _, r := range rows {
		d := packet.New()
		for name, v := range map[string]any{"proc.pid": uint32(10), "process": 1, "operation": r.operation, "row": r.row, "calls": r.n} {
			require.NoError(t, g.put("calls/"+name, d, v))
		}
		packet.Append(d)
	}
	require.NoError(t, g.sources["calls"].EmitAndRelease(packet))
}

// A gadget removes rows that only count, and have not for a minute, where tables are nearly full
// (operators/decode/reap); a stack that is needed again begins at zero.
func TestCountersOfCallsStayWhereRowsAreRemoved(t *testing.T) {
	g := &gadget{}
	require.NoError(t, g.declare(gadgetcontext.New(t.Context(), "cuda_kernel")))
	store, isOver := &Store{}, false
	run, reader := store.NewRun("cuda_kernel"), store.NewReader()
	require.NoError(t, subscribeCalls(g.sources, func() func(profile.Process) bool {
		return func(profile.Process) bool { return isOver }
	}, run.Calls))
	sums := func() (kernels, calls int64) {
		for _, s := range reader.Read().Calls {
			kernels += s.Kernels
			calls += s.Calls
		}
		return kernels, calls
	}
	const device, launch = "kernel", "launch"
	for i, reading := range []struct {
		rows           []counted
		kernels, calls int64
	}{
		{[]counted{{device, 1, 100}, {device, 2, 7}, {launch, 3, 1000}, {launch, 4, 5}}, 107, 1005},
		{[]counted{{device, 2, 8}, {launch, 4, 6}}, 108, 1006},
		{[]counted{{device, 2, 9}, {launch, 4, 9}}, 109, 1009},
		{[]counted{{device, 1, 3}, {device, 2, 9}, {launch, 3, 2}, {launch, 4, 9}}, 112, 1011},    // again, at once
		{[]counted{{device, 1, 4}, {device, 2, 9}, {launch, 3, 2}, {launch, 4, 9}}, 113, 1011},    // and on
		{[]counted{{device, 1, 4}, {device, 1, 1}, {device, 2, 9}, {launch, 4, 9}}, 114, 1011},    // two rows of one id
		{[]counted{{device, 1, 4}, {device, 1, 1}, {device, 2, 9}, {launch, 4, 9}}, 114, 1011},    // unchanged
		{[]counted{{device, 2, 9}, {launch, 4, 10}}, 114, 1012},                                   // for long, see below
		{[]counted{{device, 1, 50}, {device, 2, 9}, {launch, 3, 1}, {launch, 4, 10}}, 164, 1013},  // again
		{[]counted{{device, 1, 50}, {device, 2, 10}, {launch, 3, 1}, {launch, 4, 10}}, 165, 1013}, // and on
	} {
		times := 1
		if i == 7 {
			times = 3 * missedRows
		}
		for range times {
			g.rowsOf(t, reading.rows...)
			kernels, calls := sums()
			require.Equal(t, [2]int64{reading.kernels, reading.calls}, [2]int64{kernels, calls}, "reading %d", i)
		}
	}
	isOver = true
	g.rowsOf(t)
	sums()
	require.Empty(t, reader.Read().Calls)
}
