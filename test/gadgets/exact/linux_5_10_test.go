// SPDX-License-Identifier: Apache-2.0

package exact

import (
	"compress/gzip"
	"io"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/gpu-gadgets/gpu-gadgets/test/support/compare"
	"github.com/gpu-gadgets/gpu-gadgets/test/support/simulated"
	"github.com/gpu-gadgets/gpu-gadgets/test/support/subject"
	"github.com/gpu-gadgets/gpu-gadgets/test/support/tracer"
)

// kernelConfig returns the kernel's build configuration; empty if it is not available.
func kernelConfig() string {
	if f, err := os.Open("/proc/config.gz"); err == nil {
		defer f.Close()
		if z, err := gzip.NewReader(f); err == nil {
			text, _ := io.ReadAll(z)
			return string(text)
		}
	}
	var name unix.Utsname
	_ = unix.Uname(&name)
	text, _ := os.ReadFile("/boot/config-" + unix.ByteSliceToString(name.Release[:]))
	return string(text)
}

// requireOldPrograms skips where the programs for Linux 5.10 cannot run.
func requireOldPrograms(t *testing.T) {
	t.Helper()
	// Since 6.0 uprobe programs may be preempted where the kernel may be.
	config := kernelConfig()
	commandLine, err := os.ReadFile("/proc/cmdline")
	require.NoError(t, err)
	if strings.Contains(string(commandLine), "preempt=") ||
		!strings.Contains(config, "CONFIG_PREEMPT_NONE=y") && !strings.Contains(config, "CONFIG_PREEMPT_VOLUNTARY=y") {
		t.Skip("this kernel may preempt uprobe programs, or its configuration is unknown, and Linux 5.10 does not:" +
			" neither CONFIG_PREEMPT_NONE nor CONFIG_PREEMPT_VOLUNTARY in its configuration")
	}
}

// TestRandomCallsAreExactWithoutNewKernelFeatures runs the programs for Linux 5.10
// on this kernel.
func TestRandomCallsAreExactWithoutNewKernelFeatures(t *testing.T) {
	requireOldPrograms(t)
	lib := simulated.DriverCopy(t)
	dir := t.TempDir()
	tr := tracer.Start(t, lib, tracer.Options{Linux510: true, Edit: allRefusals})
	workload(t, lib, dir, func() {
		want := expected(t, dir, false)
		t.Logf("%d rows, %+v", len(want), compare.Total(want))
		have := got(tr.Rows())
		requireEqual(t, "alive, by process, kind and device", withoutStacks(want), withoutStacks(have))
		requireEqual(t, "alive, by stack", want, have)
	}, "--calls", strconv.Itoa(subject.Volume(10000, 50000)))
	requireEqual(t, "exited, by stack", expected(t, dir, true), got(tr.Rows()))
	require.Empty(t, tr.Drops())
}

// What is held by an address range is not known there: memory is freed when it was released and
// unmapped.
func TestRandomHIPCallsAreExactWithoutNewKernelFeatures(t *testing.T) {
	requireOldPrograms(t)
	t.Setenv("SIMHIP_HELD", "0")
	requireExactHIP(t, tracer.Options{Linux510: true, Edit: allRefusals}, subject.Volume(5000, 50000))
}
