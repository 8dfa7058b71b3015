// SPDX-License-Identifier: Apache-2.0

// Package real tests the table of HIP's functions, and the simulated library, against
// the real library of Debian. No GPU is needed.
package real

import (
	"debug/elf"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/examples/simcuda/journal"
	"github.com/gpu-gadgets/gpu-gadgets/test/support/simulated"
)

const (
	memory   = "apis.h"
	launches = "launch_apis.h"
)

// table returns the symbols of a table in bpf/hip.
func table(t *testing.T, name string) (symbols []string) {
	t.Helper()
	text, err := os.ReadFile("../../../bpf/hip/" + name)
	require.NoError(t, err)
	for _, m := range regexp.MustCompile(`X\((hip\w+), (?:MEMORY|CALL)_`).FindAllSubmatch(text, -1) {
		symbols = append(symbols, string(m[1]))
	}
	require.Greater(t, len(symbols), 30)
	return symbols
}

func both(t *testing.T) []string {
	t.Helper()
	return append(table(t, memory), table(t, launches)...)
}

// realLibrary is the library that test/support/fixtures/libamdhip.sh unpacked.
func realLibrary(t *testing.T) string {
	t.Helper()
	found, _ := filepath.Glob("../../../build/fixtures/libamdhip/root/usr/lib/*/libamdhip64.so.*.*")
	if len(found) == 0 {
		t.Skip("no build/fixtures/libamdhip: run test/support/fixtures/libamdhip.sh")
	}
	return found[0]
}

func simulatedLibrary(t *testing.T) string {
	t.Helper()
	if runtime.GOARCH != "amd64" {
		t.Skip("HIP is for x86-64")
	}
	return filepath.Join(simulated.Build(t, "simhip"), "libamdhip64.so.6")
}

// functions returns the code of each exported function.
func functions(t *testing.T, path string) map[string][]byte {
	t.Helper()
	f, err := elf.Open(path)
	require.NoError(t, err)
	defer f.Close()
	symbols, err := f.DynamicSymbols()
	require.NoError(t, err)
	all := map[string][]byte{}
	for _, s := range symbols {
		if elf.ST_TYPE(s.Info) != elf.STT_FUNC || s.Section == elf.SHN_UNDEF {
			continue
		}
		section := f.Sections[s.Section]
		code := make([]byte, s.Size)
		_, err := section.ReadAt(code, int64(s.Value-section.Addr))
		require.NoError(t, err, s.Name)
		all[s.Name] = code
	}
	return all
}

// later are functions of the table that came after this version of the library.
var later = []string{"hipMemcpyBatchAsync", "hipLaunchKernelExC", "hipDrvLaunchKernelEx",
	"hipMemPrefetchAsync_v2", "hipMemsetD2D8", "hipMemsetD2D8Async", "hipMemsetD2D16", "hipMemsetD2D16Async", "hipMemsetD2D32",
	"hipMemsetD2D32Async", "hipModuleLoadFatBinary", "hipLibraryLoadData", "hipLibraryLoadFromFile", "hipLibraryUnload",
	"hipLibraryGetKernel"}

func TestTheRealLibraryHasAllFunctionsOfTheTable(t *testing.T) {
	exports := functions(t, realLibrary(t))
	for _, symbol := range append(both(t), "__hipRegisterFunction") {
		if slices.Contains(later, symbol) {
			require.NotContains(t, exports, symbol)
		} else {
			require.Contains(t, exports, symbol)
		}
	}
}

// about are names of functions that allocate or free, or sound like it.
var about = regexp.MustCompile(`Malloc|Alloc|Free|Array(3D)?Create|ArrayDestroy|MemCreate|MemRelease|Import|MemHandle$|` +
	`Reset|PoolDestroy|TrimTo|MemTrim|MappedBuffer|DestroyExternalMemory|hipHost(Unr|R)egister|RegisterManagedVar|MapArray|AddressReserve`)

// queries sound like it and do neither.
var queries = regexp.MustCompile(`Get|SetParams|Export|^hipIpcGet|Semaphore`)

// Others than those of the table are in the documentation, with the reason.
func TestFunctionsThatAreNotProbedAreDocumented(t *testing.T) {
	text, err := os.ReadFile("../../../docs/reference/amd.md")
	require.NoError(t, err)
	_, page, ok := strings.Cut(string(text), "## What is not probed")
	require.True(t, ok)
	probed, found := table(t, memory), 0
	for symbol := range functions(t, realLibrary(t)) {
		if !about.MatchString(symbol) || queries.MatchString(symbol) {
			continue
		}
		found++
		if slices.Contains(probed, symbol) {
			require.NotContains(t, page, "`"+symbol+"`")
		} else {
			require.Contains(t, page, "`"+symbol+"`")
		}
	}
	require.Greater(t, found, len(probed)-12, "the pattern is too narrow")
}

// A function begins with endbr64 and ends with a jump through the table, in both: a probe at its
// entry costs the same, and sees each call once.
func TestSimulatedFunctionsHaveTheRealShape(t *testing.T) {
	begin, end := []byte{0xf3, 0x0f, 0x1e, 0xfa}, []byte{0xff, 0xe0} // endbr64; jmp *%rax
	for name, path := range map[string]string{"real": realLibrary(t), "simulated": simulatedLibrary(t)} {
		exports := functions(t, path)
		for _, symbol := range both(t) {
			if name == "real" && slices.Contains(later, symbol) {
				continue
			}
			code := exports[symbol]
			require.Greater(t, len(code), 8, "%s %s", name, symbol)
			require.Equal(t, begin, code[:4], "%s %s", name, symbol)
			require.Equal(t, end, code[len(code)-2:], "%s %s", name, symbol)
		}
	}
}

// The workloads that the exactness tests trace make each call of the tables.
func TestWorkloadsMakeEveryCall(t *testing.T) {
	for name, workload := range map[string]struct {
		dir       string
		processes int
	}{memory: {"exact", 4}, launches: {"launches", 1}} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			cmd := exec.Command("python3", "../../../test/gadgets/"+workload.dir+"/workload.py", "--hip", simulatedLibrary(t), "--out", dir,
				"--calls", "40000")
			cmd.Env = append(os.Environ(), "SIMHIP_DEVICES=2")
			out, err := cmd.CombinedOutput()
			require.NoError(t, err, "%s", out)
			journals, err := journal.ReadDir(dir)
			require.NoError(t, err)
			require.Len(t, journals, workload.processes)
			succeeded := map[string]int{}
			for _, j := range journals {
				for _, r := range j.Records {
					if r.Result == journal.Success {
						succeeded[j.APIName(r.API)]++
					}
				}
			}
			for _, symbol := range table(t, name) {
				require.NotZero(t, succeeded[symbol], "%s never succeeded", symbol)
			}
		})
	}
}
