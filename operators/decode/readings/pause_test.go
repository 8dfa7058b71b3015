// SPDX-License-Identifier: Apache-2.0

package readings

import (
	"context"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	gadgetcontext "github.com/inspektor-gadget/inspektor-gadget/pkg/gadget-context"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/operators"
	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/internal/ig"
)

func newPause(t *testing.T) *pause {
	m, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: 8, MaxEntries: 2})
	require.NoError(t, err)
	t.Cleanup(func() { m.Close() })
	return &pause{m: m}
}

func (p *pause) at(t *testing.T, index uint32) (v uint64) {
	require.NoError(t, p.m.Lookup(index, &v))
	return v
}

// A large table is followed by a pause of the programs, which ends before the next reading that passes, and with
// the run.
func TestProgramsPauseAfterALargeTable(t *testing.T) {
	r := &read{pause: newPause(t)}
	i := &instance{reads: map[string]*read{"allocs": r}}
	now := time.Now()
	require.True(t, i.begin(r, rowsPerSecond, now))
	i.end(r, rowsPerSecond, now)
	require.Zero(t, r.pause.at(t, pausedUntil))
	require.True(t, i.begin(r, 3*rowsPerSecond, now))
	before := ig.SinceBoot()
	i.end(r, 3*rowsPerSecond, now)
	require.InDelta(t, before+3*time.Second-2*early, r.pause.at(t, pausedUntil), float64(50*time.Millisecond))
	require.NoError(t, i.PreStop(nil))
	require.Zero(t, r.pause.at(t, pausedUntil))
	i.end(r, 3*rowsPerSecond, now)
	require.Zero(t, r.pause.at(t, pausedUntil), "the last reading has all rows")
}

// A reading from which rows were left out passes neither at its time nor at the end of the run.
func TestReadingsWithoutAllRowsDoNotPass(t *testing.T) {
	r := &read{pause: newPause(t)}
	i := &instance{reads: map[string]*read{"allocs": r}}
	now := time.Now()
	require.True(t, i.begin(r, 3*rowsPerSecond, now))
	i.end(r, 3*rowsPerSecond, now)
	leave := func(count uint64) { require.NoError(t, r.pause.m.Update(leftOut, count, ebpf.UpdateAny)) }
	leave(7)
	require.False(t, i.begin(r, 0, now.Add(time.Second)))
	leave(8)
	require.False(t, i.begin(r, 5, now.Add(3*time.Second)), "the pause ended in the middle of it")
	require.True(t, i.begin(r, 3*rowsPerSecond, now.Add(4*time.Second)))
	i.end(r, 3*rowsPerSecond, now.Add(4*time.Second))
	require.NoError(t, i.PreStop(nil))
	leave(9)
	require.False(t, i.begin(r, 5, now.Add(5*time.Second)))
	require.False(t, i.complete())
	require.True(t, i.begin(r, 3*rowsPerSecond, now.Add(5*time.Second)))
}

// Inspektor Gadget would wait for ever for an error of Start.
func TestAFailedStartEndsTheRun(t *testing.T) {
	gc := gadgetcontext.New(t.Context(), "none")
	gc.SetVar(operators.MapPrefix+pauseMap, "no map")
	i := &instance{}
	require.NoError(t, i.Start(gc))
	require.ErrorIs(t, gc.Context().Err(), context.Canceled)
	require.NoError(t, i.Stop(gc))
	require.ErrorContains(t, i.PostStop(gc), "map reading_pause: unexpected type")
	require.NoError(t, i.PostStop(gc), "reported once")
	require.NoError(t, i.Close(gc))
}
