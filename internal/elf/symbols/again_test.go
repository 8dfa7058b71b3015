// SPDX-License-Identifier: Apache-2.0

package symbols

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/internal/process/procmaps"
	"github.com/gpu-gadgets/gpu-gadgets/internal/stack/library"
)

// clocked are the stacks of a process that are read by a clock of their own.
func clocked(r *Resolver, native ...uint64) (s *Stacks, at *time.Time) {
	s = NewStacks(r, &fakeMaps{stacks: map[uint64][]byte{9: wireStack(native)}}, library.Paths{})
	now := time.Now()
	r.now = func() time.Time { return now }
	return s, &now
}

// A tenant whose allowance was spent when its stack was first read: the row is read each second.
func TestStacksHaveNamesOnceTheirTenantHasPaid(t *testing.T) {
	c := &containers{libraries: map[uint32]string{11: code(t, "a", "b")}}
	c.roots = map[uint32]string{hostPID: t.TempDir(), 11: t.TempDir()}
	file, err := procmaps.NewFile(os.Open(c.libraries[11]))
	require.NoError(t, err)
	defer file.Close()
	r := NewResolver(c)
	s, at := clocked(r, c.mapping(11).Start+functionOf(t, file, "a").offset)

	r.spent.Take(11, 2*readBurst, time.Now())
	first := s.Stack(1, 11, 9)
	require.Regexp(t, `^0x[0-9a-f]+ \(libx.so\)$`, first.Folded)
	*at = at.Add(lookAgain)
	require.Same(t, first, s.Stack(1, 11, 9), "it is still spent")
	r.spent.Clear()
	*at = at.Add(lookAgain - time.Second)
	require.Same(t, first, s.Stack(1, 11, 9), "it was named again a moment ago")
	*at = at.Add(time.Second)
	require.Equal(t, "a (libx.so)", s.Stack(1, 11, 9).Folded)
	require.NotEqual(t, first.Version, s.Stack(1, 11, 9).Version)
	require.NotZero(t, first.Version, "before it was read at all it was [unknown]")
}

// The mappings of a process were not read, and then a file of it could not be opened.
func TestStacksAreNamedAgainUntilThatIsFinal(t *testing.T) {
	p := &fakeProcess{spent: true, hangs: true}
	s, at := clocked(NewResolver(p), 0x1100, 0x1200, 0xdead0001)
	second := func() string {
		*at = at.Add(time.Second)
		return s.Stack(1, 1, 9).Folded
	}
	for range 20 {
		require.Equal(t, "0xdead0001; 0x1200; 0x1100", second())
	}
	require.Equal(t, 4*3, p.found, "three frames, every five seconds")
	p.spent = false
	for range 20 {
		second()
	}
	require.Equal(t, "0xdead0001; 0x200 (libcuda.so.1); 0x100 (libcuda.so.1)", second())
	require.Equal(t, 5, p.opened, "once for both frames")
	p.hangs = false
	for range 5 {
		second()
	}
	require.Equal(t, 6, p.opened)

	// There is no more to know: no frame has a symbol.
	found := p.found
	for range 100 {
		require.Equal(t, "0xdead0001; 0x200 (libcuda.so.1); 0x100 (libcuda.so.1)", second())
	}
	require.Equal(t, found, p.found)
	require.Equal(t, 6, p.opened)
}

// A tenant has thousands of stacks without names: to name them again takes a fiftieth of the time.
func TestNamingAgainIsBounded(t *testing.T) {
	p := &fakeProcess{spent: true}
	s, at := clocked(NewResolver(p))
	native := make([]uint64, 40)
	for i := range native {
		native[i] = 0xdead0000 + uint64(i)
	}
	const stacks = uint64(1000)
	maps := map[uint64][]byte{}
	for id := range stacks {
		maps[9+id] = wireStack(native)
	}
	s.maps = &fakeMaps{stacks: maps}
	row := func() {
		for id := range stacks {
			s.Stack(1, 1, 9+id)
		}
	}
	row()
	p.found = 0
	const minute = 60
	for range minute {
		*at = at.Add(time.Second)
		row()
	}
	took := time.Duration(p.found) * frameCost
	require.Positive(t, took)
	require.LessOrEqual(t, took, lookBurst+minute*time.Second/lookShare+lookAgain/lookShare)
}

// fakeProc is a process 5 whose mappings may be changed.
func fakeProc(t *testing.T) (mappings *procmaps.Cache, setMaps func(string)) {
	root := t.TempDir()
	write := func(name, text string) {
		require.NoError(t, os.WriteFile(filepath.Join(root, "5", name), []byte(text), 0o600))
	}
	require.NoError(t, os.Mkdir(filepath.Join(root, "5"), 0o755))
	write("stat", "5 (a) S 1 "+strings.Repeat("0 ", 17)+"777 0\n")
	return procmaps.NewCache(procmaps.Config{ProcFS: root, MinRefresh: time.Hour}), func(text string) { write("maps", text) }
}

// A library is unmapped and another one is mapped at its address: a stack that was named before the mappings were read again is
// named once more.
func TestStacksAreNamedAgainWhereAnotherLibraryIs(t *testing.T) {
	mappings, setMaps := fakeProc(t)
	read := func() {
		_, err := mappings.Snapshot(5)
		require.NoError(t, err)
	}
	setMaps("1000-2000 r-xp 0 00:01 7 /old.so\n")
	read()
	s, at := clocked(NewResolver(mappings), 0x1800)

	setMaps("1000-2000 r-xp 0 00:01 8 /new.so\n")
	mappings.Changed(5)
	require.Equal(t, "0x800 (old.so)", s.Stack(1, 5, 9).Folded)
	read()
	*at = at.Add(lookAgain)
	named := s.Stack(1, 5, 9)
	require.Equal(t, "0x800 (new.so)", named.Folded)
	setMaps("1000-2000 r-xp 0 00:01 9 /newest.so\n")
	read()
	*at = at.Add(lookAgain)
	require.Same(t, named, s.Stack(1, 5, 9), "it is of before")
}

// An interpreter that is loaded late is not in the mappings that were read last.
func TestAnInterpreterThatIsLoadedLate(t *testing.T) {
	mappings, setMaps := fakeProc(t)
	const before = "1000-2000 r-xp 0 00:01 7 /libcuda.so.1\n"
	setMaps(before)
	_, err := mappings.Snapshot(5)
	require.NoError(t, err)
	setMaps(before + "5000-6000 r-xp 0 00:01 8 /opt/embedded\n")
	s, at := clocked(NewResolver(mappings))
	s.maps = &fakeMaps{
		runtime: 0x7000,
		stacks:  map[uint64][]byte{9: wireStack([]uint64{0x1100, 0x5100}, [2]uint64{1, 3})},
		symbols: map[uint64][]byte{1: wireSymbol("Model.load", "/app/model.py")},
	}
	s.Stack(1, 5, 9)
	_, err = mappings.Snapshot(5)
	require.NoError(t, err)
	*at = at.Add(lookAgain)
	require.Equal(t, "Model.load (model.py:3); <interpreter trampoline>; 0x100 (libcuda.so.1)", s.Stack(1, 5, 9).Folded)
}

// What was read of a file before its file system stopped to answer is not its table.
func TestTableOfAFileThatHangsIsNotKept(t *testing.T) {
	c := &containers{libraries: map[uint32]string{11: code(t, "a", "b")}}
	c.roots = map[uint32]string{hostPID: t.TempDir(), 11: t.TempDir()}
	file, err := c.Open(11, c.mapping(11))
	require.NoError(t, err)
	defer file.Close()
	l, reader, _, err := open(file)
	require.NoError(t, err)
	r := NewResolver(c)
	w := r.plan(opened{l, reader, 11, c.libraries[11]}, functions)
	w.do()
	for _, of := range []*recorder{reader, record(file)} {
		reader.hung, of.hung, w.debug.reader = false, true, of
		require.Nil(t, r.finish(w))
		require.Zero(t, r.tables.used.Len())
	}
	require.Equal(t, "a", c.nameAt(t, r, 11, "a"))
}
