// SPDX-License-Identifier: Apache-2.0

package symbols

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/gpu-gadgets/gpu-gadgets/internal/process/procmaps"
)

// forging are containers one of which, 11, says of its file what it wants to: one of FUSE, or one that is written to through a
// mapping.
type forging struct {
	*containers
	stat   unix.Stat_t
	opened func(path string)
}

func (f *forging) Open(pid uint32, m procmaps.Mapping) (*procmaps.File, error) {
	file, err := f.containers.Open(pid, m)
	if err == nil && pid == 11 {
		if f.stat.Ino == 0 {
			f.stat = file.Stat
		}
		file.Stat = f.stat
		f.opened(file.Name())
	}
	return file, err
}

func (f *forging) OpenIn(pid uint32, path string) (*procmaps.File, error) {
	file, err := f.containers.OpenIn(pid, path)
	if err == nil && pid == 11 {
		f.opened(path)
	}
	return file, err
}

// forger is a container with a copy of the library of another one, 12.
func forger(t *testing.T) *forging {
	real, mine := code(t, "matmul", "conv2d"), filepath.Join(t.TempDir(), "libx.so")
	install(t, real, mine)
	c := &containers{libraries: map[uint32]string{11: mine, 12: real}}
	c.roots = map[uint32]string{hostPID: t.TempDir(), 11: t.TempDir(), 12: t.TempDir()}
	return &forging{containers: c, opened: func(string) {}}
}

// A tenant shares the table of a library, has it dropped, and then changes its own file, which looks as before: its symbols
// are not the other one's.
func TestAFileIsComparedWhenItsTableIsMadeAgain(t *testing.T) {
	c := forger(t)
	r := NewResolver(c)
	drop := func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		for r.tables.used.Len() > 0 {
			r.tables.drop(r.tables.used.Back())
		}
	}
	require.Equal(t, "matmul", c.nameAt(t, r, 11, "matmul"))
	require.Equal(t, "matmul", c.nameAt(t, r, 12, "matmul"))
	require.Equal(t, 1, r.contents.made)
	drop()
	require.Equal(t, "matmul", c.nameAt(t, r, 11, "matmul"), "it is the same still")
	require.Equal(t, 1, r.contents.made)
	drop()
	forged := code(t, "stolen", "secret")
	write(t, c.libraries[11], forged)
	require.Equal(t, "secret", c.nameAt(t, r, 11, "secret"))
	require.Equal(t, "conv2d", c.nameAt(t, r, 12, "conv2d"))

	// The same while it is read.
	drop()
	r = NewResolver(c)
	write(t, c.libraries[11], c.libraries[12])
	require.Equal(t, "matmul", c.nameAt(t, r, 11, "matmul"))
	require.Equal(t, "matmul", c.nameAt(t, r, 12, "matmul"))
	drop()
	file, err := c.Open(11, c.mapping(11))
	require.NoError(t, err)
	defer file.Close()
	l, reader, _, err := open(file)
	require.NoError(t, err)
	w := r.plan(opened{l, reader, 11, c.libraries[11]}, functions)
	write(t, c.libraries[11], forged)
	w.do()
	require.NotNil(t, r.finish(w))
	require.Equal(t, "conv2d", c.nameAt(t, r, 12, "conv2d"))
}

// A tenant cuts its copy of a library after it was opened, or its file system gives no symbols of it: that the rest is as in the
// other one's file says nothing about that.
func TestAFileThatIsReadInPartNamesNoOthers(t *testing.T) {
	c := forger(t)
	c.opened = func(path string) { require.NoError(t, os.Truncate(path, 0x1000)) }
	r := NewResolver(c)
	require.Equal(t, "0x1109", r.Frame(11, 11, c.mapping(11).Start+0x1109, true).Function)
	require.Equal(t, "matmul", c.nameAt(t, r, 12, "matmul"))
}

// The same with the file that has the symbols that were stripped.
func TestADebugFileThatIsReadInPartNamesNoOthers(t *testing.T) {
	library, debug := stripped(t, "sha1")
	id := read(t, library).BuildID()
	byID := filepath.Join("usr/lib/debug/.build-id", id[:2], id[2:]+".debug")
	c := &forging{containers: &containers{libraries: map[uint32]string{11: filepath.Join(t.TempDir(), "libx.so"), 12: library}}}
	install(t, library, c.libraries[11])
	c.roots = map[uint32]string{hostPID: t.TempDir(), 11: t.TempDir(), 12: t.TempDir()}
	install(t, debug, c.roots[11], byID)
	install(t, debug, c.roots[12], byID)
	c.opened = func(path string) {
		if path != c.libraries[11] {
			require.NoError(t, os.Truncate(filepath.Join(c.roots[11], path), 0x400))
		}
	}
	at := uint64(0)
	all, err := read(t, debug).Functions(nil)
	require.NoError(t, err)
	for _, f := range all {
		if f.Name == "hidden" {
			at, _ = read(t, library).FileOffset(f.Address)
		}
	}
	r := NewResolver(c)
	name := func(pid uint32) string { return r.Frame(uint64(pid), pid, c.mapping(pid).Start+at, true).Function }
	require.NotEqual(t, "hidden", name(11))
	require.Equal(t, "hidden", name(12))
}
