// SPDX-License-Identifier: Apache-2.0

package exact

import (
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/test/support/simulated"
	"github.com/gpu-gadgets/gpu-gadgets/test/support/subject"
	"github.com/gpu-gadgets/gpu-gadgets/test/support/tracer"
)

// A process that execs keeps its pid and start time, but its memory is freed; a killed
// one makes no final call; and nested driver calls count once.
func TestExecKillAndNestedCallsAreExact(t *testing.T) {
	t.Setenv("SIMCUDA_NEST", "1")
	lib := simulated.DriverCopy(t)
	dir := t.TempDir()
	tr := tracer.Start(t, lib, tracer.Options{Offset: 10, Edit: allRefusals})
	workload(t, lib, dir, func() {
		requireEqual(t, "alive, by stack", expected(t, dir, false), got(tr.Rows()))
	}, "--calls", strconv.Itoa(subject.Volume(8000, 40000)), "--processes", "7", "--exec", "--kill-last", "--seed", "2")
	requireEqual(t, "exited, by stack", expected(t, dir, true), got(tr.Rows()))
	require.Empty(t, tr.Drops())
}
