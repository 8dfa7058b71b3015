// SPDX-License-Identifier: Apache-2.0

package bpftest

import (
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// program writes a source that includes a header, and the header.
func program(t *testing.T, dir, header string) (source string) {
	t.Helper()
	source = filepath.Join(dir, "x.bpf.c")
	require.NoError(t, os.WriteFile(source, []byte("#include \"x.h\"\nint y = X;\n"), 0o644))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "x.h"), []byte(header), 0o644))
	return source
}

func TestAnObjectIsCompiledOnce(t *testing.T) {
	source := program(t, t.TempDir(), "#define X 1\n")
	var objects [4]string
	var all sync.WaitGroup
	for i := range objects {
		all.Go(func() { objects[i] = Compile(t, source) })
	}
	all.Wait()
	first, err := os.Stat(objects[0])
	require.NoError(t, err)
	for _, object := range objects {
		require.Equal(t, objects[0], object)
	}
	// A second compilation would put another file in its place.
	again, err := os.Stat(Compile(t, source))
	require.NoError(t, err)
	require.True(t, os.SameFile(first, again))
}

func TestAChangeRecompiles(t *testing.T) {
	dir := t.TempDir()
	source := program(t, dir, "#define X 1\n")
	first := Compile(t, source)
	require.NotEqual(t, first, Compile(t, source, "-DZ"), "other flags")
	program(t, dir, "#define X 2\n")
	second := Compile(t, source)
	require.NotEqual(t, first, second, "another header")
	program(t, dir, "#define X 1\n")
	require.Equal(t, first, Compile(t, source), "the first header again")
}

func TestObjectsThatNothingUsesAreRemoved(t *testing.T) {
	dir := t.TempDir()
	old, kept := filepath.Join(dir, "old.o"), filepath.Join(dir, "kept.o")
	now := time.Now()
	for path, at := range map[string]time.Time{old: now.Add(-2 * unused), kept: now} {
		require.NoError(t, os.WriteFile(path, nil, 0o644))
		require.NoError(t, os.Chtimes(path, at, at))
	}
	removeUnused(dir, now.Add(-unused))
	require.NoFileExists(t, old)
	require.FileExists(t, kept)
}
