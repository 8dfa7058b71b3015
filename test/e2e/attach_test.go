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
)

// slowStart is a cuInit() of 0.3 s. The real one takes that long or longer, and
// it is the time that a probe has to come in when nothing told of the file before.
const slowStart = "SIMCUDA_INIT_MS=300"

// venv is a directory as pip fills it; nothing of it is in ld.so.cache.
func venv(t *testing.T) (root, library string) {
	t.Helper()
	root = filepath.Join(t.TempDir(), "venv")
	return root, driverIn(t, filepath.Join(root, "lib/python3.11/site-packages/nvidia/cuda_driver/lib"))
}

func TestLibraryOfARunningProcessInAVirtualenvIsSeen(t *testing.T) {
	t.Parallel()
	_, library := venv(t)
	w := startWorkload(t)
	w.do("load %s", library)
	r := start(t, "--pid", fmt.Sprint(w.pid()))
	a := r.waitAttached(w.pid())
	require.Equal(t, library, a.Path)
	require.Equal(t, a.Wanted, a.Symbols)
	require.Greater(t, a.Wanted, 40)

	w.do("alloc kv_cache 7 1048576")
	w.do("free kv_cache 3")
	w.do("alloc weights 1 4096")
	w.end()
	r.waitRows("rows of the process", w.pid(), allocs(8))
	code, _ := r.interrupt()
	require.Zero(t, code)
	w.requireExact(r.last(w.pid()))
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
		w := startWorkload(t, env)
		w.do("load %s", library)
		w.do("alloc weights 5 4096")
		w.end()
		w.requireExact(r.waitRows("rows of the process, "+env, w.pid(), allocs(5)))
	}
	code, _ := r.interrupt()
	require.Zero(t, code)
}

// Also: two seconds without a library are worth a warning, which says what was
// looked for and where.
func TestLibraryLoadedFiveSecondsAfterAttachIsSeen(t *testing.T) {
	t.Parallel()
	_, library := venv(t)
	w := startWorkload(t, slowStart)
	began := time.Now()
	r := start(t, "--pid", fmt.Sprint(w.pid()))
	r.wait("a warning that nothing is attached", func() bool {
		return strings.Contains(r.stderr.String(), "nothing attached")
	})
	t.Logf("warned after %v", time.Since(began).Round(time.Millisecond))
	require.Less(t, time.Since(began), patience/2, "2 s, and the start of the program on a busy machine")
	warning := r.errors()
	require.Contains(t, warning, "libcuda.so")
	require.Contains(t, warning, "1 processes")
	r.mu.Lock()
	require.Empty(t, r.attachments)
	r.mu.Unlock()

	time.Sleep(time.Until(r.began.Add(5 * time.Second))) // the point of the test
	w.do("load %s", library)
	w.do("alloc weights 3 1000")
	w.end()
	w.requireExact(r.waitRows("rows of the process", w.pid(), allocs(3)))
	require.Equal(t, library, r.waitStatus(w.pid(), "gone").Path)
}

func TestOnlyTheChosenProcessAndItsChildrenAreCounted(t *testing.T) {
	t.Parallel()
	chosen, other := startWorkload(t, slowStart), startWorkload(t)
	other.do("load %s", driver(t))
	r := start(t, "--pid", fmt.Sprint(chosen.pid()))
	r.wait("the gadget runs", func() bool { return len(r.drops) > 0 })
	chosen.do("spawn %s", driver(t))
	other.do("alloc weights 3 4096")
	chosen.do("load %s", driver(t))
	chosen.do("alloc weights 2 4096")
	r.waitRows("rows of the chosen process", chosen.pid(), allocs(2))
	code, _ := r.interrupt()
	require.Zero(t, code)
	require.Empty(t, r.last(other.pid()))

	// The child has a row of its own, although its code is its parent's.
	children := 0
	for _, total := range chosen.summary().Totals {
		if total.Process.PID != uint32(chosen.pid()) {
			rows := r.last(int(total.Process.PID))
			require.Len(t, rows, 1)
			require.EqualValues(t, 4096, rows[0].AllocBytes)
			require.Zero(t, rows[0].InuseBytes)
			children++
		}
	}
	require.Equal(t, 1, children)
	chosen.requireExact(r.last(chosen.pid()))
}

func TestDeletedLibraryIsSeen(t *testing.T) {
	t.Parallel()
	library := driverIn(t, t.TempDir())
	w := startWorkload(t)
	w.do("load %s", library)
	require.NoError(t, os.Remove(library))
	r := start(t, "--pid", fmt.Sprint(w.pid()))
	r.waitAttached(w.pid())
	w.do("alloc weights 2 4096")
	w.end()
	w.requireExact(r.waitRows("rows of the process", w.pid(), allocs(2)))
}
