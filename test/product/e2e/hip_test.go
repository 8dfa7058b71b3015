// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/test/support/simulated"
	"github.com/gpu-gadgets/gpu-gadgets/test/support/subject"
)

// The library of another version than the simulated one's: names of files differ by version.
func TestMemoryOfHIPIsShownByLineAndDevice(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		t.Skip("HIP is for x86-64")
	}
	for _, mode := range []string{"multi", "perf"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			library := simulated.Copy(t, dir, "simhip", "libamdhip64.so.6")
			seven := filepath.Join(dir, "libamdhip64.so.7")
			require.NoError(t, exec.Command("mv", library, seven).Run())
			w := subject.Start(t, exec.Command("python3", "testdata/hip.py", seven))
			require.Equal(t, "ready", w.Line())
			do := func(result int, format string, args ...any) {
				require.Equal(t, fmt.Sprintf("ok %d", result), w.Request(format, args...))
			}
			do(0, "device 1")
			r := launch(t, exec.Command(program(t), "run", "hip_alloc", "--pid", fmt.Sprint(w.PID()), "--attach-mode", mode,
				"-o", "allocs:json,attachments:json,ooms:json,drops:json"))
			require.Equal(t, seven, r.waitAttached(w.PID()).Path)

			const unknown, mib, refused = -1, 1 << 20, 2 // refused: hipErrorOutOfMemory
			do(0, "alloc %d", mib)
			do(0, "device 0")
			do(0, "alloc %d", 2*mib)
			do(0, "device 1")
			do(0, "alloc %d", 4*mib)
			do(0, "alloc %d", 8*mib)
			do(0, "free")
			do(refused, "alloc %d", 1<<44)
			rows := r.waitRows("all calls", w.PID(), func(rows []row) bool {
				var freed uint64
				for _, each := range rows {
					freed += each.FreedBytes
				}
				return freed == 8*mib && len(rows) == 3
			})
			inuse := map[int32]uint64{}
			for _, each := range rows {
				require.Equal(t, "device", each.Kind)
				require.Equal(t, "allocate (hip.py:15)", each.Frame)
				inuse[each.Device] = each.InuseBytes
			}
			require.Equal(t, map[int32]uint64{unknown: mib, 0: 2 * mib, 1: 4 * mib}, inuse)

			r.wait("the refusal", func() bool { return len(r.ooms) == 1 })
			code, _ := r.interrupt()
			require.Zero(t, code)
			require.Empty(t, r.lost())
			require.Equal(t, "hipMalloc", r.ooms[0].API)
			require.Equal(t, "hipErrorOutOfMemory", r.ooms[0].Error)
			require.EqualValues(t, 1<<44, r.ooms[0].RequestedBytes)
			require.EqualValues(t, (1+4)*mib, r.ooms[0].InuseBytes, "what is on its device, or may be")
		})
	}
}

// Physical memory that was released takes the GPU's memory until its address range is freed. A
// refused array had requested all of its elements.
func TestReleasedMemoryOfHIPIsHeldByItsAddressRange(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		t.Skip("HIP is for x86-64")
	}
	library := simulated.Copy(t, t.TempDir(), "simhip", "libamdhip64.so.6")
	w := subject.Start(t, exec.Command("python3", "testdata/hip.py", library))
	require.Equal(t, "ready", w.Line())
	r := launch(t, exec.Command(program(t), "run", "hip_alloc", "--pid", fmt.Sprint(w.PID()),
		"-o", "allocs:json,attachments:json,ooms:json,drops:json"))
	r.waitAttached(w.PID())
	require.Equal(t, "ok 0", w.Request("release %d", 4*mib))
	held := func(inuse, held uint64) func(rows []row) bool {
		return func(rows []row) bool {
			return len(rows) == 1 && rows[0].InuseBytes == inuse && rows[0].HeldBytes == held
		}
	}
	rows := r.waitRows("it is held", w.PID(), held(4*mib, 4*mib))
	require.Equal(t, "vmm", rows[0].Kind)
	require.Equal(t, "ok 0", w.Request("forget"))
	r.waitRows("it is freed", w.PID(), held(0, 0))
	require.Equal(t, "ok 2", w.Request("array %d", mib<<20))
	r.wait("the refusal", func() bool { return len(r.ooms) == 1 })
	code, _ := r.interrupt()
	require.Zero(t, code)
	require.Empty(t, r.lost())
	require.Equal(t, "hipMallocArray", r.ooms[0].API)
	require.EqualValues(t, 16*1024*(mib<<20), r.ooms[0].RequestedBytes)
}

// The device of a thread that has chosen one before attach is queried only while it is unknown.
func TestDeviceOfAHIPThreadIsLearnedOnDemand(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		t.Skip("HIP is for x86-64")
	}
	library := simulated.Copy(t, t.TempDir(), "simhip", "libamdhip64.so.6")
	w := subject.Start(t, exec.Command("python3", "testdata/hip.py", library))
	require.Equal(t, "ready", w.Line())
	require.Equal(t, "ok 0", w.Request("device 1"))
	r := launch(t, exec.Command(program(t), "run", "hip_alloc", "--pid", fmt.Sprint(w.PID()),
		"-o", "allocs:json,attachments:json,drops:json"))
	r.waitAttached(w.PID())
	require.Equal(t, "ok 0", w.Request("alloc 1024"))
	r.waitRows("the first call", w.PID(), allocs(1))
	require.Eventually(t, func() bool {
		require.Equal(t, "ok 0", w.Request("ask"))
		require.Equal(t, "ok 0", w.Request("alloc 4096"))
		r.mu.Lock()
		defer r.mu.Unlock()
		for _, each := range r.rows {
			if each.Device == 1 && each.AllocBytes > 0 {
				return true
			}
		}
		return false
	}, waitLimit, 300*time.Millisecond)
	code, _ := r.interrupt()
	require.Zero(t, code)
}

// PyTorch for ROCm reports the blocks of its pool to the same function as that for CUDA, with another
// type of device; the library beside it is libc10_hip.
func TestTensorsOfROCmAreShownByLineAndDevice(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		t.Skip("HIP is for x86-64")
	}
	dir := t.TempDir()
	simulated.Copy(t, dir, "simhip", "libamdhip64.so.6")
	simulated.Copy(t, dir, "simtorch", "hip/libc10.so")
	cmd := exec.Command("python3", "testdata/torch_hip.py", simulated.Copy(t, dir, "simtorch", "hip/libc10_hip.so"))
	cmd.Env = append(os.Environ(), "LD_LIBRARY_PATH="+dir)
	w := subject.Start(t, cmd)
	require.Equal(t, "ready", w.Line())
	require.Equal(t, "ok", w.Request("tensor 0 1048576")) // loads libamdhip64
	r := launch(t, exec.Command(program(t), "run", "hip_alloc", "--pid", fmt.Sprint(w.PID()), "--torch", "on",
		"-o", "allocs:json,attachments:json,drops:json"))
	r.wait("both libraries", func() bool {
		found := map[string]bool{}
		for _, a := range r.attachments {
			found[filepath.Base(a.Path)] = found[filepath.Base(a.Path)] || a.Status == "attached"
		}
		return found["libamdhip64.so.6"] && found["libc10.so"]
	})
	const mib = 1 << 20
	require.Equal(t, "ok", w.Request("tensor 0 %d", 26*mib))
	require.Equal(t, "ok", w.Request("tensor 1 %d", 14*mib))
	tensors := map[int32]uint64{}
	rows := r.waitRows("both tensors", w.PID(), func(rows []row) bool {
		clear(tensors)
		for _, each := range rows {
			if each.Kind == "tensor" && each.Frame != "[before attach]" {
				tensors[each.Device] += each.InuseBytes
			}
		}
		return len(tensors) == 2
	})
	require.Equal(t, map[int32]uint64{0: 26 * mib, 1: 14 * mib}, tensors)
	segments := uint64(0)
	for _, each := range rows {
		if each.Kind == "device" {
			segments += each.InuseBytes
		}
		if each.Frame != "[before attach]" {
			require.Equal(t, "tensor (torch_hip.py:13)", each.Frame)
		}
	}
	require.GreaterOrEqual(t, segments, uint64(40*mib), "the pool's memory, from the driver")
	code, _ := r.interrupt()
	require.Zero(t, code)
	require.Empty(t, r.lost())
}
