// SPDX-License-Identifier: Apache-2.0

package procmaps

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A tenant is a cgroup; where a process is in none of version 2, a mount namespace.
func TestTenants(t *testing.T) {
	proc := t.TempDir()
	tenant := func(cgroup, mountNS string) Tenant {
		t.Helper()
		require.NoError(t, os.RemoveAll(filepath.Join(proc, "7")))
		require.NoError(t, os.MkdirAll(filepath.Join(proc, "7/ns"), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(proc, "7/cgroup"), []byte(cgroup), 0o644))
		require.NoError(t, os.Symlink(mountNS, filepath.Join(proc, "7/ns/mnt")))
		return TenantOf(proc, 7)
	}
	a := tenant("0::/kubepods.slice/a.scope\n", "mnt:[4026531841]")
	require.Equal(t, a, tenant("0::/kubepods.slice/a.scope\n", "mnt:[4026532000]"), "it may make mount namespaces")
	require.NotEqual(t, a, tenant("0::/kubepods.slice/b.scope\n", "mnt:[4026531841]"))
	require.Equal(t, a, tenant("4:memory:/x\n0::/kubepods.slice/a.scope\n", "mnt:[4026531841]"))
	require.EqualValues(t, 4026531841, tenant("4:memory:/a\n0::/\n", "mnt:[4026531841]"))
	require.EqualValues(t, 4026532000, tenant("4:memory:/a\n", "mnt:[4026532000]"))
	require.Zero(t, TenantOf(proc, 8), "no such process")
}

// tenantProc is a process of a tenant with that many mappings of code, each of another file.
func tenantProc(t *testing.T, root string, pid int, tenant string, mappings int) {
	t.Helper()
	var maps strings.Builder
	for n := range mappings {
		fmt.Fprintf(&maps, "%x-%x r-xp 0 00:01 7 /%s/%d\n", (n+1)<<12, (n+2)<<12, strings.Repeat("long", 10), n)
	}
	fakeProc(t, root, pid, pid, maps.String())
	require.NoError(t, os.WriteFile(filepath.Join(root, strconv.Itoa(pid), "cgroup"), []byte("0::/"+tenant+"\n"), 0o600))
}

// A tenant with thousands of processes, of many mappings each, drops its own snapshots for new ones, not those
// of others, and all take as much memory as they may.
func TestSnapshotsOfATenantDropItsOwn(t *testing.T) {
	root := t.TempDir()
	c := NewCache(Config{ProcFS: root, MaxProcesses: 40, MaxExited: 20, MaxBytes: 1 << 20})
	for pid := 1; pid <= 5; pid++ {
		tenantProc(t, root, pid, "honest", 10)
		_, err := c.Snapshot(uint32(pid))
		require.NoError(t, err)
	}
	c.Exited(1)
	known := func() {
		t.Helper()
		for pid := 1; pid <= 5; pid++ {
			_, ok := c.Lookup(Process{uint32(pid), uint64(pid)}, 1<<12)
			require.True(t, ok, pid)
		}
		require.LessOrEqual(t, c.bytes, 1<<20)
		require.LessOrEqual(t, c.running.Len()+c.exited.Len(), 40)
		require.LessOrEqual(t, c.exited.Len(), 20)
	}
	for pid := 100; pid < 200; pid++ { // many
		tenantProc(t, root, pid, "hostile", 1)
		_, err := c.Snapshot(uint32(pid))
		require.NoError(t, err)
		if pid%2 == 0 {
			c.Exited(uint32(pid))
		}
		known()
	}
	for pid := 200; pid < 230; pid++ { // large
		tenantProc(t, root, pid, "hostile", 1000)
		_, err := c.Snapshot(uint32(pid))
		require.NoError(t, err)
		known()
	}
	for c.running.Len()+c.exited.Len() > 0 {
		c.forget(c.last(nil, func(*entry) bool { return true }))
	}
	require.Zero(t, c.bytes)
	require.Empty(t, c.byTenant)
}

// A process with more mappings than are kept has those that came first.
func TestASnapshotIsBounded(t *testing.T) {
	root := t.TempDir()
	c := NewCache(Config{ProcFS: root})
	const many = 60_000
	tenantProc(t, root, 5, "hostile", many)
	s, err := c.Snapshot(5)
	require.NoError(t, err)
	require.True(t, s.Truncated)
	require.Less(t, len(s.Mappings), many)
	require.LessOrEqual(t, s.bytes, maxSnapshotBytes)
	require.Positive(t, maxSnapshotBytes-s.bytes)
	tenantProc(t, root, 6, "honest", 1000)
	s, err = c.Snapshot(6)
	require.NoError(t, err)
	require.False(t, s.Truncated)
	require.Len(t, s.Mappings, 1000)
}

// To find addresses of processes with many mappings is at the cost of their tenant, which is bounded.
func TestFindingIsBounded(t *testing.T) {
	root := t.TempDir()
	c := NewCache(Config{ProcFS: root, MinRefresh: time.Nanosecond})
	tenantProc(t, root, 5, "hostile", 60_000)
	tenantProc(t, root, 6, "honest", 10)
	reads := 0
	c.OnSnapshot(func(s *Snapshot) {
		if s.Process.PID == 5 {
			reads++
		}
	})
	_, err := c.Snapshot(5)
	require.NoError(t, err)
	reads = 0
	began := time.Now()
	for tries := 0; c.spent.Pause(c.Tenant(5), time.Now()) == 0; tries++ {
		require.Less(t, tries, 500)
		c.Find(5, 1) // where nothing is
	}
	for range 100 {
		c.Find(5, 1)
	}
	require.LessOrEqual(t, reads, int((findBurst+time.Since(began)/findShare)/Cost(60_000))+1)
	_, ok := c.Find(5, 1<<12)
	require.True(t, ok, "what is known of it stays")
	_, ok = c.Find(6, 1<<12)
	require.True(t, ok)
}

// That an address is in no mapping is final if the process was read since then: a library may be mapped later, and a
// tenant that has spent its allowance has it again.
func TestWhatIsNotFoundMayBeLater(t *testing.T) {
	root := t.TempDir()
	c := NewCache(Config{ProcFS: root, MinRefresh: time.Hour})
	tenantProc(t, root, 5, "hostile", 10)
	find := func(addr uint64, since time.Time) []bool {
		_, ok, isFinal := c.FindSince(5, addr, since)
		return []bool{ok, isFinal}
	}
	const mapped, unmapped = 1 << 12, 1
	began := time.Now()
	require.Equal(t, []bool{false, true}, find(unmapped, began))
	require.Equal(t, []bool{true, true}, find(mapped, time.Now()))
	require.Equal(t, []bool{false, false}, find(unmapped, time.Now()), "it is read at most once an hour")
	require.Equal(t, []bool{false, true}, find(unmapped, began))

	c.cfg.MinRefresh = time.Nanosecond
	c.spent.Take(c.Tenant(5), time.Minute, time.Now())
	require.Equal(t, []bool{false, false}, find(unmapped, began), "it costs too much")
	c.Stale(5)
	require.Equal(t, []bool{true, false}, find(mapped, began), "as another program had it")
	c.spent.Clear()
	require.Equal(t, []bool{false, true}, find(unmapped, time.Now()))
	c.Exited(5)
	require.Equal(t, []bool{false, true}, find(unmapped, time.Now()), "nothing more is read")
}

// An address of a snapshot may be another library's since the process has mapped something: dlclose, and dlopen at the same
// address. A process that has mapped nothing since is not read again.
func TestWhatIsFoundMayBeAnotherLibrarysLater(t *testing.T) {
	root := t.TempDir()
	c := NewCache(Config{ProcFS: root})
	fakeProc(t, root, 5, 777, "1000-2000 r-xp 0 00:01 7 /old\n")
	reads := 0
	c.OnSnapshot(func(*Snapshot) { reads++ })
	_, err := c.Snapshot(5)
	require.NoError(t, err)
	find := func(since time.Time) (path string, isFinal bool) {
		m, ok, isFinal := c.FindSince(5, 0x1800, since)
		require.True(t, ok)
		return m.Path, isFinal
	}
	expect := func(since time.Time, wantPath string, wantFinal bool) {
		t.Helper()
		path, isFinal := find(since)
		require.Equal(t, wantPath, path)
		require.Equal(t, wantFinal, isFinal)
	}
	began := time.Now()
	expect(began, "/old", true)
	fakeProc(t, root, 5, 777, "1000-2000 r-xp 0 00:01 8 /new\n")
	c.Changed(5)
	expect(began, "/old", false)
	require.Equal(t, 1, reads)
	_, err = c.Snapshot(5)
	require.NoError(t, err)
	expect(began, "/new", true)
	expect(time.Now(), "/new", true)
	c.Changed(5) // as a process does all the time that makes code in files
	expect(began, "/new", true)
	expect(time.Now(), "/new", false)
	c.Exited(5)
	expect(time.Now(), "/new", true)
	c.Changed(6) // nothing is known of it
	require.Equal(t, 2, reads)
}
