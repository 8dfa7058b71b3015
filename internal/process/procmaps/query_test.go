// SPDX-License-Identifier: Apache-2.0

package procmaps

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// code returns the executable mappings of this process as a snapshot has them, with queries, and from the text.
func code(t *testing.T) (queried, read []Mapping) {
	t.Helper()
	c := NewCache(Config{})
	s, err := c.Look(uint32(os.Getpid()), nil)
	require.NoError(t, err)
	var name unix.Utsname
	require.NoError(t, unix.Uname(&name))
	var major, minor int
	_, err = fmt.Sscanf(unix.ByteSliceToString(name.Release[:]), "%d.%d", &major, &minor)
	require.NoError(t, err)
	if major < 6 || major == 6 && minor < 11 {
		require.True(t, c.noQueries.Load())
		t.Skip("the kernel is older than Linux 6.11: it answers no queries")
	}
	require.False(t, c.noQueries.Load(), "the kernel answers them")
	require.Greater(t, s.Cost(), Cost(s.lines), "the time of queries is a part of it")
	read, err = c.Read(uint32(os.Getpid()), func(m Mapping) bool { return m.Perms&Exec != 0 })
	require.NoError(t, err)
	isVsyscall := func(m Mapping) bool { return m.Path == "[vsyscall]" } // the process has none itself: only in the text
	return slices.DeleteFunc(s.Mappings, isVsyscall), slices.DeleteFunc(read, isVsyscall)
}

// mapCode maps a page of a new file as code.
func mapCode(t *testing.T, dir int, name string) {
	t.Helper()
	fd, err := unix.Openat(dir, name, unix.O_CREAT|unix.O_RDWR|unix.O_CLOEXEC, 0o755)
	require.NoError(t, err)
	defer unix.Close(fd)
	require.NoError(t, unix.Ftruncate(fd, 8192))
	b, err := unix.Mmap(fd, 4096, 4096, unix.PROT_READ|unix.PROT_EXEC, unix.MAP_SHARED)
	require.NoError(t, err)
	t.Cleanup(func() { _ = unix.Munmap(b) })
}

// A query answers what the text has, whatever files are called.
func TestQueriesAnswerWhatTheTextSays(t *testing.T) {
	dir := t.TempDir()
	fd, err := unix.Open(dir, unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	require.NoError(t, err)
	defer unix.Close(fd)
	names := []string{"plain", "of two\nlines", "a file (deleted)", "gone", "a gone\none"}
	for _, name := range names {
		mapCode(t, fd, name)
		if strings.Contains(name, "gone") {
			require.NoError(t, os.Remove(filepath.Join(dir, name)))
		}
	}
	anonymous, err := unix.Mmap(-1, 0, 4096, unix.PROT_READ|unix.PROT_WRITE|unix.PROT_EXEC, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	require.NoError(t, err)
	defer func() { require.NoError(t, unix.Munmap(anonymous)) }()

	queried, read := code(t)
	require.Equal(t, read, queried)
	for _, name := range names {
		path := filepath.Join(dir, strings.TrimSuffix(name, " (deleted)"))
		require.True(t, slices.ContainsFunc(queried, func(m Mapping) bool { return m.Path == path && m.Offset == 4096 }), name)
	}
}

// A path that is too long for an answer is in the text.
func TestAPathTooLongForAQueryIsRead(t *testing.T) {
	dir, err := unix.Open(t.TempDir(), unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	require.NoError(t, err)
	const depth = 20
	part := strings.Repeat("x", 255)
	for range depth {
		require.NoError(t, unix.Mkdirat(dir, part, 0o755))
		next, err := unix.Openat(dir, part, unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		require.NoError(t, err)
		unix.Close(dir)
		dir = next
	}
	defer unix.Close(dir)
	mapCode(t, dir, "deep")
	queried, read := code(t)
	require.Equal(t, read, queried)
	require.True(t, slices.ContainsFunc(queried, func(m Mapping) bool { return strings.HasSuffix(m.Path, strings.Repeat("/"+part, depth)+"/deep") }))
}
