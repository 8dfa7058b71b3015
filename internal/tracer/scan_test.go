// SPDX-License-Identifier: Apache-2.0

package tracer

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/internal/process/procevents"
)

// Where events report what processes do, a machine with many is scanned less often: scans take no more than a
// share of a core. Without events, and after some were lost, every tick scans.
func TestScansOfManyProcessesAreRare(t *testing.T) {
	const tick = time.Second
	scans := func(tr *Tracer, processes int) (n int) {
		for now, end := time.Unix(0, 0), time.Unix(60, 0); now.Before(end); now = now.Add(tick) {
			if tr.scanIsDue(now) {
				n++
				tr.nextScan = nextScan(now.Add(30*time.Millisecond), processes, tick)
			}
		}
		return n
	}
	for processes, want := range map[int]int{10: 60, 3000: 60, 8000: 30, 1_000_000: 12} {
		tr := &Tracer{events: &procevents.Reader{}}
		require.Equal(t, want, scans(tr, processes), "of %d processes in a minute", processes)
		tr.rescanAll = true
		require.Equal(t, 60, scans(tr, processes), "after a loss")
		require.Equal(t, 60, scans(&Tracer{}, processes), "without events")
	}
}
