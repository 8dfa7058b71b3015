// SPDX-License-Identifier: Apache-2.0

package procmaps

import (
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// process77 is one of a tenant.
func process77(t *testing.T, root, tenant string, start int) {
	t.Helper()
	fakeProc(t, root, 77, start, "1000-2000 r-xp 0 00:01 7 /"+tenant+"\n")
	require.NoError(t, os.WriteFile(filepath.Join(root, strconv.Itoa(77), "cgroup"), []byte("0::/"+tenant+"\n"), 0o600))
}

// A process gets the pid of one of another tenant, which has exited and owes much: it is its own tenant's, and is read.
func TestTheTenantOfAReusedPIDIsTheNewOne(t *testing.T) {
	for _, isReported := range []bool{true, false} {
		root := t.TempDir()
		c := NewCache(Config{ProcFS: root, MinRefresh: time.Hour})
		process77(t, root, "hostile", 100)
		hostile := TenantOf(root, 77)
		_, err := c.Snapshot(77)
		require.NoError(t, err)
		c.spent.Take(hostile, time.Hour, time.Now())
		if isReported {
			c.Exited(77)
		}
		require.Equal(t, hostile, c.Tenant(77))
		process77(t, root, "honest", 200)
		honest := TenantOf(root, 77)
		require.NotEqual(t, hostile, honest)
		_, err = c.findAgain(77)
		require.NoError(t, err)
		require.Equal(t, honest, c.Tenant(77))
		process77(t, root, "hostile", 300)
		_, err = c.Snapshot(77)
		require.NoError(t, err)
		require.Equal(t, hostile, c.Tenant(77))
		m, ok := c.Lookup(Process{77, 200}, 0x1800)
		require.True(t, ok)
		require.Equal(t, "/honest", m.Path)
	}
}

// Where neither ends nor programs that start are reported, the mappings of a new process are found a second later.
func TestMappingsOfAReusedPIDAreTheNewOnes(t *testing.T) {
	root := t.TempDir()
	c := NewCache(Config{ProcFS: root, MinRefresh: 30 * time.Millisecond})
	found := func() string {
		m, ok := c.Find(77, 0x1800)
		require.True(t, ok)
		return m.Path
	}
	process77(t, root, "a", 100)
	require.Equal(t, "/a", found())
	process77(t, root, "b", 200)
	time.Sleep(40 * time.Millisecond)
	require.Equal(t, "/b", found())
	c.Exited(77)
	require.Equal(t, "/b", found())
	process77(t, root, "c", 300)
	time.Sleep(40 * time.Millisecond)
	require.Equal(t, "/c", found())
	c.Exited(77)
	require.NoError(t, os.RemoveAll(filepath.Join(root, "77")))
	time.Sleep(40 * time.Millisecond)
	require.Equal(t, "/c", found(), "the last one that had it")

	// A program that starts is another process at once.
	c = NewCache(Config{ProcFS: root, MinRefresh: time.Hour})
	process77(t, root, "a", 100)
	require.Equal(t, "/a", found())
	c.Exited(77)
	process77(t, root, "b", 200)
	require.Equal(t, "/a", found())
	c.Stale(77)
	require.Equal(t, "/b", found())
}
