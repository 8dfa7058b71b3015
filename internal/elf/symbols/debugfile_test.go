// SPDX-License-Identifier: Apache-2.0

package symbols

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/internal/elf/module"
	"github.com/gpu-gadgets/gpu-gadgets/internal/process/procmaps"
)

// installed are processes whose roots are directories.
type installed struct {
	run
	roots map[uint32]string
}

func (p *installed) OpenIn(pid uint32, path string) (*procmaps.File, error) {
	return procmaps.NewFile(procmaps.OpenInRoot(p.roots[pid], path))
}

func command(t *testing.T, name string, args ...string) {
	t.Helper()
	out, err := exec.Command(name, args...).CombinedOutput()
	require.NoError(t, err, "%s", out)
}

// stripped makes a library whose static function has its name in a debug file alone.
func stripped(t *testing.T, link string) (library, debug string) {
	t.Helper()
	dir := t.TempDir()
	source, library, debug := filepath.Join(dir, "x.c"), filepath.Join(dir, "libx.so"), filepath.Join(dir, "libx.debug")
	require.NoError(t, os.WriteFile(source, []byte(
		"static __attribute__((noinline)) int hidden(int n) { return n * 7; }\nint shown(int n) { return hidden(n) + 1; }\n"), 0o600))
	command(t, "gcc", "-shared", "-fPIC", "-O1", "-Wl,--build-id="+link, "-o", library, source)
	command(t, "objcopy", "--only-keep-debug", library, debug)
	command(t, "strip", library)
	command(t, "objcopy", "--add-gnu-debuglink="+debug, library)
	return library, debug
}

func read(t *testing.T, path string) *module.Module {
	t.Helper()
	file, err := os.Open(path)
	require.NoError(t, err)
	t.Cleanup(func() { file.Close() })
	info, err := file.Stat()
	require.NoError(t, err)
	m, err := module.Open(file, info.Size())
	require.NoError(t, err)
	return m
}

func install(t *testing.T, file string, at ...string) {
	t.Helper()
	to := filepath.Join(at...)
	require.NoError(t, os.MkdirAll(filepath.Dir(to), 0o700))
	b, err := os.ReadFile(file)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(to, b, 0o600))
}

func TestFunctionsOfAStrippedLibraryAreInItsDebugFile(t *testing.T) {
	const container, host = 7, hostPID
	library, debug := stripped(t, "sha1")
	_, other := stripped(t, "0x1234567890")
	id := read(t, library).BuildID()
	byID := filepath.Join("usr/lib/debug/.build-id", id[:2], id[2:]+".debug")
	for _, c := range []struct {
		name  string
		put   func(container, host string)
		found bool
	}{
		{"none", func(string, string) {}, false},
		{"by build id in the container", func(c, _ string) { install(t, debug, c, byID) }, true},
		{"by build id on the host", func(_, h string) { install(t, debug, h, byID) }, true},
		{"by its link beside it", func(c, _ string) { install(t, debug, c, "opt/lib/libx.debug") }, true},
		{"by its link in .debug", func(c, _ string) { install(t, debug, c, "opt/lib/.debug/libx.debug") }, true},
		{"by its link below the root", func(c, _ string) { install(t, debug, c, "usr/lib/debug/opt/lib/libx.debug") }, true},
		{"a link is not the host's", func(_, h string) { install(t, debug, h, "opt/lib/libx.debug") }, false},
		{"another build", func(c, _ string) { install(t, other, c, byID); install(t, other, c, "opt/lib/libx.debug") }, false},
		{"no ELF file", func(c, _ string) { install(t, "debugfile_test.go", c, byID) }, false},
		{"another build before the right one", func(c, h string) { install(t, other, h, byID); install(t, debug, c, byID) }, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := &installed{roots: map[uint32]string{container: t.TempDir(), host: t.TempDir()}}
			c.put(p.roots[container], p.roots[host])
			m := read(t, library)
			found := NewResolver(p).debugFile(container, "/opt/lib/libx.so", m)
			defer found.close()
			table := readTable(m, found.module, functions)
			symbols, err := read(t, debug).Functions(nil)
			require.NoError(t, err)
			for _, f := range symbols {
				if f.Name == "hidden" {
					name, ok := table.Lookup(f.Address)
					require.Equal(t, c.found, ok && name == "hidden", name)
				}
				if f.Name == "shown" {
					name, _ := table.Lookup(f.Address)
					require.Equal(t, "shown", name)
				}
			}
		})
	}
}

// TestADebugFileWithoutBuildIDIsFoundByItsChecksum, and not one with another.
func TestADebugFileWithoutBuildIDIsFoundByItsChecksum(t *testing.T) {
	library, debug := stripped(t, "none")
	p := &installed{roots: map[uint32]string{7: t.TempDir(), hostPID: t.TempDir()}}
	install(t, debug, p.roots[7], "opt/lib/libx.debug")
	m := read(t, library)
	require.Empty(t, m.BuildID())
	r := NewResolver(p)
	found := r.debugFile(7, "/opt/lib/libx.so", m)
	require.NotNil(t, found.module)
	found.close()
	file, err := os.OpenFile(filepath.Join(p.roots[7], "opt/lib/libx.debug"), os.O_APPEND|os.O_WRONLY, 0)
	require.NoError(t, err)
	_, err = file.WriteString("x")
	require.NoError(t, err)
	require.NoError(t, file.Close())
	require.Nil(t, r.debugFile(7, "/opt/lib/libx.so", m).module)
	// The library itself has its symbols: no file is searched for.
	whole := filepath.Join(t.TempDir(), "whole.so")
	command(t, "gcc", "-shared", "-fPIC", "-o", whole, filepath.Join(filepath.Dir(library), "x.c"))
	require.True(t, read(t, whole).HasStatic())
	require.False(t, m.HasStatic())
}
