// SPDX-License-Identifier: Apache-2.0

package procmaps

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// A tracer reads all processes of a machine, and keeps few of them.
func TestLookKeepsNothing(t *testing.T) {
	root := t.TempDir()
	c := NewCache(Config{ProcFS: root})
	fakeProc(t, root, 5, 777, "1000-2000 r-xp 0 00:01 7 /a\n2000-3000 rw-p 0 00:01 7 /a\n")
	s, err := c.Look(5, nil)
	require.NoError(t, err)
	require.Equal(t, Process{5, 777}, s.Process)
	require.Len(t, s.Mappings, 1, "only code")
	require.Equal(t, Cost(2), s.Cost(), "all were read")
	_, ok := c.Lookup(s.Process, 0x1800)
	require.False(t, ok)
	c.Keep(s, 1)
	_, ok = c.Lookup(s.Process, 0x1800)
	require.True(t, ok)

	s, err = c.Look(6, nil)
	require.ErrorIs(t, err, ErrGone)
	require.Zero(t, s.Process)
	// Of a process that hangs, or that may not be read, it is known which one that is.
	fakeProc(t, root, 7, 888, "")
	maps := filepath.Join(root, "7", "maps")
	require.NoError(t, unix.Unlink(maps))
	require.NoError(t, unix.Mkfifo(maps, 0o600))
	s, err = c.Look(7, nil)
	require.ErrorIs(t, err, ErrStuck)
	require.Equal(t, Process{7, 888}, s.Process)
	writer, err := unix.Open(maps, unix.O_WRONLY, 0) // the read ends
	require.NoError(t, err)
	require.NoError(t, unix.Close(writer))
}

// A process can have more code than a snapshot has room for: the libraries that are probed are found in it all the same,
// so many of them.
func TestWantedMappingsAreInATruncatedSnapshot(t *testing.T) {
	root := t.TempDir()
	c := NewCache(Config{ProcFS: root})
	var text strings.Builder
	address := 0x1000
	add := func(path string) {
		fmt.Fprintf(&text, "%x-%x r-xp 0 00:01 7 %s\n", address, address+0x1000, path)
		address += 0x1000
	}
	long := strings.Repeat("x", 4000)
	for n := range maxSnapshotBytes/4000 + 10 {
		add(fmt.Sprint("/", n, long))
	}
	for n := range 2 * maxWanted {
		add(fmt.Sprintf("/libcuda%d.so%s", n, long))
	}
	fakeProc(t, root, 5, 777, text.String())
	count := func(want func(Mapping) bool) (n int) {
		s, err := c.Look(5, want)
		require.NoError(t, err)
		require.True(t, s.Truncated)
		for _, m := range s.Mappings {
			if strings.HasPrefix(m.Path, "/libcuda") {
				n++
			}
		}
		return n
	}
	require.Zero(t, count(nil))
	require.Equal(t, maxWanted, count(func(m Mapping) bool { return strings.HasPrefix(m.Path, "/libcuda") }))
}

// What is kept of a process is that of its program, as long as it runs.
func TestKeptSnapshots(t *testing.T) {
	root := t.TempDir()
	c := NewCache(Config{ProcFS: root})
	fakeProc(t, root, 5, 777, "1000-2000 r-xp 0 00:01 7 /a\n")
	require.Nil(t, c.Kept(5), "nothing is read")
	s, err := c.Snapshot(5)
	require.NoError(t, err)
	require.Same(t, s, c.Kept(5))
	c.Stale(5)
	require.Nil(t, c.Kept(5))
	s, err = c.Snapshot(5)
	require.NoError(t, err)
	require.Same(t, s, c.Kept(5))
	c.Exited(5)
	require.Nil(t, c.Kept(5))
}

// Which file is mapped is known without opening it, also of one that was removed, and differs once it is written to.
func TestIdentities(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("map_files needs root; the uid is not 0")
	}
	path := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(path, make([]byte, 4096), 0o600))
	file, err := os.Open(path)
	require.NoError(t, err)
	defer file.Close()
	page, err := unix.Mmap(int(file.Fd()), 0, 4096, unix.PROT_READ, unix.MAP_PRIVATE)
	require.NoError(t, err)
	defer func() { require.NoError(t, unix.Munmap(page)) }()
	c, self := NewCache(Config{}), uint32(os.Getpid())
	all, err := c.Read(self, func(m Mapping) bool { return m.Path == path })
	require.NoError(t, err)
	require.Len(t, all, 1)
	gone := Mapping{Start: 1 << 12, End: 2 << 12, Inode: all[0].Inode, Path: path}
	identity := func() string {
		t.Helper()
		found := c.Identities(self, []Mapping{gone, all[0]})
		require.Len(t, found, 2)
		require.Empty(t, found[0])
		opened, err := c.Open(self, all[0])
		require.NoError(t, err)
		defer opened.Close()
		require.Equal(t, opened.Identity(), found[1])
		return found[1]
	}
	before := identity()
	require.Equal(t, before, identity())
	require.NoError(t, os.WriteFile(path, make([]byte, 8192), 0o600))
	written := identity()
	require.NotEqual(t, before, written)
	require.NoError(t, os.Remove(path))
	require.NotEqual(t, written, identity(), "to remove it is a change of it")
	require.Equal(t, []string{""}, c.Identities(1<<30, all))
}
