// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"bufio"
	"fmt"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/internal/process/frozen"
	"github.com/gpu-gadgets/gpu-gadgets/internal/profile"
)

// TestFrozenProcessesAreReported: two real processes that wait for each other, of which one holds
// memory; with the pod of its rows, until it holds nothing.
func TestFrozenProcessesAreReported(t *testing.T) {
	cmd := exec.Command("python3", "../../../internal/process/waits/testdata/waiter.py", "pipe")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		_ = cmd.Wait()
	})
	_, err = bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	pid := uint32(cmd.Process.Pid)

	store := &Store{}
	f := &frozenProcesses{store: store, standstill: frozen.Standstill{ProcFS: "/proc", After: 200 * time.Millisecond}}
	run := store.NewRun("cuda_alloc")
	p := serve(t, settings{listen: "127.0.0.1:0"}, &content{store: store, sources: []Source{f}})
	row := held(profile.Process{ID: 1, PID: pid, Comm: "stale", Namespace: "ml", Pod: "llm-0", Labels: "request=/chat,team=a"}, "device", 0, 100, 40)
	other := row // of another request: the series is one, which does not change with the requests that there are
	other.Process.Labels = "request=/summary,team=a"
	run.Rows([]profile.Row{row, other}, over())
	want := `{circle="true",k8s_container_name="",k8s_namespace_name="ml",k8s_pod_name="llm-0",process_comm="python3",process_pid="` +
		fmt.Sprint(pid) + `",request="",team="a",waits_for="pipe"}`
	require.Eventually(t, func() bool {
		return having(scrape(t, p.addr), "gpu_frozen_process_time_seconds")[want] > 0.2
	}, 20*time.Second, 100*time.Millisecond, "%s in %v", want, having(scrape(t, p.addr), "gpu_frozen"))

	row.FreedBytes, row.InuseBytes = row.AllocBytes, 0
	other.Values = row.Values
	run.Rows([]profile.Row{row, other}, over())
	require.Empty(t, having(scrape(t, p.addr), "gpu_frozen"))
}

// A scrape does not wait for the look of another one: it gets what the last look has found of processes that still hold memory.
func TestAScrapeDuringALookHasTheLastAnswer(t *testing.T) {
	store := &Store{}
	store.NewRun("cuda_alloc").Rows([]profile.Row{held(profile.Process{ID: 1, PID: 7}, "device", 0, 100, 40)}, over())
	f := &frozenProcesses{store: store, last: []frozen.Still{{PID: 7, WaitsFor: "pipe"}, {PID: 8}}}
	f.looking.Lock()
	all, _ := f.look()
	require.Equal(t, f.last[:1], all)
	f.looking.Unlock()
	f.standstill = frozen.Standstill{ProcFS: t.TempDir(), After: time.Minute}
	all, _ = f.look()
	require.Empty(t, all)
	require.Empty(t, f.last)
}

func TestFrozenProcessesAreOffUnlessAsked(t *testing.T) {
	for text, want := range map[string]string{"": "0s", "5m": "5m0s", "1s": "--metrics-frozen", "soon": "--metrics-frozen"} {
		s, err := parse(func(key string) string { return map[string]string{paramFrozen: text}[key] })
		if strings.HasPrefix(want, "--") {
			require.ErrorContains(t, err, want)
			continue
		}
		require.NoError(t, err)
		require.Equal(t, want, s.frozen.String())
	}
}
