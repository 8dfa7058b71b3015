// SPDX-License-Identifier: Apache-2.0

package symbols

import (
	"bufio"
	"debug/elf"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/internal/process/procmaps"
)

// TestVariablesOfAPointersSizeHaveNames, wherever the linker puts data beside the code, and none has that
// of another one.
func TestVariablesOfAPointersSizeHaveNames(t *testing.T) {
	exported := map[string]string{
		"plain": "plain", "_ZN2ns4gemmIfEEvPT_": "void ns::gemm<float>(float*)",
		"_ZN2ns4gemmIdEEvPT_": "void ns::gemm<double>(double*)", "writable": "writable",
	}
	static := map[string]string{"_Z6hiddenv": "hidden()", "_ZN12_GLOBAL__N_15localEi": "(anonymous namespace)::local(int)"}
	for layout, flags := range map[string][]string{
		"library":             {"-shared", "-fPIC", "-Wl,--build-id=sha1"},
		"without a build id":  {"-shared", "-fPIC", "-Wl,--build-id=none"},
		"one segment":         {"-shared", "-fPIC", "-Wl,--build-id=sha1", "-Wl,-z,noseparate-code"},
		"data below the code": {"-shared", "-fPIC", "-Wl,--build-id=sha1", "-Wl,-z,norelro", "-Wl,-Ttext-segment=0x400000", "-Wl,--section-start=.data.rel.ro=0x100000"},
	} {
		for form, make := range forms {
			if form == "gnu_debugdata" || layout == "without a build id" && form == "debug file by build id" {
				continue // it has functions only; it is found by that
			}
			t.Run(layout+", "+form, func(t *testing.T) {
				dir, root := t.TempDir(), t.TempDir()
				whole, library := filepath.Join(dir, "whole.so"), filepath.Join(dir, "library.so")
				command(t, "gcc", append(flags, "-O2", "testdata/handles.c", "-o", whole)...)
				make(t, whole, library, root)
				pid, begin := hold(t, library)
				mappings := withRoot{procmaps.NewCache(procmaps.Config{}), root}
				r := NewResolver(mappings)
				variable := func(at uint64) string {
					_ = r.Frame(1, pid, at, true)
					name, _ := r.Variable(1, pid, at)
					return name
				}
				met := map[string]string{}
				for _, s := range all(t, whole) {
					if s.Section == elf.SHN_UNDEF || s.Section >= elf.SHN_LORESERVE || s.Value == 0 {
						continue
					}
					name := variable(begin + s.Value)
					if name == "" {
						require.NotContains(t, exported, s.Name)
						continue
					}
					require.EqualValues(t, 8, s.Size, s.Name)
					met[s.Name] = name
				}
				for name, want := range exported {
					require.Equal(t, want, met[name], name)
				}
				for name, want := range static {
					if form == "dynsym" {
						require.Empty(t, met[name], name)
					} else {
						require.Equal(t, want, met[name], name)
					}
				}
				require.Empty(t, met["zero"], "it has no bytes in the file")
				require.Empty(t, variable(begin-0x1000))
				require.Empty(t, variable(begin+1<<30))
				require.Empty(t, variable(^uint64(0)))
			})
		}
	}
}

func all(t *testing.T, path string) []elf.Symbol {
	t.Helper()
	f, err := elf.Open(path)
	require.NoError(t, err)
	defer f.Close()
	symbols, err := f.Symbols()
	require.NoError(t, err)
	return symbols
}

// hold has a library loaded, at an address that is returned, until the test ends.
func hold(t *testing.T, library string) (pid uint32, begin uint64) {
	t.Helper()
	holder := filepath.Join(t.TempDir(), "holder")
	command(t, "gcc", "-o", holder, "testdata/holder.c", "-ldl")
	cmd := exec.Command(holder, library)
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { in.Close(); _ = cmd.Wait() })
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, "loaded\n", line)

	pid = uint32(cmd.Process.Pid)
	mapped, err := procmaps.NewCache(procmaps.Config{}).Read(pid, func(m procmaps.Mapping) bool { return strings.HasSuffix(m.Path, library) })
	require.NoError(t, err)
	require.NotEmpty(t, mapped)
	f, err := elf.Open(library)
	require.NoError(t, err)
	defer f.Close()
	for _, p := range f.Progs {
		if p.Type == elf.PT_LOAD { // the lowest: with a fixed place in the file's numbering
			return pid, mapped[0].Start - p.Vaddr&^0xfff
		}
	}
	require.Fail(t, "no segment")
	return 0, 0
}
