// SPDX-License-Identifier: Apache-2.0

package hostile

import (
	"fmt"
	"os/exec"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/test/support/simulated"
	"github.com/gpu-gadgets/gpu-gadgets/test/support/subject"
	"github.com/gpu-gadgets/gpu-gadgets/test/support/subject/iggpu"
	"github.com/gpu-gadgets/gpu-gadgets/test/support/subject/usage"
)

// maxLatency is promised by SECURITY.md, on the machine that its limits are for. With nothing else to do it is below one second: a
// library whose event was lost is found by the next scan.
const maxLatency = 2 * time.Second

// latency is the longest time until a new library was attached to: as measured, and as it is on a machine with nothing
// else to do.
type latency struct{ raw, alone time.Duration }

func (l *latency) add(other latency) {
	l.raw, l.alone = max(l.raw, other.raw), max(l.alone, other.alone)
}

func (l latency) String() string {
	return fmt.Sprintf("%v (%v as measured)", l.alone.Round(time.Millisecond), l.raw.Round(time.Millisecond))
}

// require compares with what is promised, on a machine so many times slower than that of SECURITY.md. How much slower it is
// now is measured again only where that matters.
func (l latency) require(t *testing.T, slower float64) {
	t.Helper()
	limit := func() time.Duration { return time.Duration(slower * float64(maxLatency)) }
	if l.alone >= limit() {
		slower = max(slower, slowness(t))
	}
	require.Less(t, l.alone, limit(), "measured: %v", l.raw)
}

// newLibrary starts a process with a driver that no process has mapped before, and returns how long it
// takes until that is attached to. On a machine with nothing else to do, it is a third of it where ig-gpu's threads wait for a
// processor twice as long as they run.
func newLibrary(t *testing.T, r *iggpu.Run) latency {
	t.Helper()
	p := subject.Start(t, exec.Command("python3", "-c", fmt.Sprintf(
		"import ctypes, sys, time\nctypes.CDLL(%q)\nprint(time.time_ns(), flush=True)\nsys.stdin.read()", simulated.DriverCopy(t))))
	ranBefore, waitedBefore, err := usage.Scheduled(r.PID())
	require.NoError(t, err)
	mapped, err := strconv.ParseInt(p.Line(), 10, 64)
	require.NoError(t, err)
	attached := r.WaitAttached(p.PID())
	ran, waited, err := usage.Scheduled(r.PID())
	require.NoError(t, err)
	p.End()
	took := max(0, attached.Sub(time.Unix(0, mapped)))
	ran, waited = max(1, ran-ranBefore), max(0, waited-waitedBefore)
	return latency{took, time.Duration(float64(took) * float64(ran) / float64(ran+waited))}
}
