// SPDX-License-Identifier: Apache-2.0

package tracer

import (
	"debug/elf"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf/link"
	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/internal/elf/module"
)

// realLibcuda is the library that test/support/fixtures/libcuda.sh unpacked, under a
// name of its own: the machine may have other users of libcuda.
func realLibcuda(t testing.TB) string {
	t.Helper()
	found, _ := filepath.Glob("../../build/fixtures/libcuda/root/usr/lib/*/nvidia/current/libcuda.so.*.*")
	if len(found) == 0 {
		t.Skip("no build/fixtures/libcuda: run test/support/fixtures/libcuda.sh")
	}
	b, err := os.ReadFile(found[0])
	require.NoError(t, err)
	path := filepath.Join(t.TempDir(), "librealcuda.so.1")
	require.NoError(t, os.WriteFile(path, b, 0o644))
	return path
}

// cudaPoints is the table of bpf/cuda/apis.h, with cookies from 1.
func cudaPoints(t testing.TB) []Point {
	t.Helper()
	b, err := os.ReadFile("../../bpf/cuda/apis.h")
	require.NoError(t, err)
	var points []Point
	for _, m := range regexp.MustCompile(`(?m)^\s*X\((cu\w+), MEMORY_`).FindAllStringSubmatch(string(b), -1) {
		points = append(points, Point{Library: "librealcuda", Symbol: m[1], Cookie: uint32(len(points) + 1), Exit: true})
	}
	require.Greater(t, len(points), 40)
	return points
}

// TestRealLibcuda calls the driver without a GPU: every call returns an error,
// after it went through the probes.
func TestRealLibcuda(t *testing.T) {
	eachMode(t, func(t *testing.T, mode Mode) {
		k := load(t)
		points := cudaPoints(t)
		if mode == Perf {
			points = points[:8] // the kernel takes 0.1 s to detach each
		}
		h := startHost(t)
		h.ask("open %s", realLibcuda(t))
		begin := time.Now()
		tr, rows := start(t, Config{Programs: k.programs, Mode: mode, Points: points})
		row, _ := rows.attached(t, h.pid)
		t.Logf("%d of %d functions, %s; started in %v", row.Symbols, row.Wanted, row.Note, time.Since(begin))
		require.GreaterOrEqual(t, row.Symbols, len(points)*9/10)
		require.Regexp(t, `^\+10: \d+$`, row.Note, "every entry is a stub")
		for _, p := range points {
			if strings.HasPrefix(p.Symbol, "cuMemAlloc_v2") {
				h.ask("call %s 11", p.Symbol)
				enters, exits := k.calls(t, p.Cookie)
				require.Equal(t, [2]int{11, 11}, [2]int{enters, exits})
			}
		}
		begin = time.Now()
		tr.Stop()
		t.Logf("stopped in %v", time.Since(begin))
	})
}

// TestCostOfAProbe prints what an empty probe costs at the entry of a real
// driver function and where package placement puts it.
func TestCostOfAProbe(t *testing.T) {
	k := load(t)
	path := realLibcuda(t)
	f, err := os.Open(path)
	require.NoError(t, err)
	defer f.Close()
	st, err := f.Stat()
	require.NoError(t, err)
	m, err := module.Open(f, st.Size())
	require.NoError(t, err)
	found, err := m.Lookup([]string{"cuMemAlloc_v2"})
	require.NoError(t, err)
	entry, _ := m.FileOffset(found["cuMemAlloc_v2"])

	h := startHost(t)
	h.ask("open %s", path)
	const calls = 20000
	cost := func() int64 {
		best := int64(1 << 62)
		for range 5 {
			best = min(best, h.ask("call cuMemAlloc_v2 %d", calls))
		}
		return best
	}
	bare := cost()
	ex, err := link.OpenExecutable(path)
	require.NoError(t, err)
	measure := func(offset uint64) (entries, returns int64) {
		l, err := ex.Uprobe("", k.Collection.Programs["nothing"], &link.UprobeOptions{Address: entry, Offset: offset})
		require.NoError(t, err)
		entries = cost() - bare
		l.Close()
		l, err = ex.Uretprobe("", k.Collection.Programs["nothing"], &link.UprobeOptions{Address: entry, Offset: offset})
		require.NoError(t, err)
		returns = cost() - bare
		l.Close()
		return entries, returns
	}
	e0, r0 := measure(0)
	e10, r10 := measure(10)
	t.Logf("bare call %d ns; at +0: uprobe %d ns, uretprobe %d ns; at +10: %d ns, %d ns", bare, e0, r0, e10, r10)
	if m.Machine() == elf.EM_X86_64 {
		require.Less(t, e10, e0, "an emulated instruction must be cheaper than a stepped one")
	}
}

// TestKilledTracerLeavesNothing: links are file descriptors, not pins.
func TestKilledTracerLeavesNothing(t *testing.T) {
	needRoot(t)
	if os.Getenv("TRACER_TEST_CHILD") != "" {
		k := load(t)
		start(t, Config{Programs: k.programs})
		os.Stdout.WriteString("ready\n")
		time.Sleep(time.Minute)
		return
	}
	h := startHost(t)
	h.ask("open %s", buildLibrary(t, t.TempDir()))
	bare := h.ask("call gpuAlloc 20000")
	child := exec.Command(os.Args[0], "-test.run=^TestKilledTracerLeavesNothing$")
	child.Env = append(os.Environ(), "TRACER_TEST_CHILD=1")
	out, err := child.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, child.Start())
	_, err = out.Read(make([]byte, 6))
	require.NoError(t, err)
	probed := h.ask("call gpuAlloc 20000")
	require.NoError(t, child.Process.Kill())
	_ = child.Wait()
	require.Eventually(t, func() bool { return h.ask("call gpuAlloc 20000") < (bare+probed)/2 },
		10*time.Second, 50*time.Millisecond)
}
