// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/test/support/simulated"
	"github.com/gpu-gadgets/gpu-gadgets/test/support/subject"
)

// launched is a row of hip_kernel.
type launched struct {
	Operation, Kernel, API, Direction, Error, Frame string
	Calls, Bytes, Blocks, Threads                   uint64
	Device                                          int32
	Grid                                            uint32 `json:"grid_y"`
}

// callsOf returns the last rows of a run that has ended, by function.
func callsOf(t *testing.T, r *run) map[string]launched {
	t.Helper()
	all := map[string]launched{}
	for line := range bytes.Lines(r.stdout.Bytes()) {
		if !bytes.HasPrefix(line, []byte("[")) || !bytes.Contains(line, []byte(`"operation"`)) {
			continue
		}
		var rows []launched
		require.NoError(t, json.Unmarshal(line, &rows), "%s", line)
		for _, row := range rows {
			all[row.API] = row
		}
	}
	return all
}

// The kernel's name is the one that the program has registered, demangled.
func TestLaunchesOfHIPAreShownByLine(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		t.Skip("HIP is for x86-64")
	}
	for _, mode := range []string{"multi", "perf"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			library := simulated.Copy(t, t.TempDir(), "simhip", "libamdhip64.so.6")
			w := subject.Start(t, exec.Command("python3", "testdata/hip.py", library))
			require.Equal(t, "ready", w.Line())
			do := func(result int, format string, args ...any) {
				require.Equal(t, fmt.Sprintf("ok %d", result), w.Request(format, args...))
			}
			r := launch(t, exec.Command(program(t), "run", "hip_kernel", "--pid", fmt.Sprint(w.PID()), "--attach-mode", mode,
				"-o", "calls:json,attachments:json,drops:json"))
			require.Equal(t, filepath.Base(library), filepath.Base(r.waitAttached(w.PID()).Path))
			const unregistered = 98 // hipErrorInvalidDeviceFunction
			do(unregistered, "launch")
			do(0, "register")
			do(0, "device 1")
			for range 3 {
				do(0, "copy 4096")
			}
			do(0, "wait")
			code, _ := r.interrupt()
			require.Zero(t, code)
			require.Empty(t, r.lost())
			calls := callsOf(t, r)
			require.Equal(t, launched{Operation: "launch", API: "hipLaunchKernel", Kernel: "[kernel 0x5000]", Calls: 1, Blocks: 8,
				Threads: 512, Grid: 2, Device: -1, Error: "hipErrorInvalidDeviceFunction", Frame: "launch (hip.py:59)"}, calls["hipLaunchKernel"])
			require.Equal(t, launched{Operation: "copy", API: "hipMemcpy", Direction: "HtoD", Calls: 3, Bytes: 3 * 4096, Device: 1,
				Frame: "copy (hip.py:63)"}, calls["hipMemcpy"])
			require.Equal(t, "wait", calls["hipDeviceSynchronize"].Operation)
		})
	}
}

// The gadget is older than the program: it has seen the registration, and knows the device.
func TestKernelsOfHIPHaveTheirRegisteredNames(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		t.Skip("HIP is for x86-64")
	}
	library := simulated.Copy(t, t.TempDir(), "simhip", "libamdhip64.so.6")
	w := subject.Start(t, exec.Command("python3", "testdata/hip.py", library))
	require.Equal(t, "ready", w.Line())
	r := launch(t, exec.Command(program(t), "run", "hip_kernel", "--pid", fmt.Sprint(w.PID()), "-o", "calls:json,attachments:json,drops:json"))
	r.waitAttached(w.PID())
	for _, command := range []string{"register", "launch", "launch"} {
		require.Equal(t, "ok 0", w.Request("%s", command))
	}
	code, _ := r.interrupt()
	require.Zero(t, code)
	require.Empty(t, r.lost())
	row := callsOf(t, r)["hipLaunchKernel"]
	require.EqualValues(t, 2, row.Calls)
	require.Equal(t, "at::native::vectorized(float*, int)", row.Kernel)
}
