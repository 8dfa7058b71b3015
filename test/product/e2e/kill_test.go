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

	"github.com/gpu-gadgets/gpu-gadgets/test/support/subject"
)

// busy is a workload that allocates and frees until it is stopped.
func busy(t *testing.T) *subject.Steps {
	t.Helper()
	w := subject.StartSteps(t)
	w.Load()
	require.Equal(t, "ok churning", w.Request("churn 65536"))
	return w
}

// stopChurn ends the loop; the driver must have granted every call.
func stopChurn(t testing.TB, w *subject.Steps) {
	t.Helper()
	before := w.Truth().Calls
	eventually(t, "the workload goes on", func() bool { return w.Truth().Calls > before })
	w.Say("stop")
	for range 2 { // the answers to churn and to stop
		w.Expect("ok 0")
	}
	require.Zero(t, w.Truth().Failed)
	w.End()
}

func TestKilledGadgetLeavesNothingBehind(t *testing.T) {
	w := busy(t)
	before := kernelObjects(t)
	requireNotPatched(t, w.PID())
	dir := t.TempDir()
	files := []string{"--pprof-out", filepath.Join(dir, "out.pb.gz"), "--flamegraph-out", filepath.Join(dir, "out.html")}

	// While it runs, its objects are listed; afterwards they are gone.
	r := start(t, append(files, "--pid", fmt.Sprint(w.PID()))...)
	r.waitRows("rows of the process", w.PID(), allocs(1))
	require.True(t, isPatched(t, w.PID()), "else the comparison sees no probes")
	require.NoError(t, r.cmd.Process.Signal(syscall.SIGSTOP))
	held := heldBy(fmt.Sprint(r.cmd.Process.Pid))
	require.Greater(t, len(held), 20)
	r.kill()
	requireGone(t, held)
	requireNothingNew(t, before)
	requireNotPatched(t, w.PID())
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
		r := start(t, append(files, "--pid", fmt.Sprint(w.PID()))...)
		time.Sleep(time.Duration(random.Int64N(int64(900 * time.Millisecond))))
		r.kill()
	}
	for range 3 {
		r := start(t, append(files, "--pid", fmt.Sprint(w.PID()))...)
		r.waitAttached(w.PID())
		require.NoError(t, r.cmd.Process.Signal(syscall.SIGINT))
		time.Sleep(time.Duration(random.Int64N(int64(150 * time.Millisecond))))
		r.kill()
	}
	requireNothingNew(t, before)
	requireNotPatched(t, w.PID())
	stopChurn(t, w)
}

func (r *run) kill() {
	r.t.Helper()
	_ = r.cmd.Process.Kill() // it may have ended by itself
	<-r.done
}

func TestGadgetThatEndsLeavesNothingBehind(t *testing.T) {
	w := busy(t)
	before := kernelObjects(t)
	r := start(t, "--pid", fmt.Sprint(w.PID()))
	r.waitRows("rows of the process", w.PID(), allocs(1))
	held := heldBy(fmt.Sprint(r.cmd.Process.Pid))
	code, took := r.interrupt()
	require.Zero(t, code)
	t.Logf("ended in %v", took.Round(time.Millisecond))
	require.Less(t, took, waitLimit/2, "0.5 s on an idle machine")
	requireGone(t, held)
	requireNothingNew(t, before)
	requireNotPatched(t, w.PID())
	stopChurn(t, w)
}
