// SPDX-License-Identifier: Apache-2.0

package symbols

import (
	"container/list"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/internal/elf/module"
	"github.com/gpu-gadgets/gpu-gadgets/internal/process/procmaps"
)

// containers are processes that each have a library of their own, and a root directory.
type containers struct {
	installed
	libraries map[uint32]string
}

func (c *containers) Find(pid uint32, _ uint64) (procmaps.Mapping, bool) {
	m := c.mapping(pid)
	m.Path = c.libraries[pid]
	return m, true
}

func (c *containers) FindSince(pid uint32, address uint64, _ time.Time) (procmaps.Mapping, bool, bool) {
	m, ok := c.Find(pid, address)
	return m, ok, true
}

func (c *containers) Open(pid uint32, _ procmaps.Mapping) (*procmaps.File, error) {
	return procmaps.NewFile(os.Open(c.libraries[pid]))
}

// Each process is a tenant.
func (*containers) Tenant(pid uint32) procmaps.Tenant { return procmaps.Tenant(pid) }

// code is a library of two functions, always of the same size and build id.
func code(t *testing.T, first, second string, flags ...string) string {
	t.Helper()
	dir := t.TempDir()
	source, library := filepath.Join(dir, "x.c"), filepath.Join(dir, "libx.so")
	require.NoError(t, os.WriteFile(source, []byte(
		"int "+first+"(int n) { return n * 7; }\nint "+second+"(int n) { return "+first+"(n) + 1; }\n"), 0o600))
	command(t, "gcc", append(flags, "-shared", "-fPIC", "-O1", "-fno-inline", "-Wl,--build-id=0xfedcba9876543210", "-o", library, source)...)
	return library
}

// nameAt is the name of a place of a library in the process that has it.
func (c *containers) nameAt(t *testing.T, r *Resolver, pid uint32, function string) string {
	t.Helper()
	file, err := procmaps.NewFile(os.Open(c.libraries[pid]))
	require.NoError(t, err)
	defer file.Close()
	return r.Frame(uint64(pid), pid, c.mapping(pid).Start+functionOf(t, file, function).offset, true).Function
}

// A tenant has a library with the build id and the size of another one's, whose functions it has named, and it is
// read first. Two containers that have the same library share its names.
func TestForgedBuildIDsNameNoOthers(t *testing.T) {
	forged, real := code(t, "stolen", "secret"), code(t, "matmul", "conv2d")
	again := filepath.Join(t.TempDir(), "libx.so")
	install(t, real, again)
	c := &containers{libraries: map[uint32]string{11: forged, 12: real, 13: again}}
	c.roots = map[uint32]string{hostPID: t.TempDir(), 11: t.TempDir(), 12: t.TempDir(), 13: t.TempDir()}
	require.Equal(t, read(t, forged).BuildID(), read(t, real).BuildID())
	r := NewResolver(c)
	require.Equal(t, "stolen", c.nameAt(t, r, 11, "stolen"))
	require.Equal(t, "matmul", c.nameAt(t, r, 12, "matmul"))
	require.Equal(t, "conv2d", c.nameAt(t, r, 13, "conv2d"))
	require.Equal(t, "secret", c.nameAt(t, r, 11, "secret"))
	require.Len(t, r.tables.byID, 2)
	require.Equal(t, 2, r.contents.made)
}

// What was read of a file is shared by the processes that have it, until it is written to.
func TestAFileIsParsedOnceForAllProcesses(t *testing.T) {
	library := code(t, "first", "second")
	c := &containers{libraries: map[uint32]string{11: library}}
	c.roots = map[uint32]string{hostPID: t.TempDir(), 11: t.TempDir()}
	r := NewResolver(c)
	m, _ := c.Find(11, 0)
	of := func(process uint64) *loaded {
		l, ok := r.modules.Get(moduleKey{process, m.Start, m.Inode})
		require.True(t, ok)
		return l.loaded
	}
	nameIn := func(process uint64, function string) string {
		file, err := procmaps.NewFile(os.Open(library))
		require.NoError(t, err)
		defer file.Close()
		return r.Frame(process, 11, m.Start+functionOf(t, file, function).offset, true).Function
	}
	require.Equal(t, "first", nameIn(1, "first"))
	require.Equal(t, "first", nameIn(2, "first"))
	require.Same(t, of(1), of(2))

	other, err := os.ReadFile(code(t, "third", "fourth"))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(library, other, 0o600)) // the same inode
	require.Equal(t, "third", nameIn(3, "third"))
	require.NotSame(t, of(1), of(3))
}

// The same library has other names with another debug file, which a container may choose.
func TestDebugFilesNameNoOthers(t *testing.T) {
	library, debug := stripped(t, "sha1")
	id := read(t, library).BuildID()
	byID := filepath.Join("usr/lib/debug/.build-id", id[:2], id[2:]+".debug")
	c := &containers{libraries: map[uint32]string{}}
	c.roots = map[uint32]string{hostPID: t.TempDir()}
	for pid := range uint32(4) {
		c.libraries[7+pid], c.roots[7+pid] = library, t.TempDir()
		own := filepath.Join(t.TempDir(), "libx.so")
		install(t, library, own)
		c.libraries[7+pid] = own
	}
	forged := filepath.Join(t.TempDir(), "forged.debug")
	command(t, "objcopy", "--redefine-sym", "hidden=stolen", debug, forged)
	install(t, forged, c.roots[7], byID)
	install(t, debug, c.roots[8], byID)
	install(t, debug, c.roots[9], byID) // process 10 has none
	r := NewResolver(c)
	hidden := uint64(0)
	all, err := read(t, debug).Functions(nil)
	require.NoError(t, err)
	for _, f := range all {
		if f.Name == "hidden" {
			hidden = f.Address
		}
	}
	offset, ok := read(t, library).FileOffset(hidden)
	require.True(t, ok)
	name := func(pid uint32) string {
		return r.Frame(uint64(pid), pid, c.mapping(pid).Start+offset, true).Function
	}
	require.Equal(t, "stolen", name(7))
	require.Equal(t, "hidden", name(8))
	require.Equal(t, "hidden", name(9))
	require.NotContains(t, []string{"stolen", "hidden"}, name(10))
	require.Len(t, r.tables.byID, 3)
}

// A tenant whose libraries have cost much has addresses for names, and others have names; it has names again once it
// has paid.
func TestReadingSymbolsIsBounded(t *testing.T) {
	c := &containers{libraries: map[uint32]string{11: code(t, "a", "b"), 12: code(t, "c", "d")}}
	c.roots = map[uint32]string{hostPID: t.TempDir(), 11: t.TempDir(), 12: t.TempDir()}
	r := NewResolver(c)
	r.spent.Take(11, 2*readBurst, time.Now())
	require.Regexp(t, "^0x[0-9a-f]+$", c.nameAt(t, r, 11, "a"))
	require.Equal(t, "c", c.nameAt(t, r, 12, "c"))
	require.Zero(t, r.spent.Pause(12, time.Now()))
	r.spent.Clear()
	r.now = func() time.Time { return time.Now().Add(lookAgain) }
	require.Equal(t, "a", c.nameAt(t, r, 11, "a"))
	require.Positive(t, r.spent.Len(), "it is counted")
}

// A tenant with large tables drops its own before those of others.
func TestTablesOfATenantDropItsOwn(t *testing.T) {
	large := func() *Table { return &Table{names: make([]byte, tableBytes/4)} }
	ts := tables{byID: map[string]*list.Element{}, used: list.New(), bytesOf: map[procmaps.Tenant]int{}}
	const hostile, honest = 1, 2
	ts.put("honest", large(), honest)
	for n := range 20 {
		ts.put(strconv.Itoa(n), large(), hostile)
		require.LessOrEqual(t, ts.bytes, tableBytes+large().Bytes())
	}
	require.NotNil(t, ts.get("honest"))
	require.Nil(t, ts.get("0"))
	require.NotNil(t, ts.get("19"))
	for n := range 20 {
		ts.put("h"+strconv.Itoa(n), large(), honest)
	}
	require.Positive(t, ts.bytesOf[honest])
	for ts.used.Len() > 0 {
		ts.drop(ts.used.Back())
	}
	require.Zero(t, ts.bytes)
	require.Empty(t, ts.bytesOf)
}

// What was read of a file is the same only where each byte is.
func TestEvidence(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	b := make([]byte, 3*replayed)
	for n := range b {
		b[n] = byte(n * 7)
	}
	write := func() *recorder {
		t.Helper()
		require.NoError(t, os.WriteFile(path, b, 0o600))
		file, err := procmaps.NewFile(os.Open(path))
		require.NoError(t, err)
		t.Cleanup(func() { file.Close() })
		return record(file)
	}
	r := write()
	buffer := make([]byte, 2*replayed)
	for _, at := range []int64{10, 1000, replayed / 2} {
		_, err := r.ReadAt(buffer[:at], at)
		require.NoError(t, err)
	}
	_, err := r.ReadAt(buffer, replayed)
	require.NoError(t, err)
	e, isAll := r.evidence()
	require.True(t, isAll)
	require.Len(t, e.spans, 3, "the last two are one")
	require.True(t, e.holds(write()))
	b[5]++ // not read
	require.True(t, e.holds(write()))
	for _, at := range []int{10, 19, 1000, 1999, replayed, len(b) - 1} {
		b[at]++
		require.False(t, e.holds(write()), at)
		b[at]--
	}
	b = append(b, 0)
	require.False(t, e.holds(write()))
	require.False(t, e.holds(nil))
	var none *evidence
	require.True(t, none.holds(nil))
	require.False(t, none.holds(write()))

	for at := range int64(maxSpans + 1) {
		_, err := r.ReadAt(buffer[:1], 3*at)
		require.NoError(t, err)
	}
	_, isAll = r.evidence()
	require.False(t, isAll)
	require.Nil(t, contentOf(r, nil).file)
}

// The symbols of large libraries are read from few places.
func TestReadingALibraryIsRecorded(t *testing.T) {
	for _, path := range []string{"/lib/x86_64-linux-gnu/libc.so.6", "/lib/x86_64-linux-gnu/libstdc++.so.6"} {
		file, err := procmaps.NewFile(os.Open(path))
		if err != nil {
			t.Skip(err)
		}
		defer file.Close()
		r := record(file)
		m, err := module.Open(r, r.size)
		require.NoError(t, err)
		readTable(m, nil, functions)
		e, isAll := r.evidence()
		require.True(t, isAll, "%d places", len(r.spans))
		t.Logf("%s: %d places", path, len(e.spans))
	}
}
