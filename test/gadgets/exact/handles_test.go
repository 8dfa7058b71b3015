// SPDX-License-Identifier: Apache-2.0

package exact

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/test/support/simulated"
	"github.com/gpu-gadgets/gpu-gadgets/test/support/subject"
	"github.com/gpu-gadgets/gpu-gadgets/test/support/tracer"
)

// A driver reuses a handle's number at once: another thread may have it before the probe
// on the return of the call that ended the first has run. HANDLE_ROUNDS are the rounds of
// each thread.
func TestHandleNumbersAreReusedAtOnce(t *testing.T) {
	const threads = 8
	rounds := "2000"
	if v := os.Getenv("HANDLE_ROUNDS"); v != "" {
		rounds = v
	}
	lib := simulated.DriverCopy(t)
	program := filepath.Join(t.TempDir(), "handles")
	out, err := exec.Command("cc", "-O2", "-fno-omit-frame-pointer", "-Wall", "-Werror",
		"-I", filepath.Join(simulated.Root(), "examples/simcuda"),
		"-o", program, "testdata/handles.c", "-ldl", "-lpthread").CombinedOutput()
	require.NoError(t, err, string(out))
	tr := tracer.Start(t, lib, tracer.Options{Offset: 10})
	p := subject.Start(t, exec.Command(program, lib, fmt.Sprint(threads), rounds))
	p.Timeout = time.Hour
	var bytes, objects uint64
	line := p.Line()
	_, err = fmt.Sscan(line, &bytes, &objects)
	require.NoError(t, err, line)
	var got tracer.Row
	for _, r := range tr.Rows() {
		require.Equal(t, "vmm", r.Kind)
		got.AllocBytes += r.AllocBytes
		got.AllocObjects += r.AllocObjects
		got.FreedBytes += r.FreedBytes
		got.FreedObjects += r.FreedObjects
		got.ImplicitObjects += r.ImplicitObjects
	}
	require.Equal(t, tracer.Row{
		AllocBytes: bytes, AllocObjects: objects, FreedBytes: bytes, FreedObjects: objects,
	}, got)
	require.Empty(t, tr.Drops())
	require.Zero(t, tr.Len("handles_by_number"))
	require.Zero(t, tr.Len("mappings_by_address"))
	p.End()
}
