// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/test/support/subject"
)

// limiter builds testdata/vgpu.c under the name of HAMi's library, and returns what preloads it.
func limiter(t *testing.T) (env string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "libvgpu.so")
	out, err := exec.Command("cc", "-O2", "-Wall", "-Werror", "-shared", "-fPIC", "-o", path, "testdata/vgpu.c", "-ldl").CombinedOutput()
	require.NoError(t, err, string(out))
	return "LD_PRELOAD=" + path
}

// requireTruth compares the rows of a process, in sum, with the driver's journal.
func requireTruth(t *testing.T, w *subject.Steps, rows []row) {
	t.Helper()
	var sum row
	for _, r := range rows {
		sum.AllocBytes += r.AllocBytes
		sum.AllocObjects += r.AllocObjects
		sum.FreedBytes += r.FreedBytes
		sum.InuseBytes += r.InuseBytes
	}
	truth := w.Truth()
	require.EqualValues(t, truth.AllocBytes, sum.AllocBytes)
	require.EqualValues(t, truth.AllocObjects, sum.AllocObjects)
	require.EqualValues(t, truth.FreedBytes, sum.FreedBytes)
	require.EqualValues(t, truth.InUseBytes(), sum.InuseBytes)
}

// A call that passes the library and the driver counts once, and the one that refuses it
// is named. The journal confirms which calls reached the driver.
func TestARefusalNamesTheLibraryInFrontOfTheDriver(t *testing.T) {
	for _, mode := range []string{"multi", "perf"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			w := subject.StartSteps(t, limiter(t), "VGPU_LIMIT=100", "SIMCUDA_CAPACITY=64MiB")
			w.Load()
			file := filepath.Join(t.TempDir(), "lines")
			r := start(t, "--pid", fmt.Sprint(w.PID()), "--attach-mode", mode, "--jsonl-out", file)
			r.wait("both libraries are probed", func() bool { return len(r.attachments) == 2 })

			w.Do("alloc weights 2 %d", 20*mib)
			require.Equal(t, "ok 1", w.Request("alloc logits 1 %d", 30*mib), "the driver has 64 MiB")
			require.EqualValues(t, 1, w.Truth().OOMs)
			require.Equal(t, "ok 2", w.Request("alloc workspace 2 %d", 70*mib), "the library grants 100 MiB")
			w.Do("alloc staging 1 %d", 3*mib)
			w.Do("free weights 1")
			require.EqualValues(t, 1, w.Truth().OOMs, "the driver did not get the call")
			r.wait("the events", func() bool { return len(r.ooms) >= 3 })
			requireTruth(t, w, r.waitRows("in use", w.PID(), func(rows []row) bool {
				var inuse uint64
				for _, each := range rows {
					inuse += each.InuseBytes
				}
				return inuse == 23*mib
			}))
			w.End()
			code, _ := r.interrupt()
			require.Zero(t, code)
			require.Empty(t, r.lost())
			require.Contains(t, r.errors(), "CUDA_ERROR_OUT_OF_MEMORY by libvgpu.so, not by the driver; it held 40.0 MiB of what was allocated after ig-gpu attached")

			_, lines := readLines(t, file)
			require.Len(t, r.ooms, 3)
			require.Len(t, lines, 3)
			for i, want := range []struct {
				by, function string
				bytes        uint64
			}{{"driver", "logits", 30 * mib}, {"libvgpu.so", "workspace", 70 * mib}, {"libvgpu.so", "workspace", 70 * mib}} {
				o := r.ooms[i]
				require.Equal(t, want.by, o.RefusedBy)
				require.Equal(t, want.by, lines[i].RefusedBy)
				require.Equal(t, subject.Frame(t, want.function), o.Frame)
				require.Equal(t, want.bytes, o.RequestedBytes)
				require.EqualValues(t, 40*mib, o.InuseBytes)
				require.Equal(t, "cuMemAlloc_v2", o.API)
				require.Equal(t, "CUDA_ERROR_OUT_OF_MEMORY", o.Error)
				require.Contains(t, o.Holders, subject.Frame(t, "weights"))
			}
		})
	}
}

// Rows follow the call that reaches the driver, not the one that the program made.
func TestALibraryThatMakesManagedMemoryIsCountedAsTheDriverSeesIt(t *testing.T) {
	t.Parallel()
	w := subject.StartSteps(t, limiter(t), "VGPU_MANAGED=1", "VGPU_LIMIT=64")
	w.Load()
	r := start(t, "--pid", fmt.Sprint(w.PID()))
	r.wait("both libraries are probed", func() bool { return len(r.attachments) == 2 })
	w.Do("alloc weights 3 4096")
	require.Equal(t, "ok 1", w.Request("alloc logits 1 %d", 80<<20))
	w.Do("free weights 1")
	requireTruth(t, w, r.waitRows("two are left", w.PID(), func(rows []row) bool {
		return len(rows) == 1 && rows[0].Kind == "managed" && rows[0].InuseBytes == 2*4096
	}))
	r.wait("the event", func() bool { return len(r.ooms) > 0 })
	w.End()
	_, _ = r.interrupt()
	require.Len(t, r.ooms, 1)
	require.Equal(t, "libvgpu.so", r.ooms[0].RefusedBy)
	require.Equal(t, "cuMemAlloc_v2", r.ooms[0].API)
	require.Empty(t, r.lost())
}

// Such a library is in every process of a container, and of no interest in those without CUDA.
func TestALibraryInFrontOfNoDriverIsNotProbed(t *testing.T) {
	t.Parallel()
	preloaded := limiter(t)
	idle, busy, plain := subject.StartSteps(t, preloaded), subject.StartSteps(t, preloaded), subject.StartSteps(t)
	require.Equal(t, "ok 0", idle.Request("stop"))
	busy.Load()
	plain.Load()
	r := start(t)
	r.waitAttached(busy.PID())
	r.waitAttached(plain.PID())
	paths := func(pid int) (names []string) {
		for _, a := range r.attachments {
			if a.PID == uint32(pid) && a.Status == "attached" {
				names = append(names, filepath.Base(a.Path))
			}
		}
		return names
	}
	r.wait("both", func() bool { return len(paths(busy.PID())) == 2 })
	time.Sleep(1500 * time.Millisecond) // a scan later
	r.mu.Lock()
	require.Empty(t, paths(idle.PID()), "it has not loaded CUDA")
	r.mu.Unlock()
	idle.Load()
	r.wait("the library, once CUDA is there", func() bool { return len(paths(idle.PID())) == 2 })
	_, _ = r.interrupt()
	require.ElementsMatch(t, []string{"libcuda.so.1", "libvgpu.so"}, paths(busy.PID()))
	require.Equal(t, []string{"libcuda.so.1"}, paths(plain.PID()))
}
