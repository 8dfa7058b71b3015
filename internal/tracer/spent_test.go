// SPDX-License-Identifier: Apache-2.0

package tracer

import (
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/internal/process/procmaps"
)

// pause is that of a process, of process 1 for nil.
func pause(tr *Tracer, p *process, now time.Time) time.Duration {
	d, _ := tr.pause(1, p, now)
	return d
}

// What one process has cost delays it, and what a tenant has cost delays its processes,
// new ones, too; others are read at once.
func TestReadingMappingsIsBounded(t *testing.T) {
	tr := &Tracer{cfg: Config{ProcFS: "/proc"}, state: newState()}
	now := time.Now()
	const hostile, honest procmaps.Tenant = 1, 2
	costly, other := &process{tenant: hostile, spent: newSpent()}, &process{tenant: hostile, spent: newSpent()}
	for range 10 {
		require.Zero(t, pause(tr, other, now))
		tr.take(costly, procmaps.Cost(65_000))
	}
	long := pause(tr, costly, now)
	require.Greater(t, long, 5*time.Second)
	require.Less(t, long, 20*time.Second)
	require.Zero(t, pause(tr, costly, now.Add(long+time.Second)))
	require.Zero(t, pause(tr, other, now))

	for range 100 { // processes that end after one read each
		tr.take(&process{tenant: hostile, spent: newSpent()}, procmaps.Cost(65_000))
	}
	require.Positive(t, pause(tr, other, now))
	require.Zero(t, pause(tr, &process{tenant: honest, spent: newSpent()}, now), "another container")
	tenant := tr.tenantOf(1)
	require.Zero(t, pause(tr, nil, now))
	tr.spent.Take(tenant, time.Minute, now)
	require.Positive(t, pause(tr, nil, now), "a process that was not read yet")
}

// Whom a process belongs to is not what was known of its pid.
func TestAPidOfAnotherTenantIsNotItsFormerOnes(t *testing.T) {
	tr, err := New(Config{Points: []Point{{Library: "libcuda", Symbol: "cuInit"}}, Programs: Programs{Enter: &ebpf.Program{}}, Mode: Perf})
	require.NoError(t, err)
	pid := uint32(os.Getpid())
	const former procmaps.Tenant = 1
	tr.processes[pid] = &process{pid: pid, tenant: former, spent: newSpent()} // and another start
	require.True(t, tr.look(pid))
	require.Equal(t, tr.tenantOf(pid), tr.processes[pid].tenant)
	delete(tr.processes, pid)
	tr.later[pid] = former
	require.True(t, tr.look(pid))
	require.Equal(t, tr.tenantOf(pid), tr.processes[pid].tenant)
}

// What a search reads is bounded, and the tenant pays for it: after those that cost much there is none, until
// it has paid.
func TestSearchesAreBounded(t *testing.T) {
	tr, err := New(Config{Points: []Point{{Library: "libcuda", Symbol: "cuInit"}}, Programs: Programs{Enter: &ebpf.Program{}}, Mode: Perf})
	require.NoError(t, err)
	dir := t.TempDir()
	for n := range 1000 {
		require.NoError(t, os.WriteFile(filepath.Join(dir, strconv.Itoa(n)), nil, 0o644))
	}
	pid := uint32(os.Getpid())
	s := tr.newSearch(pid, tr.rootOf(pid), tr.tenantOf(pid))
	for range 2 * maxDirectories {
		s.list(dir)
	}
	require.Zero(t, s.names)
	require.Less(t, s.cost(), 50*time.Millisecond)
	for range 2 * maxOpens {
		s.expect([]string{dir + "/libcuda.so.1"})
	}
	require.Zero(t, s.opens)

	slow := tr.newSearch(pid, tr.rootOf(pid), tr.tenantOf(pid))
	slow.waited = 2 * maxWaited
	require.Empty(t, slow.read(dir, func(string) bool { return true }))
	slow.expect([]string{dir + "/libcuda.so.1"})
	require.Equal(t, maxOpens, slow.opens)
	require.Equal(t, maxDirectories, slow.directories)
	slow.waited = 0
	require.NotEmpty(t, slow.read(dir, func(string) bool { return true }))
	require.Positive(t, slow.waited)

	require.Empty(t, tr.expected)
	tr.predict(pid)
	searched := len(tr.expected)
	require.Positive(t, searched)
	clear(tr.expected)
	for range 100 {
		tr.searched.Take(tr.tenantOf(pid), s.cost(), time.Now())
	}
	tr.predict(pid)
	tr.predictSite(pid, dir)
	require.Empty(t, tr.expected)
}

// A process that was put off is read by a scan, once it may cost something again.
func TestWhatWasPutOffIsReadLater(t *testing.T) {
	tr, err := New(Config{Points: []Point{{Library: "libcuda", Symbol: "cuInit"}}, Programs: Programs{Enter: &ebpf.Program{}}, Mode: Perf})
	require.NoError(t, err)
	pid := startCommand(t, "sh", "-c", "echo up; read x")
	tr.look(pid)
	require.EqualValues(t, 1, tr.stats.MapsRead)
	p := tr.processes[pid]
	for pause(tr, p, time.Now()) == 0 {
		tr.take(p, stuckCost)
	}
	tr.look(pid)
	require.EqualValues(t, 1, tr.stats.MapsRead)
	require.EqualValues(t, 1, tr.stats.Later)
	p.spent = newSpent()
	tr.spent.Clear()
	tr.look(pid)
	require.EqualValues(t, 2, tr.stats.MapsRead)
	require.Empty(t, tr.later)
	tr.leave(pid)
	_, err = procmaps.StartTime("/proc", pid)
	require.NoError(t, err)
}

func TestFewFilesAreAttachedPointByPoint(t *testing.T) {
	tr := &Tracer{state: newState()}
	now := time.Now()
	for range pointsMinute {
		require.True(t, tr.mayByPoint(now))
	}
	require.False(t, tr.mayByPoint(now.Add(59*time.Second)))
	require.True(t, tr.mayByPoint(now.Add(time.Minute)))
}
