// SPDX-License-Identifier: Apache-2.0

package tracer

import (
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/internal/process/procmaps"
)

const factOfTest = 7

// pointsOnDemand has gpuAlloc on demand.
func pointsOnDemand() []Point {
	points := slices.Clone(testPoints)
	points[0].Fact = factOfTest
	return points
}

// testDemands are the facts that are missing in processes, set by a test.
type testDemands struct {
	mu  sync.Mutex
	all map[uint32]Demand
}

func (d *testDemands) Read(pid, fact uint32) (Demand, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if fact != factOfTest {
		return Demand{Asked: 1 << 20}, nil
	}
	return d.all[pid], nil
}

func (d *testDemands) Forget(pid, _ uint32) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.all, pid)
	return nil
}

func (d *testDemands) set(pid uint32, v Demand) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.all == nil {
		d.all = map[uint32]Demand{}
	}
	d.all[pid] = v
}

// seen is how many of ten calls a probe sees.
func (k *kernel) seen(t *testing.T, h *host) int {
	t.Helper()
	before, _ := k.calls(t, 1)
	h.ask("call gpuAlloc 10")
	enters, _ := k.calls(t, 1)
	return enters - before
}

func TestProbesOnDemandAreThereWhileAProcessLacksTheFact(t *testing.T) {
	eachMode(t, func(t *testing.T, mode Mode) {
		k := load(t)
		h, other := startHost(t), startHost(t)
		path := buildLibrary(t, t.TempDir())
		h.ask("open %s", path)
		other.ask("open %s", path)
		d := &testDemands{}
		tr, rows := start(t, Config{Programs: k.programs, Mode: mode, Points: pointsOnDemand(), Demands: d})
		row, _ := rows.attached(t, h.pid)
		rows.attached(t, other.pid)
		require.Contains(t, row.Note, "on demand: 1")
		require.Equal(t, 3, row.Symbols)
		require.Equal(t, 10, k.seen(t, h), "what a process did before attach is not known")
		require.Equal(t, 10, k.seen(t, other))

		is := func(h *host, n int, why string) {
			t.Helper()
			require.Eventually(t, func() bool { return k.seen(t, h) == n }, 30*time.Second, 20*time.Millisecond, why)
		}
		d.set(h.pid, Demand{Asked: 3, Learned: 2, Idle: idleAnswers})
		is(h, 0, "enough answers were not new")
		require.Equal(t, 10, k.seen(t, other), "the probes of another process stay")
		before, _ := k.calls(t, 2)
		h.ask("call gpuFree 4")
		after, _ := k.calls(t, 2)
		require.Equal(t, 4, after-before, "the other probes stay")
		time.Sleep(3 * demandInterval)
		require.Zero(t, k.seen(t, h), "nothing is asked for that was not before")

		d.set(h.pid, Demand{Asked: 4, Learned: 2, Idle: idleAnswers})
		is(h, 10, "a fact is asked for")

		d.set(h.pid, Demand{Asked: 5, Idle: idleAnswers})
		is(h, 0, "enough answers were not new")
		d.set(h.pid, Demand{Asked: 6, Idle: idleAnswers})
		is(h, 10, "it is asked for again, and the pause is short at first")

		h.stop()
		rows.wait(t, "gone", func(a Attachment) bool { return a.PID == h.pid && a.Status == StatusGone })
		require.Equal(t, 10, k.seen(t, other))
		tr.Stop()
		require.Zero(t, k.seen(t, other))
	})
}

func TestAnswersThatTeachNothingAreAskedForEverLess(t *testing.T) {
	w := window{}
	now := time.Now()
	pauses := []time.Duration{}
	for range 12 {
		w.delay(now)
		pauses = append(pauses, w.notBefore.Sub(now))
	}
	require.Equal(t, demandInterval, pauses[0])
	require.Equal(t, 2*demandInterval, pauses[1])
	require.Equal(t, longestPause, pauses[11])
}

// A container with thousands of processes does not have a window for each, nor take those of others.
func TestWindowsAreBounded(t *testing.T) {
	ws := windows{byTenant: map[procmaps.Tenant]*tenantWindows{}}
	const hostile, honest procmaps.Tenant = 1, 2
	for range maxTenantWindows {
		require.True(t, ws.hasRoom(hostile))
		ws.opened(hostile)
	}
	require.False(t, ws.hasRoom(hostile))
	require.True(t, ws.hasRoom(honest))
	for range maxTenantWindows {
		ws.opened(honest)
	}
	require.False(t, ws.hasRoom(3), "as many as there may be of all")
	ws.closed(hostile)
	require.True(t, ws.hasRoom(hostile))
}

// In each interval, the demands of a tenant with few processes are all read, whatever others have; of
// another one as many as there is time for, in turn.
func TestDemandsAreReadInTurn(t *testing.T) {
	ws := windows{byTenant: map[procmaps.Tenant]*tenantWindows{}}
	const hostile, honest procmaps.Tenant = 1, 2
	add := func(tenant procmaps.Tenant, n int) (all []*window) {
		for range n {
			w := &window{process: &process{tenant: tenant}}
			ws.add(w)
			all = append(all, w)
		}
		return all
	}
	many, few := add(hostile, 2*demandsAtOnce), add(honest, 3)
	reads := map[*window]int{}
	turns := 4
	for range turns {
		ws.turn(func(w *window) { reads[w]++ })
	}
	for _, w := range few {
		require.Equal(t, turns, reads[w])
	}
	for _, w := range many {
		require.Equal(t, 1, reads[w])
	}

	for _, w := range slices.Concat(many[1:], few) { // processes end
		w.gone = true
	}
	clear(reads)
	for range 2 * len(many) {
		ws.turn(func(w *window) { reads[w]++ })
	}
	require.Len(t, reads, 1)
	require.Contains(t, reads, many[0])
	require.NotContains(t, ws.byTenant, honest)
	require.Len(t, ws.byTenant[hostile].all, 1)
}

func TestProbesOnDemandNeedDemands(t *testing.T) {
	_, err := New(Config{Points: pointsOnDemand()})
	require.ErrorContains(t, err, "demands of processes")
}
