// SPDX-License-Identifier: Apache-2.0

package exact

import (
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/internal/ig"
	"github.com/gpu-gadgets/gpu-gadgets/test/support/bpftest"
	"github.com/gpu-gadgets/gpu-gadgets/test/support/simulated"
	"github.com/gpu-gadgets/gpu-gadgets/test/support/tracer"
)

// Until the end of a pause the rows are left out, and counted; then each is there again.
func TestRowsAreLeftOutDuringAPause(t *testing.T) {
	bpftest.RequireMapIterators(t)
	const until, leftOut = uint32(0), uint32(1)
	lib := simulated.DriverCopy(t)
	tr := tracer.Start(t, lib, tracer.Options{})
	p := script(t, `
cu("cuCtxSetCurrent", context)
def nested(n):
    return nested(n - 1) if n else cu("cuMemAlloc_v2", byref(p), c_size_t(4096))
for n in range(20):
    nested(n)
step()
`, lib)
	p.Expect("ready")
	rows := len(tr.Rows())
	require.Greater(t, rows, 19)
	pause := tr.Maps["reading_pause"]
	count := func() (n uint64) {
		require.NoError(t, pause.Lookup(leftOut, &n))
		return n
	}
	require.Zero(t, count())
	require.NoError(t, pause.Update(until, uint64(ig.SinceBoot()+time.Hour), ebpf.UpdateAny))
	require.Empty(t, tr.Rows())
	require.EqualValues(t, rows, count())
	require.NoError(t, pause.Update(until, uint64(ig.SinceBoot()), ebpf.UpdateAny))
	require.Len(t, tr.Rows(), rows)
	require.EqualValues(t, rows, count())
	p.Say("")
	p.End()
}
