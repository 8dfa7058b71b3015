// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// busy is a workload that allocates and frees until it is told to stop.
func busy(t *testing.T) *workload {
	t.Helper()
	w := startWorkload(t)
	w.do("load %s", driver(t))
	require.Equal(t, "ok churning", w.tell("churn 65536"))
	return w
}

// stopChurn ends the loop; the driver must have granted every call.
func (w *workload) stopChurn() {
	w.t.Helper()
	before := w.truth().Calls
	eventually(w.t, "the workload goes on", func() bool { return w.truth().Calls > before })
	_, err := w.in.Write([]byte("stop\n"))
	require.NoError(w.t, err)
	for range 2 { // the answers to churn and to stop
		require.Equal(w.t, "ok 0", <-w.answers)
	}
	require.Zero(w.t, w.truth().Failed)
	w.end()
}

func TestKilledGadgetLeavesNothingBehind(t *testing.T) {
	w := busy(t)
	before := kernelObjects(t)
	requireNotPatched(t, w.pid())
	dir := t.TempDir()
	files := []string{"--pprof-out", filepath.Join(dir, "out.pb.gz"), "--flamegraph-out", filepath.Join(dir, "out.html")}

	// While it runs: everything that it holds is known, and gone afterwards.
	r := start(t, append(files, "--pid", fmt.Sprint(w.pid()))...)
	r.waitRows("rows of the process", w.pid(), allocs(1))
	require.True(t, isPatched(t, w.pid()), "else the comparison sees no probes")
	require.NoError(t, r.cmd.Process.Signal(syscall.SIGSTOP))
	held := heldBy(fmt.Sprint(r.cmd.Process.Pid))
	require.Greater(t, len(held), 20)
	r.kill()
	requireGone(t, held)
	requireNothingNew(t, before)
	requireNotPatched(t, w.pid())
	t.Logf("%d objects were held and are gone", len(held))
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Empty(t, entries, "no file that is not complete")

	// At random moments of the start, and of the end. On an idle machine the
	// start takes about 0.5 s and the end 0.1 s.
	seed := uint64(time.Now().UnixNano())
	random := rand.New(rand.NewPCG(seed, 0))
	t.Logf("seed %d", seed)
	for range 5 {
		r := start(t, append(files, "--pid", fmt.Sprint(w.pid()))...)
		time.Sleep(time.Duration(random.Int64N(int64(900 * time.Millisecond))))
		r.kill()
	}
	for range 3 {
		r := start(t, append(files, "--pid", fmt.Sprint(w.pid()))...)
		r.waitAttached(w.pid())
		require.NoError(t, r.cmd.Process.Signal(syscall.SIGINT))
		time.Sleep(time.Duration(random.Int64N(int64(150 * time.Millisecond))))
		r.kill()
	}
	requireNothingNew(t, before)
	requireNotPatched(t, w.pid())
	w.stopChurn()
}

func (r *run) kill() {
	r.t.Helper()
	_ = r.cmd.Process.Kill() // it may have ended by itself
	<-r.done
}

func TestGadgetThatEndsLeavesNothingBehind(t *testing.T) {
	w := busy(t)
	before := kernelObjects(t)
	r := start(t, "--pid", fmt.Sprint(w.pid()))
	r.waitRows("rows of the process", w.pid(), allocs(1))
	held := heldBy(fmt.Sprint(r.cmd.Process.Pid))
	code, took := r.interrupt()
	require.Zero(t, code)
	t.Logf("ended in %v", took.Round(time.Millisecond))
	require.Less(t, took, patience/2, "0.5 s on an idle machine")
	requireGone(t, held)
	requireNothingNew(t, before)
	requireNotPatched(t, w.pid())
	w.stopChurn()
}
