// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/test/support/simulated"
	"github.com/gpu-gadgets/gpu-gadgets/test/support/subject"
)

// slowStart is a cuInit() of 0.3 s. The real one takes at least that long, and it is the
// time in which a probe must be attached to a file that was unknown before.
const slowStart = "SIMCUDA_INIT_MS=300"

// venv is a directory like those of pip; its libraries are not in ld.so.cache.
func venv(t *testing.T) (root, library string) {
	t.Helper()
	root = filepath.Join(t.TempDir(), "venv")
	return root, simulated.Copy(t, filepath.Join(root, "lib/python3.11/site-packages/nvidia/cuda_driver/lib"), "simcuda", "libcuda.so.1")
}

func TestLibraryOfARunningProcessInAVirtualenvIsSeen(t *testing.T) {
	t.Parallel()
	_, library := venv(t)
	w := subject.StartSteps(t)
	w.Do("load %s", library)
	r := start(t, "--pid", fmt.Sprint(w.PID()))
	a := r.waitAttached(w.PID())
	require.Equal(t, library, a.Path)
	require.Equal(t, a.Wanted, a.Symbols)
	require.Greater(t, a.Wanted, 40)

	w.Do("alloc kv_cache 7 1048576")
	w.Do("free kv_cache 3")
	w.Do("alloc weights 1 4096")
	w.End()
	r.waitRows("rows of the process", w.PID(), allocs(8))
	code, _ := r.interrupt()
	require.Zero(t, code)
	requireExact(t, w, r.last(w.PID()))
	require.Empty(t, r.lost())
}

// The first thing that the process does after it has loaded the library counts.
func TestProcessStartedAfterTheGadgetIsSeenFromItsFirstCall(t *testing.T) {
	t.Parallel()
	root, library := venv(t)
	r := start(t)
	r.wait("the gadget runs", func() bool { return len(r.drops) > 0 })

	// With VIRTUAL_ENV the library is expected, so that even a driver that is
	// ready at once is not too quick.
	for _, env := range []string{"VIRTUAL_ENV=" + root, slowStart} {
		w := subject.StartSteps(t, env)
		w.Do("load %s", library)
		w.Do("alloc weights 5 4096")
		w.End()
		requireExact(t, w, r.waitRows("rows of the process, "+env, w.PID(), allocs(5)))
	}
	code, _ := r.interrupt()
	require.Zero(t, code)
}

// Also: after ten seconds without a library there is a warning, which names the library
// and the places that were searched.
func TestLibraryLoadedFiveSecondsAfterAttachIsSeen(t *testing.T) {
	t.Parallel()
	_, library := venv(t)
	w := subject.StartSteps(t, slowStart)
	began := time.Now()
	r := start(t, "--pid", fmt.Sprint(w.PID()))
	r.wait("a warning that nothing is attached", func() bool {
		return strings.Contains(r.stderr.String(), "nothing attached")
	})
	t.Logf("warned after %v", time.Since(began).Round(time.Millisecond))
	require.Greater(t, time.Since(began), 10*time.Second, "a server that imports PyTorch loads libcuda late")
	warning := r.errors()
	require.Contains(t, warning, "libcuda.so")
	require.Contains(t, warning, "1 processes")
	r.mu.Lock()
	require.Empty(t, r.attachments)
	r.mu.Unlock()

	time.Sleep(time.Until(r.began.Add(5 * time.Second))) // the point of the test
	w.Do("load %s", library)
	w.Do("alloc weights 3 1000")
	w.End()
	requireExact(t, w, r.waitRows("rows of the process", w.PID(), allocs(3)))
	require.Equal(t, library, r.waitStatus(w.PID(), "gone").Path)
}

func TestOnlyTheChosenProcessAndItsChildrenAreCounted(t *testing.T) {
	t.Parallel()
	chosen, other := subject.StartSteps(t, slowStart), subject.StartSteps(t)
	other.Do("load %s", simulated.Driver(t))
	r := start(t, "--pid", fmt.Sprint(chosen.PID()))
	r.wait("the gadget runs", func() bool { return len(r.drops) > 0 })
	chosen.Do("spawn %s", simulated.Driver(t))
	other.Do("alloc weights 3 4096")
	chosen.Do("load %s", simulated.Driver(t))
	chosen.Do("alloc weights 2 4096")
	r.waitRows("rows of the chosen process", chosen.PID(), allocs(2))
	code, _ := r.interrupt()
	require.Zero(t, code)
	require.Empty(t, r.last(other.PID()))

	// The child has its own row, although its code is its parent's.
	children := 0
	for _, total := range chosen.Summary().Totals {
		if total.Process.PID != uint32(chosen.PID()) {
			rows := r.last(int(total.Process.PID))
			require.Len(t, rows, 1)
			require.EqualValues(t, 4096, rows[0].AllocBytes)
			require.Zero(t, rows[0].InuseBytes)
			children++
		}
	}
	require.Equal(t, 1, children)
	requireExact(t, chosen, r.last(chosen.PID()))
}

func TestDeletedLibraryIsSeen(t *testing.T) {
	t.Parallel()
	library := simulated.Copy(t, t.TempDir(), "simcuda", "libcuda.so.1")
	w := subject.StartSteps(t)
	w.Do("load %s", library)
	require.NoError(t, os.Remove(library))
	r := start(t, "--pid", fmt.Sprint(w.PID()))
	r.waitAttached(w.PID())
	w.Do("alloc weights 2 4096")
	w.End()
	requireExact(t, w, r.waitRows("rows of the process", w.PID(), allocs(2)))
}
