// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"cmp"
	"fmt"
	"os/exec"
	"syscall"
	"testing"
	"time"

	apihelpers "github.com/inspektor-gadget/inspektor-gadget/pkg/gadget-service/api-helpers"
	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/internal/process/holder"
	"github.com/gpu-gadgets/gpu-gadgets/internal/profile"
)

// TestIdleHoldersAreReported: a real process that is stopped, with what its rows hold, or with
// what the driver counts where that is more. Work ends it.
func TestIdleHoldersAreReported(t *testing.T) {
	sleep := exec.Command("sleep", "100")
	require.NoError(t, sleep.Start())
	t.Cleanup(func() {
		_ = sleep.Process.Kill()
		_ = sleep.Wait()
	})
	require.NoError(t, sleep.Process.Signal(syscall.SIGSTOP))
	pid := uint32(sleep.Process.Pid)

	store, driver := &Store{}, map[uint32]int64{}
	h := &idleHolders{store: store, driver: func() map[uint32]int64 { return driver },
		tracker: holder.Tracker{ProcFS: "/proc", After: 100 * time.Millisecond}}
	run := store.NewRun("cuda_alloc")
	p := serve(t, settings{listen: "127.0.0.1:0"}, &content{store: store, sources: []Source{h}})
	row := held(profile.Process{ID: 1, PID: pid, Comm: "stale", Namespace: "ml", Pod: "llm-0"}, "device", 0, 100, 40)
	run.Rows([]profile.Row{row, held(row.Process, "host", 0, 7, 0)}, over())
	const labels = `{k8s_container_name="",k8s_namespace_name="ml",k8s_pod_name="llm-0",process_comm="sleep",process_pid="`
	reported := func() (got map[string]float64) {
		for range 4 { // a look after the signal, and one when enough time has passed
			got = having(scrape(t, p.addr), "gpu_idle_holder_memory_bytes")
			time.Sleep(120 * time.Millisecond)
		}
		return got
	}
	suffix := func() string { return fmt.Sprint(pid) + `",reason="stopped"}` }
	require.Equal(t, map[string]float64{labels + suffix(): 60}, reported(), "without pinned memory of the host")
	driver[pid] = 500
	require.Equal(t, map[string]float64{labels + suffix(): 500}, reported())
	for series, seconds := range having(scrape(t, p.addr), "gpu_idle_holder_time_seconds") {
		require.Contains(t, series, `reason="stopped"`)
		require.Greater(t, seconds, 0.2)
	}

	row.AllocObjects++ // it allocates
	run.Rows([]profile.Row{row}, over())
	require.Empty(t, having(scrape(t, p.addr), "gpu_idle_holder"))
	require.NotEmpty(t, reported())
	run.Calls([]Sample{called(row.Process, Call{Operation: "launch"}, 1, 1, 1)}, over())
	require.Empty(t, having(scrape(t, p.addr), "gpu_idle_holder"), "it launches")

	require.NoError(t, sleep.Process.Signal(syscall.SIGCONT))
	require.Empty(t, reported(), "an idle process whose parent is there is none")
}

// The driver's count is of the GPUs of which there are metrics: with several programs on a node,
// one reports a process.
func TestIdleHoldersAreOfTheGPUsAskedFor(t *testing.T) {
	for choice, want := range map[string]string{"auto": "any", "amd": "amd", "/lib/libnvidia-ml.so.1": "/lib/libnvidia-ml.so.1", "off": ""} {
		o := New(Config{Driver: func(path string) func() map[uint32]int64 {
			return func() map[uint32]int64 {
				require.Equal(t, want, cmp.Or(path, "any"), choice)
				return map[uint32]int64{4711: 1}
			}
		}})
		global := apihelpers.ToParamDescs(o.GlobalParams()).ToParams()
		for key, value := range map[string]string{paramNVML: choice, paramHolders: "30m", paramFrozen: "5m"} {
			require.NoError(t, global.Get(key).Set(value))
		}
		require.NoError(t, o.Init(global))
		n := 0
		for _, source := range o.sources {
			var driver func() map[uint32]int64
			switch s := source.(type) {
			case *idleHolders:
				driver = s.driver
			case *frozenProcesses:
				driver = s.driver
			default:
				continue
			}
			n++
			holders, _ := holdersOf(&Store{}, driver)
			require.Equal(t, want != "", holders[4711] != nil, choice)
		}
		require.Equal(t, 2, n)
	}
}

func TestIdleHoldersAreOffUnlessAsked(t *testing.T) {
	for text, want := range map[string]time.Duration{"": 0, "30m": 30 * time.Minute} {
		s, err := parse(func(key string) string { return map[string]string{paramHolders: text}[key] })
		require.NoError(t, err)
		require.Equal(t, want, s.idle)
	}
	for _, text := range []string{"5s", "soon"} {
		_, err := parse(func(key string) string { return map[string]string{paramHolders: text}[key] })
		require.ErrorContains(t, err, "--metrics-idle-holders")
	}
}
