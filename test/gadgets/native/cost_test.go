// SPDX-License-Identifier: Apache-2.0

package native

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/gpu-gadgets/gpu-gadgets/test/support/simulated"
	"github.com/gpu-gadgets/gpu-gadgets/test/support/tracer"
)

const (
	// mostOfAFrame and mostOfAStack are several times what they take on an idle machine (docs/reference/native.md):
	// what is found here is work that should not be there.
	mostOfAFrame = time.Microsecond
	mostOfAStack = 40 * time.Microsecond

	batches, callsOfBatch = 30, 200
)

// took is the time of all programs per call in each kind of batch, the least of many: nothing but work
// makes it less. They take turns, so that what else the machine does meets them all.
func took(t *testing.T, tr *tracer.Tracer, kinds ...func()) []time.Duration {
	t.Helper()
	spent := func() (sum time.Duration) {
		for _, p := range tr.Programs {
			stats, err := p.Stats()
			require.NoError(t, err)
			sum += stats.Runtime
		}
		return sum
	}
	least := make([]time.Duration, len(kinds))
	for i, batch := range kinds {
		batch() // rules are loaded
		least[i] = math.MaxInt64
	}
	time.Sleep(50 * time.Millisecond)
	for range batches {
		for i, batch := range kinds {
			before := spent()
			batch()
			least[i] = min(least[i], (spent()-before)/callsOfBatch)
		}
	}
	return least
}

// TestCostOfNativeFrames is by the kernel's clock of eBPF programs, on this machine.
func TestCostOfNativeFrames(t *testing.T) {
	const low, high = 4, 44
	stats, err := ebpf.EnableStats(unix.BPF_STATS_RUN_TIME)
	require.NoError(t, err)
	defer stats.Close()
	driver := simulated.DriverCopy(t)
	program := build(t, "depths.cpp", "-O2", "-fomit-frame-pointer", "-std=c++17")
	tr, _ := start(t, driver, memory)
	p := run(t, program, driver)
	at := func(depth, changes int) func() {
		return func() {
			_, err := fmt.Fprintf(p.in, "%d %d %d\n", depth, callsOfBatch, changes)
			require.NoError(t, err)
			require.Equal(t, "done", p.line(t))
		}
	}
	call := took(t, tr, at(high, 0), at(low, 0), at(high, 1), at(low, 1))
	seen := (call[0] - call[1]) / (high - low)
	changed := (call[2] - call[3]) / (high - low)
	t.Logf("%v a native frame, %v after a change of the mappings", seen, changed)
	deepest := 0
	for _, row := range tr.Rows() {
		deepest = max(deepest, len(row.Native))
	}
	require.Greater(t, deepest, high, "frames were walked")
	assert.Greater(t, seen, time.Duration(0))
	assert.Less(t, seen, mostOfAFrame)
	assert.Less(t, changed, 10*mostOfAFrame)
}

// TestCostOfAStackOfNativeAndPythonFrames that was seen before, 20 of each: what a call takes more than
// without a stack. Of one function that calls itself, and of different ones.
func TestCostOfAStackOfNativeAndPythonFrames(t *testing.T) {
	for _, functions := range []string{"one function", "different functions"} {
		t.Run(functions, func(t *testing.T) { costOfAStack(t, functions) })
	}
}

func costOfAStack(t *testing.T, functions string) {
	stats, err := ebpf.EnableStats(unix.BPF_STATS_RUN_TIME)
	require.NoError(t, err)
	defer stats.Close()
	driver := simulated.DriverCopy(t)
	library := build(t, "depths.cpp", "-O2", "-fomit-frame-pointer", "-std=c++17", "-shared", "-fPIC")
	script := filepath.Join(t.TempDir(), "stack.py")
	require.NoError(t, os.WriteFile(script, fmt.Appendf(nil, `
import ctypes, sys
library = ctypes.CDLL(%q)
def work(depth):
    if depth:
        return work(depth - 1)
    return library.run(b%q, 10, %d) # 20 frames with those of ctypes, libffi and the driver
if %q == "different functions":
    for n in range(100):
        exec(f"def work{n}(depth): return work{n+1}(depth - 1) if depth > 1 else work(0)")
    start = work0
else:
    start = work
print("ready", flush=True)
for line in sys.stdin:
    assert start(int(line)) == 0
    print("done", flush=True)
`, library, driver, callsOfBatch, functions), 0o600))
	call := map[bool][]time.Duration{} // with a stack or without → below few and many Python frames
	for _, stacks := range []bool{false, true} {
		tr, _ := start(t, driver, memory, func(spec *tracer.Spec) { require.NoError(t, spec.Variables["stacks"].Set(stacks)) })
		p := run(t, "python3", script)
		below := func(depth int) func() {
			return func() {
				_, err := fmt.Fprintf(p.in, "%d\n", depth)
				require.NoError(t, err)
				require.Equal(t, "done", p.line(t))
			}
		}
		few := below(18) // 20 frames with the first function and the module's
		took(t, tr, few)
		most, frames := uint64(0), ""
		for _, row := range tr.Rows() {
			if row.Kind != tracer.KindContext && row.AllocObjects > most {
				most, frames = row.AllocObjects, fmt.Sprintf("%d native and %d Python frames, flags %#x", len(row.Native), len(row.Python), row.Flags)
			}
		}
		if stacks {
			assert.Equal(t, "20 native and 20 Python frames, flags 0x1", frames)
		}
		call[stacks] = took(t, tr, few, below(98))
		require.NoError(t, p.Process.Kill())
	}
	stack := call[true][0] - call[false][0]
	python := (call[true][1] - call[true][0]) / 80
	t.Logf("%v a stack of 20 native and 20 Python frames, of a call of %v; %v a Python frame", stack, call[true][0], python)
	assert.Greater(t, stack, time.Duration(0))
	assert.Less(t, stack, mostOfAStack)
}
