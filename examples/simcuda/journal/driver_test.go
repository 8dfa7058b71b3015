// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"sort"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

var driverDir string // removed by TestMain

// buildDriver builds the simulated driver and its C test once per test run.
var buildDriver = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "simcuda")
	if err != nil {
		return "", err
	}
	driverDir = dir
	out, err := exec.Command("make", "-C", "..", "OUT="+dir).CombinedOutput()
	if err != nil {
		os.Stderr.Write(out)
	}
	return dir, err
})

func TestMain(m *testing.M) {
	code := m.Run()
	if driverDir != "" {
		os.RemoveAll(driverDir)
	}
	os.Exit(code)
}

func built(t *testing.T) string {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Skip("the simulated driver is for Linux")
	}
	for _, tool := range []string{"gcc", "make"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("%s is not installed: %v", tool, err)
		}
	}
	dir, err := buildDriver()
	require.NoError(t, err)
	return dir
}

// scenario runs one scenario of the C test and returns the journals it left.
func scenario(t *testing.T, name string, env ...string) []*Journal {
	t.Helper()
	dir, out := built(t), t.TempDir()
	cmd := exec.Command(filepath.Join(dir, "driver_test"), filepath.Join(dir, "libcuda.so.1"), name)
	cmd.Env = append(append(os.Environ(), "SIMCUDA_JOURNAL="+out, "SIMCUDA_INIT_MS=0", "SIMCUDA_CAPACITY=",
		"SIMCUDA_DEVICES=", "SIMCUDA_NEST=", "SIMCUDA_FAIL_EVERY="), env...)
	text, err := cmd.CombinedOutput()
	if name == "killed" {
		require.Equal(t, syscall.SIGKILL, cmd.ProcessState.Sys().(syscall.WaitStatus).Signal(), "%s", text)
	} else {
		require.NoError(t, err, "%s", text)
	}
	journals, err := ReadDir(out)
	require.NoError(t, err)
	return journals
}

// sums runs a scenario of one process and returns its sums by tag, kind, device.
func sums(t *testing.T, name string, env ...string) (map[Key]Sums, Total) {
	t.Helper()
	journals := scenario(t, name, env...)
	require.Len(t, journals, 1)
	s, err := Summarize(journals)
	require.NoError(t, err)
	rows := map[Key]Sums{}
	for k, v := range s.Rows {
		k.Process = Process{}
		rows[k] = *v
	}
	require.Zero(t, s.Totals[0].Lost)
	return rows, s.Totals[0]
}

func key(tag uint64, kind Kind, device int32) Key { return Key{Tag: tag, Kind: kind, Device: device} }

// tableSymbols reads the rows of a C table.
func tableSymbols(t *testing.T, path, pattern string) []string {
	t.Helper()
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	var names []string
	for _, m := range regexp.MustCompile(pattern).FindAllSubmatch(text, -1) {
		names = append(names, string(m[1]))
	}
	require.NotEmpty(t, names)
	return names
}

const (
	table = "../../../bpf/cuda/apis.h"
	calls = "../../../bpf/cuda/launch_apis.h"
)

func TestExportsAreTheTables(t *testing.T) {
	f, err := elf.Open(filepath.Join(built(t), "libcuda.so.1"))
	require.NoError(t, err)
	defer f.Close()
	want := append(tableSymbols(t, table, `X\((cu\w+), MEMORY_`),
		tableSymbols(t, "../exports.h", `X\((cu\w+)\)`)...)
	want = append(want, tableSymbols(t, calls, `X\((cu\w+), CALL_`)...)
	want = append(want, "simcuda_tag", "simcuda_flush", "simcuda_later", "simcuda_device", "simcuda_observe")
	sort.Strings(want)

	dynamic, err := f.DynamicSymbols()
	require.NoError(t, err)
	var got []string
	for _, s := range dynamic {
		if s.Section != elf.SHN_UNDEF {
			got = append(got, s.Name)
		}
	}
	sort.Strings(got)
	require.Equal(t, want, got)
}

func TestFileHasTheShapeOfTheRealOne(t *testing.T) {
	f, err := elf.Open(filepath.Join(built(t), "libcuda.so.1"))
	require.NoError(t, err)
	defer f.Close()
	require.Nil(t, f.Section(".symtab"))
	require.Nil(t, f.Section(".gnu.hash"))
	require.NotNil(t, f.Section(".hash"))
	require.NotNil(t, f.Section(".note.gnu.build-id"))
	require.NotNil(t, f.Section(".eh_frame"))
	soname, err := f.DynString(elf.DT_SONAME)
	require.NoError(t, err)
	require.Equal(t, []string{"libcuda.so.1"}, soname)
}

func TestEachEntryIsAStub(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		t.Skipf("stubs are x86-64 machine code; this is %s", runtime.GOARCH)
	}
	f, err := elf.Open(filepath.Join(built(t), "libcuda.so.1"))
	require.NoError(t, err)
	defer f.Close()
	text := f.Section(".text")
	code, err := text.Data()
	require.NoError(t, err)
	dynamic, err := f.DynamicSymbols()
	require.NoError(t, err)
	stubs := 0
	for _, s := range dynamic {
		if s.Section == elf.SHN_UNDEF || s.Name[:2] != "cu" {
			continue
		}
		stubs++
		b := code[s.Value-text.Addr:]
		require.Equal(t, []byte{0x81, 0x3d}, b[:2], s.Name)
		require.Equal(t, []byte{0x74, 0x0c}, b[10:12], s.Name)
		require.Equal(t, []byte{0xff, 0x25}, b[12:14], s.Name)
		require.Equal(t, []byte{0xff, 0x25}, b[24:26], s.Name)
		// Both jumps go through the same table entry.
		first := s.Value + 18 + uint64(int64(int32(binary.LittleEndian.Uint32(b[14:]))))
		second := s.Value + 30 + uint64(int64(int32(binary.LittleEndian.Uint32(b[26:]))))
		require.Equal(t, first, second, s.Name)
	}
	require.Greater(t, stubs, 90)
}

func TestKindsAreNumberedAsInTheTable(t *testing.T) {
	text, err := os.ReadFile("../../../bpf/memory/apis.h")
	require.NoError(t, err)
	_, enum, found := bytes.Cut(text, []byte("enum alloc_kind {"))
	require.True(t, found)
	enum, _, _ = bytes.Cut(enum, []byte("ALLOC_KIND_COUNT"))
	var names []string
	for _, m := range regexp.MustCompile(`(?m)^\t([A-Z_]+)( = 0)?,`).FindAllSubmatch(enum, -1) {
		names = append(names, string(m[1]))
	}
	var want []string
	for k := range kindNames {
		want = append(want, "KIND_"+strings.ToUpper(Kind(k).String()))
	}
	require.Equal(t, want, names)
	require.Equal(t, []Kind{1, 2, 3, 4, 5, 6}, []Kind{Device, Managed, Host, Array, VMM, Pool})
}

func TestSemantics(t *testing.T) {
	rows, total := sums(t, "semantics", "SIMCUDA_CAPACITY=1MiB")
	const mib = 1 << 20
	require.Equal(t, Sums{AllocBytes: 2*mib - 5, AllocObjects: 2, FreedBytes: 2*mib - 5, FreedObjects: 2,
		PeakBytes: mib, Failed: 5, OOMs: 2}, rows[key(1, Device, 1)])
	require.Equal(t, uint64(1000+3*1024+2*512), rows[key(2, Device, 1)].AllocBytes)
	require.Equal(t, uint64(300), rows[key(3, Managed, 1)].FreedBytes)
	require.Equal(t, uint64(200), rows[key(3, Pool, 1)].FreedBytes)
	require.Equal(t, uint64(100), rows[key(3, Pool, 0)].FreedBytes, "a pool's device, not the thread's")
	require.Equal(t, uint64(9096), rows[key(4, Host, 1)].FreedBytes)
	require.Equal(t, uint64(10*4*2+10*6*7*4+60+15+2+1), rows[key(5, Array, 1)].FreedBytes)
	require.Zero(t, total.InUseBytes())
}

func TestPhysicalMemoryLivesUntilReleasedAndUnmapped(t *testing.T) {
	journals := scenario(t, "vmm")
	rows, total := sums(t, "vmm")
	const unit = 2 << 20
	require.Equal(t, Sums{AllocBytes: 3 * unit, AllocObjects: 2, FreedBytes: 3 * unit, FreedObjects: 2,
		PeakBytes: 3 * unit}, rows[key(1, VMM, 1)])
	require.Zero(t, total.InUseObjects(), "imported memory is not counted")
	var ends []string
	for _, r := range journals[0].Records {
		if r.Type == Free {
			ends = append(ends, journals[0].APIName(r.API))
			require.Equal(t, uint64(2), r.Tag)
		}
	}
	require.Equal(t, []string{"cuMemUnmap", "cuMemRelease"}, ends)
}

func TestCopiesHappen(t *testing.T) {
	_, total := sums(t, "contents")
	require.Zero(t, total.InUseBytes())
}

func TestMemoryEndsWithItsContext(t *testing.T) {
	journals := scenario(t, "contexts")
	rows, total := sums(t, "contexts")
	require.Equal(t, Sums{AllocBytes: 1000, AllocObjects: 1, FreedBytes: 1000, FreedObjects: 1, PeakBytes: 1000},
		rows[key(1, Device, 0)])
	for kind, size := range map[Kind]uint64{Device: 100, Managed: 50, Pool: 30, Array: 64, Host: 532} {
		row := rows[key(2, kind, 1)]
		require.Equal(t, size, row.ImplicitBytes, kind)
		require.Zero(t, row.InUseBytes(), kind)
	}
	require.Equal(t, uint64(10), rows[key(0, Device, 1)].ImplicitBytes, "of another thread, same context")
	require.Equal(t, uint64(7+9), rows[key(4, Device, 0)].ImplicitBytes)
	var contexts Sums
	for key, sums := range rows {
		if key.Kind == Context {
			contexts.AllocObjects += sums.AllocObjects
			contexts.FreedObjects += sums.FreedObjects
		}
	}
	require.NotZero(t, contexts.AllocObjects)
	require.Equal(t, contexts.AllocObjects, contexts.FreedObjects, "a context ends by a call, not with a context")
	require.Equal(t, uint64(8), rows[key(4, Device, 0)].FreedBytes)
	require.Zero(t, total.InUseBytes())
	causes := map[string]int{}
	for _, r := range journals[0].Records {
		if r.Type == Implicit {
			cause := journals[0].Records[r.Cause-1]
			require.Equal(t, Call, cause.Type)
			require.Equal(t, r.Context, cause.Ptr)
			causes[journals[0].APIName(cause.API)]++
		}
	}
	require.Equal(t, map[string]int{"cuCtxDestroy_v2": 7, "cuDevicePrimaryCtxReset_v2": 1,
		"cuDevicePrimaryCtxRelease_v2": 1}, causes)
}

func TestNestedCallCountsOnceForTheOuterOne(t *testing.T) {
	rows, total := sums(t, "nested", "SIMCUDA_NEST=1")
	require.Equal(t, Sums{AllocBytes: 200, AllocObjects: 2, FreedBytes: 100, FreedObjects: 1, PeakBytes: 100},
		rows[key(1, Managed, 0)])
	require.Equal(t, uint64(10), rows[key(1, Device, 0)].AllocBytes)
	require.Equal(t, uint64(7), total.Calls)
	require.Equal(t, uint64(1), total.Failed)
}

func TestInjectedFailuresHaveNoEffect(t *testing.T) {
	rows, total := sums(t, "injected", "SIMCUDA_FAIL_EVERY=3")
	require.Equal(t, Sums{AllocBytes: 20, AllocObjects: 2, FreedBytes: 10, FreedObjects: 1, PeakBytes: 20, Failed: 2},
		rows[key(0, Device, 0)])
	require.Equal(t, uint64(7), total.Calls)
}

func TestNothingIsLostWhenTheProcessIsKilled(t *testing.T) {
	journals := scenario(t, "killed")
	require.False(t, journals[0].Ended)
	_, total := sums(t, "killed")
	require.Equal(t, uint64(40000), total.InUseBytes())
	require.Equal(t, uint64(40002), total.Calls)
}

func TestForkedChildHasItsOwnJournal(t *testing.T) {
	journals := scenario(t, "forked")
	require.Len(t, journals, 2)
	s, err := Summarize(journals)
	require.NoError(t, err)
	var inUse []uint64
	for _, total := range s.Totals {
		inUse = append(inUse, total.InUseBytes())
	}
	require.ElementsMatch(t, []uint64{44, 22}, inUse)
}

func TestThreadsAgree(t *testing.T) {
	rows, total := sums(t, "threads")
	require.Equal(t, uint64(8*50000), rows[key(0, Device, 0)].AllocObjects)
	require.Zero(t, total.InUseObjects())
	require.LessOrEqual(t, total.PeakBytes, uint64(8*5000))
}

func TestParseRefusesOtherFiles(t *testing.T) {
	b := make([]byte, headerSize)
	for _, b := range [][]byte{nil, []byte("SIMCUDA1"), b} {
		_, err := Parse(b)
		require.ErrorIs(t, err, ErrFormat)
	}
	copy(b, "SIMCUDA1")
	for at, v := range map[int]uint32{8: 1, 12: headerSize, 16: recordSize, 40: 1} {
		binary.LittleEndian.PutUint32(b[at:], v)
	}
	_, err := Parse(b)
	require.ErrorContains(t, err, "1 records in 0 bytes")
}

func FuzzParse(f *testing.F) {
	b := make([]byte, headerSize+recordSize)
	copy(b, "SIMCUDA1")
	for at, v := range map[int]uint32{8: 1, 12: headerSize, 16: recordSize, 40: 1, 92: 3} {
		binary.LittleEndian.PutUint32(b[at:], v)
	}
	f.Add(b)
	f.Fuzz(func(t *testing.T, b []byte) {
		j, err := Parse(b)
		if err == nil {
			_, _ = Summarize([]*Journal{j})
		}
	})
}
