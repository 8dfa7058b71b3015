// SPDX-License-Identifier: Apache-2.0

package pytorch

import (
	"fmt"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestThreadsHaveTheirRole: a dump says what each thread does that PyTorch names.
func TestThreadsHaveTheirRole(t *testing.T) {
	t.Parallel()
	p := begin(t, nil, "processes.py", "roles")
	var imported struct{ Imported string }
	var s said
	p.request("", &imported)
	p.request("", &s)
	want := []string{
		"pt_autograd_0, backward work on device 0",
		"pt_data_pin, pins batches for the thread that iterates over a DataLoader",
		fmt.Sprintf("pt_data_worker, a DataLoader's worker process of process %d", p.PID()),
		"pt_nccl_heartbt, watches the watchdog of NCCL's collectives",
		"pt_nccl_watchdg, watches a process group's collectives of NCCL",
		"pt_tcpstore, serves the key-value store of torch.distributed",
		"PTThreadPool, tasks between operations (torch.jit.fork)",
		fmt.Sprintf("python3.13, compiles for torch.compile in process %d", p.PID()),
	}
	thread := regexp.MustCompile(`(?m)^Thread \d+ \([^)]*\): "([^"]*)"(, .*)?$`)
	var text []byte
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(100 * time.Millisecond) {
		var err error
		text, err = exec.Command("../../../bin/ig-gpu", "run", "py_stack", "--host", "--mode", "dump", "--pid", fmt.Sprint(p.PID())).Output()
		require.NoError(t, err)
		have := map[string]bool{}
		for _, m := range thread.FindAllStringSubmatch(string(text), -1) {
			have[m[1]+m[2]] = true
		}
		missing := 0
		for _, one := range want {
			if !have[one] {
				missing++
			}
		}
		if missing == 0 {
			for one := range have {
				if strings.HasPrefix(strings.ToLower(one), "pt") {
					require.Contains(t, one, ", ", "a thread that PyTorch has named, without a role")
				}
			}
			return
		}
		require.True(t, time.Now().Before(deadline), "%d of %q are missing in\n%s", missing, want, text)
	}
}
