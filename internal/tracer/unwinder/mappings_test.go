// SPDX-License-Identifier: Apache-2.0

package unwinder

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/internal/process/procmaps"
)

// countReads returns how often the mappings of processes were read.
func countReads(u *Unwinder) *int {
	reads := 0
	u.cfg.Processes.OnSnapshot(func(*procmaps.Snapshot) { reads++ })
	return &reads
}

// Mappings are read by another thread, whose processor time the tenant pays, too: misses of files that no one can open do
// not have 10,000 mappings read over and over.
func TestReadingMappingsIsBounded(t *testing.T) {
	runtime.LockOSThread() // as run does
	defer runtime.UnlockOSThread()
	u := newUnwinder(t, 1000)
	root := t.TempDir()
	u.cfg.ProcFS, u.cfg.Processes = root, procmaps.NewCache(procmaps.Config{ProcFS: root})
	reads := countReads(u)
	const mappings = 10_000
	var maps strings.Builder
	for n := range mappings {
		fmt.Fprintf(&maps, "%x-%x r-xp 0 00:01 7 /x\n", (n+1)<<12, (n+2)<<12)
	}
	dir := filepath.Join(root, "5")
	require.NoError(t, os.Mkdir(dir, 0o755))
	for name, text := range map[string]string{
		"maps": maps.String(), "cgroup": "0::/hostile\n", "stat": "5 (a) S 1 " + strings.Repeat("0 ", 17) + "777 0\n",
	} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	tenant := u.cfg.Processes.Tenant(5)
	const left = 60 * time.Millisecond
	began := time.Now()
	u.tenants.Take(tenant, u.tenants.Burst-left, began)
	for range 40 {
		u.handle([]Miss{{TGID: 5, Key: Key{Inode: 7}, Start: 1, Address: 1}})
	}
	require.LessOrEqual(t, *reads, int((left+time.Since(began)/time.Duration(u.tenants.Share))/procmaps.Cost(mappings))+1)
	require.Positive(t, *reads)
	require.False(t, u.spent.IsPaid(began), "nor is it without a limit for all tenants together")
}

// The stack of a process is read a hundred times a second; its mappings are those that were read before, as long as
// what a walk has met is among them.
func TestMappingsAreReadAgainForWhatIsNotAmongThem(t *testing.T) {
	u := newUnwinder(t, 1000)
	reads := countReads(u)
	pid := sleeper(t, "sleep")
	miss, m := missOf(t, pid, "/libc.so.6")
	page := miss.Key.Page
	next := func() {
		t.Helper()
		page++
		miss.Key.Page = page
		time.Sleep(2 * lookEach)
		u.handle([]Miss{miss})
		require.True(t, u.has(miss.Key))
	}
	for range 5 {
		next()
	}
	require.Equal(t, 1, *reads)

	// Since then the process has mapped the file.
	s, err := u.cfg.Processes.Look(pid, nil)
	require.NoError(t, err)
	for n := range s.Mappings {
		if s.Mappings[n] == m {
			s.Mappings = append(s.Mappings[:n:n], s.Mappings[n+1:]...)
			break
		}
	}
	u.cfg.Processes.Keep(s, u.cfg.Processes.Tenant(pid))
	u.files.close()
	*reads = 0
	next()
	next()
	require.Equal(t, 1, *reads)
}
