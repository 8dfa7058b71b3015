// SPDX-License-Identifier: Apache-2.0

package exact

import (
	"os/exec"
	"runtime"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/test/support/compare"
	"github.com/gpu-gadgets/gpu-gadgets/test/support/simulated"
	"github.com/gpu-gadgets/gpu-gadgets/test/support/subject"
	"github.com/gpu-gadgets/gpu-gadgets/test/support/tracer"
)

// hipLibrary is a simulated libamdhip64 of this test alone.
func hipLibrary(t *testing.T) string {
	t.Helper()
	if runtime.GOARCH != "amd64" {
		t.Skip("HIP is for x86-64")
	}
	return simulated.Copy(t, t.TempDir(), "simhip", "libamdhip64.so.6")
}

// With one device, hipDeviceReset frees managed and pinned memory as well.
func TestRandomHIPCallsWithOneDeviceAreExact(t *testing.T) {
	requireExactHIP(t, tracer.Options{Edit: allRefusals}, subject.Volume(6000, 50000), "--devices", "1")
}

// EXACT_CALLS=200000 makes as many calls as the test of cuda_alloc, whose programs are the same.
func TestRandomHIPCallsAreExact(t *testing.T) {
	requireExactHIP(t, tracer.Options{Edit: allRefusals}, callsFrom(t, "EXACT_CALLS", subject.Volume(12000, 200000)))
}

func requireExactHIP(t *testing.T, o tracer.Options, calls int, args ...string) {
	t.Helper()
	lib, dir := hipLibrary(t), t.TempDir()
	tr := tracer.StartHIP(t, lib, o)
	cmd := exec.Command("python3", append([]string{"workload.py", "--hip", lib, "--out", dir, "--hold", "--calls", strconv.Itoa(calls)}, args...)...)
	hold(t, cmd, func() {
		want := expected(t, dir, false)
		t.Logf("%d rows, %+v", len(want), compare.Total(want))
		have := got(tr.Rows())
		requireEqual(t, "alive, by process, kind and device", withoutStacks(want), withoutStacks(have))
		requireEqual(t, "alive, by stack", want, have)
	})
	requireEqual(t, "exited, by stack", expected(t, dir, true), got(tr.Rows()))
	requireRefusedArrays(t, dir, tr)
	require.Empty(t, tr.Drops())
}

// A thread that is older than the gadget may have called hipSetDevice: its device is unknown
// until a call of it has answered. A thread that starts later is on device 0.
func TestDeviceOfThreadsThatWereThereBefore(t *testing.T) {
	lib := hipLibrary(t)
	p := subject.Start(t, exec.Command("python3", "hip_device.py", lib))
	require.Equal(t, "ready", p.Line())
	tr := tracer.StartHIP(t, lib, tracer.Options{})
	p.Request("")
	devices := map[int32]uint64{}
	for _, r := range tr.Rows() {
		devices[r.Device] += r.InuseBytes
	}
	require.Equal(t, map[int32]uint64{-1: 1 << 10, 0: 1 << 11, 1: 1 << 12}, devices)
	p.Say("")
	p.Wait()
}
