// SPDX-License-Identifier: Apache-2.0

package bpftest

import (
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/internal/elf/compiled"
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

func TestTheBuildsObjectIsUsed(t *testing.T) {
	root := t.TempDir()
	from := compiled.Source{Compiler: Compiler, Path: program(t, root, "#define X 1\n")}
	object := filepath.Join(root, "build", "bpf", "x", "amd64.bpf.o")
	require.NoError(t, os.MkdirAll(filepath.Dir(object), 0o755))
	require.NoError(t, os.WriteFile(object, nil, 0o644))
	require.NoError(t, from.Identify(object))
	found, err := built(from, root, "amd64")
	require.NoError(t, err)
	require.Equal(t, object, found)

	program(t, root, "#define X 2\n")
	found, err = built(from, root, "amd64")
	require.NoError(t, err)
	require.Empty(t, found, "it was compiled from another header")
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
