// SPDX-License-Identifier: Apache-2.0

package module_test

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/internal/elf/module"
	"github.com/gpu-gadgets/gpu-gadgets/internal/elf/placement"
)

// realLibcuda is the library that test/support/fixtures/libcuda.sh unpacked.
func realLibcuda(t testing.TB) string {
	found, _ := filepath.Glob("../../../build/fixtures/libcuda/root/usr/lib/*/nvidia/current/libcuda.so.*.*")
	if len(found) == 0 {
		t.Skip("no build/fixtures/libcuda: run test/support/fixtures/libcuda.sh")
	}
	return found[0]
}

func open(t testing.TB, path string) *module.Module {
	t.Helper()
	f, err := os.Open(path)
	require.NoError(t, err)
	t.Cleanup(func() { f.Close() })
	st, err := f.Stat()
	require.NoError(t, err)
	m, err := module.Open(f, st.Size())
	require.NoError(t, err)
	return m
}

// cudaAPIs are the symbols of the table in bpf/cuda/apis.h.
func cudaAPIs(t testing.TB) []string {
	t.Helper()
	f, err := os.Open("../../../bpf/cuda/apis.h")
	require.NoError(t, err)
	defer f.Close()
	row := regexp.MustCompile(`^\s*X\((cu\w+), MEMORY_`)
	var out []string
	for s := bufio.NewScanner(f); s.Scan(); {
		if m := row.FindStringSubmatch(s.Text()); m != nil {
			out = append(out, m[1])
		}
	}
	require.Greater(t, len(out), 40)
	return out
}

func TestRealLibcudaIsProbedBehindItsComparison(t *testing.T) {
	path := realLibcuda(t)
	start := time.Now()
	m := open(t, path)
	apis := cudaAPIs(t)
	found, err := m.Lookup(apis)
	t.Logf("looked up in %v", time.Since(start))
	require.NoError(t, err)
	require.Contains(t, found, "cuMemAlloc_v2")
	require.Greater(t, len(found), len(apis)*9/10)
	for name, addr := range found {
		code, err := m.Code(addr, placement.Window)
		require.NoError(t, err)
		require.Equal(t, uint64(10), placement.Offset(m.Machine(), code), name)
	}
	require.Regexp(t, "^[0-9a-f]{40}$", m.BuildID())

	start = time.Now()
	fns, err := m.Functions(nil)
	t.Logf("%d functions in %v; %d of %d APIs", len(fns), time.Since(start), len(found), len(apis))
	require.NoError(t, err)
	require.True(t, slices.IsSortedFunc(fns, func(a, b module.Symbol) int {
		if a.Address < b.Address {
			return -1
		}
		return 0
	}))
	off, ok := m.FileOffset(found["cuMemAlloc_v2"])
	require.True(t, ok)
	addr, ok := m.Address(off)
	require.True(t, ok)
	require.Equal(t, found["cuMemAlloc_v2"], addr)
}

// buildLibrary compiles C source into a shared library.
func buildLibrary(t testing.TB, source string, flags ...string) string {
	t.Helper()
	dir := t.TempDir()
	c, so := filepath.Join(dir, "lib.c"), filepath.Join(dir, "libtest.so")
	require.NoError(t, os.WriteFile(c, []byte(source), 0o644))
	out, err := exec.Command("gcc", append([]string{"-shared", "-fPIC", "-o", so, c}, flags...)...).CombinedOutput()
	require.NoError(t, err, string(out))
	return so
}

func names(fns []module.Symbol) []string {
	var out []string
	for _, f := range fns {
		out = append(out, f.Name)
	}
	return out
}

const source = `
static __attribute__((noinline,used)) int hidden(int a) { return a + 1; }
int shown(int a) { return hidden(a) + 1; }
__attribute__((alias("shown"))) int alias(int a);
static int (*pick(void))(int) { return hidden; }
int indirect(int) __attribute__((ifunc("pick")));
`

func TestFunctions(t *testing.T) {
	for name, flags := range map[string][]string{
		"both hash tables": {"-Wl,--hash-style=both"},
		"DT_HASH":          {"-Wl,--hash-style=sysv"},
		"DT_GNU_HASH":      {"-Wl,--hash-style=gnu"},
	} {
		t.Run(name, func(t *testing.T) {
			so := buildLibrary(t, source, append(flags, "-Wl,--build-id=0x0123456789abcdef")...)
			m := open(t, so)
			require.Equal(t, "0123456789abcdef", m.BuildID())
			fns, err := m.Functions(nil)
			require.NoError(t, err)
			require.Subset(t, names(fns), []string{"hidden", "shown", "alias"})
			found, err := m.Lookup([]string{"shown", "alias", "indirect", "absent"})
			require.NoError(t, err)
			require.Len(t, found, 2, "IFUNC resolvers and absent symbols are left out")
			require.Equal(t, found["shown"], found["alias"])

			// Without sections only the dynamic segment leads to the symbols.
			b, err := os.ReadFile(so)
			require.NoError(t, err)
			clear(b[40:48]) // e_shoff
			clear(b[58:64]) // e_shentsize, e_shnum, e_shstrndx
			require.NoError(t, os.WriteFile(so+".nosections", b, 0o644))
			m = open(t, so+".nosections")
			got, err := m.Lookup([]string{"shown", "alias", "indirect", "absent"})
			require.NoError(t, err)
			require.Equal(t, found, got)
			fns, err = m.Functions(nil)
			require.NoError(t, err)
			require.Contains(t, names(fns), "shown")
			require.NotContains(t, names(fns), "hidden")
		})
	}
}

func TestDebugdataHasTheFunctionsThatStripTook(t *testing.T) {
	so := buildLibrary(t, source)
	dir := filepath.Dir(so)
	for _, args := range [][]string{
		{"objcopy", "--only-keep-debug", so, dir + "/mini"},
		{"xz", "-k", dir + "/mini"},
		{"strip", so},
		{"objcopy", "--add-section", ".gnu_debugdata=" + dir + "/mini.xz", so},
	} {
		out, err := exec.Command(args[0], args[1:]...).CombinedOutput()
		require.NoError(t, err, "%s: %s", strings.Join(args, " "), out)
	}
	fns, err := open(t, so).Functions(nil)
	require.NoError(t, err)
	require.Contains(t, names(fns), "hidden")
}

func TestLookupPrefersTheDefaultVersion(t *testing.T) {
	so := filepath.Join(t.TempDir(), "x")
	require.NoError(t, os.WriteFile(so+".map", []byte("V1 { global: f; };\nV2 { global: f; } V1;\n"), 0o644))
	so = buildLibrary(t, `
__asm__(".symver old,f@V1"); __asm__(".symver new,f@@V2");
int old(void) { return 1; } int new(void) { return 2; }`, "-Wl,--version-script="+so+".map", "-O1")
	m := open(t, so)
	found, err := m.Lookup([]string{"f", "new"})
	require.NoError(t, err)
	code, err := m.Code(found["f"], 5)
	require.NoError(t, err)
	require.Equal(t, []byte{0xb8, 2, 0, 0, 0}, code, "mov $2,%eax")
}

func BenchmarkLookupRealLibcuda(b *testing.B) {
	path, apis := realLibcuda(b), cudaAPIs(b)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := open(b, path).Lookup(apis); err != nil {
			b.Fatal(err)
		}
	}
}
