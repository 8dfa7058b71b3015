// SPDX-License-Identifier: Apache-2.0

package tracer

import (
	"context"
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
	mu      sync.Mutex
	all     map[uint32]Demand
	changed chan struct{}
}

func newTestDemands() *testDemands {
	return &testDemands{all: map[uint32]Demand{}, changed: make(chan struct{}, 1)}
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
	d.all[pid] = v
	select {
	case d.changed <- struct{}{}:
	default:
	}
}

func (d *testDemands) Wait(ctx context.Context) error {
	select {
	case <-d.changed:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
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
		d := newTestDemands()
		// No scan: what changes is read at once.
		tr, rows := start(t, Config{Programs: k.programs, Mode: mode, Points: pointsOnDemand(), Demands: d, ScanInterval: time.Hour})
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

// Demands are read once they have changed, all of them, and no more until they change again.
func TestDemandsAreReadOnceAfterAChange(t *testing.T) {
	changes := make(chan struct{})
	d := newDemandTimer(changes)
	defer d.timer.Stop()
	d.begin(0, time.Now())
	require.NotNil(t, d.changed, "there is no window")
	d.begin(3, time.Now())
	for range 3 {
		require.Nil(t, d.changed, "changes wait for the turn that they ask for")
		d.turned(<-d.timer.C)
	}
	require.NotNil(t, d.changed)
	began := time.Now()
	require.False(t, d.timer.Stop(), "it does not run")
	d.begin(1, d.last)
	d.turned(<-d.timer.C)
	require.GreaterOrEqual(t, time.Since(began), demandInterval-10*time.Millisecond, "turns are an interval apart")
}

func TestTurnsReadEachWindow(t *testing.T) {
	ws := windows{byTenant: map[procmaps.Tenant]*tenantWindows{}}
	require.Zero(t, ws.turns())
	reads := map[*window]bool{}
	for tenant, n := range map[procmaps.Tenant]int{1: 3*demandsAtOnce + 1, 2: 1} {
		for range n {
			ws.add(&window{process: &process{tenant: tenant}})
		}
	}
	turns := ws.turns()
	for range turns {
		ws.turn(func(w *window) { reads[w] = true })
	}
	require.Len(t, reads, 3*demandsAtOnce+2)
	require.Equal(t, 7, turns, "half of an interval's for each of two")
}

func TestProbesOnDemandNeedDemands(t *testing.T) {
	_, err := New(Config{Points: pointsOnDemand()})
	require.ErrorContains(t, err, "demands of processes")
}
