// SPDX-License-Identifier: Apache-2.0

package compiled

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// compiler is a program that prints its arguments, except for the names of directories.
func compiler(t *testing.T, version string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "clang")
	script := "#!/bin/sh\nif [ \"$1\" = --version ]; then echo " + version + "; exit; fi\nfor last; do :; done\ncat \"$last\"\n"
	require.NoError(t, os.WriteFile(path, []byte(script), 0o755))
	return path
}

func TestSumIsOfTextFlagsAndCompiler(t *testing.T) {
	write := func(text string) string {
		path := filepath.Join(t.TempDir(), "program.bpf.c")
		require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
		return path
	}
	sum := func(s Source) string {
		text, err := s.Sum()
		require.NoError(t, err)
		return text
	}
	one := Source{Compiler: compiler(t, "19"), Path: write("int x;"), Include: []string{"a"}, Flags: []string{"-mcpu=v3"}}
	moved := one
	moved.Path, moved.Include = write("int x;"), []string{"b"}
	require.Equal(t, sum(one), sum(moved))

	for name, change := range map[string]func(*Source){
		"text":     func(s *Source) { s.Path = write("int y;") },
		"flags":    func(s *Source) { s.Flags = []string{"-mcpu=v2"} },
		"compiler": func(s *Source) { s.Compiler = compiler(t, "20") },
	} {
		other := one
		change(&other)
		require.NotEqual(t, sum(one), sum(other), name)
	}

	one.Path = filepath.Join(t.TempDir(), "missing.c")
	_, err := one.Sum()
	require.ErrorContains(t, err, "missing.c")
}

func TestAnObjectMatchesItsSumOnly(t *testing.T) {
	object := filepath.Join(t.TempDir(), "amd64.bpf.o")
	require.NoError(t, os.WriteFile(object, []byte("text"), 0o644))
	source := Source{Compiler: compiler(t, "19"), Path: object}
	sum, err := source.Sum()
	require.NoError(t, err)
	require.False(t, Matches(object, sum), "no file")
	require.NoError(t, source.Identify(object))
	require.True(t, Matches(object, sum))
	require.False(t, Matches(object, "2"))
	require.NoError(t, Remove(object))
	require.NoFileExists(t, object)
	require.False(t, Matches(object, sum))
}
