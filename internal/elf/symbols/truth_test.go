// SPDX-License-Identifier: Apache-2.0

package symbols

import (
	"cmp"
	"debug/elf"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/internal/process/procmaps"
)

// withRoot has the debug files of a directory, and what real processes have mapped.
type withRoot struct {
	*procmaps.Cache
	root string
}

func (w withRoot) OpenIn(_ uint32, path string) (*procmaps.File, error) {
	return procmaps.NewFile(procmaps.OpenInRoot(w.root, path))
}

// truth are the functions of a library that is not stripped, by the tables that debug/elf reads:
// the names of each address, mangled, and which of them are exported.
type truth struct {
	names    map[uint64]map[string]bool
	exported map[string]bool
	code     []*elf.Section
	loads    []elf.ProgHeader
}

func truthOf(t *testing.T, path string) truth {
	t.Helper()
	f, err := elf.Open(path)
	require.NoError(t, err)
	defer f.Close()
	all, err := f.Symbols()
	require.NoError(t, err)
	is := truth{names: map[uint64]map[string]bool{}, exported: map[string]bool{}}
	all = slices.DeleteFunc(all, func(s elf.Symbol) bool {
		return elf.ST_TYPE(s.Info) != elf.STT_FUNC || s.Section == elf.SHN_UNDEF
	})
	slices.SortFunc(all, func(a, b elf.Symbol) int { return cmp.Compare(a.Value, b.Value) })
	for i, s := range all {
		size := s.Size
		if size == 0 && i+1 < len(all) { // assembly: all functions are here, so it is the next one's begin
			size = all[i+1].Value - s.Value
		}
		for at := s.Value; at < s.Value+size; at++ {
			if is.names[at] == nil {
				is.names[at] = map[string]bool{}
			}
			is.names[at][s.Name] = true
		}
	}
	dynamic, err := f.DynamicSymbols()
	require.NoError(t, err)
	for _, s := range dynamic {
		if s.Section != elf.SHN_UNDEF {
			is.exported[s.Name] = true
		}
	}
	for _, s := range f.Sections {
		if s.Name == ".text" {
			is.code = append(is.code, s)
		}
	}
	for _, p := range f.Progs {
		if p.Type == elf.PT_LOAD && p.Flags&elf.PF_X != 0 {
			is.loads = append(is.loads, p.ProgHeader)
		}
	}
	return is
}

// TestEachByteOfCodeHasItsNameOrNone of libraries whose symbols are in the four places where they
// can be: the right name of an address, else the address.
func TestEachByteOfCodeHasItsNameOrNone(t *testing.T) {
	for language, c := range map[string]struct {
		build []string
		// demangled are names that must be met, as people write them; the others are compared as
		// mangled ones.
		exported, static []string
	}{
		"C++": {[]string{"g++", "-O2", "-shared", "-fPIC", "-Wl,--build-id=sha1", "testdata/truth.cpp", "-o"},
			[]string{"unsized", "exported", "serving::shown(long)", "serving::Pool<int>::take(int)"},
			[]string{"serving::(anonymous namespace)::hidden(int)", "plain(int)"}},
		"Rust": {[]string{"rustc", "-O", "-C", "link-arg=-Wl,--build-id=sha1", "-C", "strip=none", "testdata/truth.rs", "-o"},
			[]string{"exported"},
			[]string{"truth::serving::hidden", "<truth::serving::Pool as truth::serving::Take>::take"}},
	} {
		t.Run(language, func(t *testing.T) {
			if _, err := exec.LookPath(c.build[0]); err != nil {
				t.Skip(c.build[0] + " is not installed")
			}
			dir := t.TempDir()
			whole := filepath.Join(dir, "whole.so")
			command(t, c.build[0], append(c.build[1:], whole)...)
			is := truthOf(t, whole)
			for form, make := range forms {
				t.Run(form, func(t *testing.T) {
					library, root := filepath.Join(t.TempDir(), "library.so"), t.TempDir()
					make(t, whole, library, root)
					met, wrong, unnamed := look(t, is, library, root, form == "dynsym")
					t.Logf("%d names, %d addresses without", len(met), unnamed)
					assert.Zero(t, wrong)
					for _, name := range c.exported {
						assert.Contains(t, met, name)
					}
					for _, name := range c.static {
						if form == "dynsym" {
							assert.NotContains(t, met, name)
						} else {
							assert.Contains(t, met, name)
						}
					}
				})
			}
		})
	}
}

// forms make of a library one whose symbols are elsewhere; root is where debug files are.
var forms = map[string]func(t *testing.T, whole, library, root string){
	"symtab": func(t *testing.T, whole, library, _ string) { command(t, "cp", whole, library) },
	"dynsym": func(t *testing.T, whole, library, _ string) { command(t, "strip", "--strip-all", "-o", library, whole) },
	"gnu_debugdata": func(t *testing.T, whole, library, root string) {
		mini := filepath.Join(root, "mini")
		command(t, "objcopy", "--only-keep-debug", "--strip-debug", whole, mini)
		command(t, "xz", mini)
		command(t, "strip", "--strip-all", "-o", library, whole)
		command(t, "objcopy", "--add-section", ".gnu_debugdata="+mini+".xz", library)
	},
	"debug file by build id": func(t *testing.T, whole, library, root string) {
		id := read(t, whole).BuildID()
		debug := filepath.Join(root, "usr/lib/debug/.build-id", id[:2], id[2:]+".debug")
		require.NoError(t, os.MkdirAll(filepath.Dir(debug), 0o700))
		command(t, "objcopy", "--only-keep-debug", whole, debug)
		command(t, "strip", "--strip-all", "-o", library, whole)
	},
}

// look names each byte of the code of a library in a process that has it loaded.
func look(t *testing.T, is truth, library, root string, onlyExported bool) (met map[string]bool, wrong, unnamed int) {
	t.Helper()
	pid, _ := hold(t, library)
	mappings := procmaps.NewCache(procmaps.Config{})
	snapshot, err := mappings.Snapshot(pid)
	require.NoError(t, err)
	var code procmaps.Mapping
	for _, m := range snapshot.Mappings {
		if m.Path == library {
			code = m
		}
	}
	require.NotZero(t, code.Start)
	r := NewResolver(withRoot{mappings, root})
	r.spent.Burst = time.Hour // it names hundreds of thousands of addresses
	met = map[string]bool{}
	for _, s := range is.code {
		for at := s.Addr; at < s.Addr+min(s.Size, 64<<10); at++ {
			if at%7 != 0 && len(is.names[at]) == len(is.names[at-1]) && len(is.names[at]) == len(is.names[at+1]) {
				continue // within a function
			}
			off := at - is.loads[0].Vaddr + is.loads[0].Off
			f := r.Frame(1, pid, code.Start+off-code.Offset, true)
			if f.Function == fmt.Sprintf("%#x", at) {
				unnamed++
				for name := range is.names[at] {
					if !onlyExported || is.exported[name] {
						if wrong++; wrong < 5 {
							assert.Fail(t, "no name", "%#x is in %s", at, name)
						}
					}
				}
				continue
			}
			met[f.Function] = true
			if !named(is.names[at], f.Function) {
				if wrong++; wrong < 5 {
					assert.Fail(t, "wrong name", "%#x is in %v, not in %s", at, is.names[at], f.Function)
				}
			}
		}
	}
	return met, wrong, unnamed
}

// named reports whether a function is one of those, by its mangled name.
func named(names map[string]bool, function string) bool {
	for name := range names {
		if Demangle(name) == function {
			return !strings.HasPrefix(function, "_Z") && !strings.HasPrefix(function, "_R")
		}
	}
	return false
}
