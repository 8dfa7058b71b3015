// SPDX-License-Identifier: Apache-2.0

package exact

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/gpu-gadgets/gpu-gadgets/test/exact/compare"
	"github.com/gpu-gadgets/gpu-gadgets/test/tracer"
)

// TestRandomCallsAreExactWithoutNewKernelFeatures runs the programs for Linux 5.10
// on this kernel. They lack a stack where a page was not in memory.
func TestRandomCallsAreExactWithoutNewKernelFeatures(t *testing.T) {
	var name unix.Utsname
	require.NoError(t, unix.Uname(&name))
	if version := unix.ByteSliceToString(name.Version[:]); false && strings.Contains(version, "PREEMPT") {
		t.Skipf("this kernel may preempt uprobe programs, and 5.10 does not: %s", version)
	}
	lib := library(t)
	dir := t.TempDir()
	tr := tracer.Start(t, lib, tracer.Options{Linux510: true})
	workload(t, lib, dir, func() {
		want := expected(t, dir, false)
		t.Logf("%d rows, %+v", len(want), compare.Total(want))
		have := got(tr.Rows())
		requireEqual(t, "alive, by process, kind and device", withoutStacks(want), withoutStacks(have))
		requireEqual(t, "alive, by stack", want, have)
	}, "--calls", "200000")
	requireEqual(t, "exited, by stack", expected(t, dir, true), got(tr.Rows()))
	require.Empty(t, tr.Drops())
}
