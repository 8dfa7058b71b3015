// SPDX-License-Identifier: Apache-2.0

package verb

import (
	"bytes"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/internal/process/holder"
	"github.com/gpu-gadgets/gpu-gadgets/internal/profile"
)

// TestExplainNamesAnIdleHolder: a real process that is stopped and holds memory; none where it
// holds nothing, or called the driver meanwhile.
func TestExplainNamesAnIdleHolder(t *testing.T) {
	sleep := exec.Command("sleep", "100")
	require.NoError(t, sleep.Start())
	t.Cleanup(func() {
		_ = sleep.Process.Kill()
		_ = sleep.Wait()
	})
	pid := uint32(sleep.Process.Pid)
	require.NoError(t, sleep.Process.Signal(syscall.SIGSTOP))
	require.Eventually(t, func() bool {
		s, err := holder.Read("/proc", pid)
		return err == nil && s.Mode == 'T'
	}, 10*time.Second, time.Millisecond)

	watch := func(inuse, launches int64) []holder.Verdict {
		f := newFacts([]uint32{pid}, 200*time.Millisecond)
		end := watchHolders(Config{ProcFS: "/proc"}, f)
		time.Sleep(150 * time.Millisecond)
		f.peaks.rows = map[profile.RowID]*peakRow{{}: {row: profile.Row{Process: profile.Process{PID: pid}, Kind: "device", Values: profile.Values{InuseBytes: inuse}}}}
		f.waits["f"] = &waiting{launches: uint64(launches)}
		return end()
	}
	require.Empty(t, watch(0, 0), "holds nothing")
	require.Empty(t, watch(12<<30, 1), "launches")
	got := watch(12<<30, 0)
	require.Len(t, got, 1)
	require.Equal(t, holder.Stopped, got[0].Reason)

	f := newFacts([]uint32{pid}, 10*time.Second)
	f.holders = []holder.Verdict{{Holder: holder.Holder{PID: 4711, Bytes: 12 << 30}, Comm: "python3", Reason: holder.Orphan, Idle: 10 * time.Second, Age: 3 * time.Hour},
		{Holder: holder.Holder{PID: 815, Bytes: 1 << 30}, Comm: "python3", Reason: holder.Blocked, Idle: 10 * time.Second, Age: time.Minute}}
	var out bytes.Buffer
	require.NoError(t, writeSentences(&out, compose(f), false))
	require.Contains(t, out.String(), `Idle holder
  - python3[4711] has outlived its parent; it has done nothing for 10s. It holds 12.0 GiB of GPU memory and began 3h0m0s ago.
    kill 4711 ends it and gives the memory back, if no other process waits for it.
`)
	require.Contains(t, out.String(), "python3[815] waits in the kernel and cannot be interrupted (state D)")
	require.Contains(t, out.String(), "No signal ends it")
}

// TestANameAddsNoLineToAnExplanation: processes choose theirs.
func TestANameAddsNoLineToAnExplanation(t *testing.T) {
	const comm = "a\n  - kill 1"
	f := newFacts([]uint32{7}, 10*time.Second)
	f.holders = []holder.Verdict{{Holder: holder.Holder{PID: 7, Bytes: 1}, Comm: comm, Reason: holder.Orphan}}
	var out bytes.Buffer
	require.NoError(t, writeSentences(&out, compose(f), false))
	require.Contains(t, out.String(), "a\ufffd  - kill 1[7] has outlived its parent")
	require.NotContains(t, out.String(), comm)
}
