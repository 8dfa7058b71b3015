// SPDX-License-Identifier: Apache-2.0

package verbs

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

// usingHIP is a process that allocates and copies on a simulated HIP until the test ends.
func usingHIP(t *testing.T) string {
	t.Helper()
	if runtime.GOARCH != "amd64" {
		t.Skip("HIP is for x86-64")
	}
	w := subject.Start(t, exec.Command("python3", "../e2e/testdata/hip.py", simulated.Copy(t, t.TempDir(), "simhip", "libamdhip64.so.6")))
	require.Equal(t, "ready", w.Line())
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			select {
			case <-stop:
				return
			case <-time.After(50 * time.Millisecond):
				w.Request("alloc 1048576")
				w.Request("copy 4096")
				w.Request("release 2097152")
			}
		}
	}()
	t.Cleanup(func() { close(stop); <-stopped })
	return fmt.Sprint(w.PID())
}

// Without a word about the vendor: the library that the process has mapped decides.
func TestCommandsKnowHIP(t *testing.T) {
	pid := usingHIP(t)
	out, text, err := igGPU(t, "explain", pid, "--for", "4s")
	require.NoError(t, err, text)
	require.Contains(t, out, "allocate (hip.py:15)")
	require.Contains(t, out, "ig-gpu run hip_alloc")
	require.Regexp(t, `MiB was released by hipMemRelease and is still held, until hipMemAddressFree frees its address range:\n.*by release \(hip.py:\d+\)`, out)
	require.NotContains(t, out, "cuda_alloc")
	require.NotContains(t, out, "had not loaded")

	file := filepath.Join(t.TempDir(), "calls.json.gz")
	_, text, err = igGPU(t, "record", pid, "--what", "launches", "--for", "3s", "-o", file)
	require.NoError(t, err, text)
	st, err := os.Stat(file)
	require.NoError(t, err, text)
	require.Positive(t, st.Size())

	out, _, _ = igGPU(t, "check", pid, "-o", "json") // a test machine may have missing parts
	require.Contains(t, out, `"name":"HIP","status":"ok"`)
	require.Contains(t, out, `"name":"hip_alloc","status":"ok"`)
	require.NotContains(t, out, "cuda_alloc")
}
