// SPDX-License-Identifier: Apache-2.0

package feed

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// nothing emits a reading without rows.
func (d *daemon) nothing() {
	d.t.Helper()
	p, err := d.ds.NewPacketArray()
	require.NoError(d.t, err)
	d.emit("allocs", p)
}

// TestAProcessThatWasOnlyRefusedEnds: a pod that restarts again and again on a full GPU has a
// process each time, none of which has a row.
func TestAProcessThatWasOnlyRefusedEnds(t *testing.T) {
	d, f, _, now := setup(t, true)
	reader := f.cfg.Store.NewReader()
	d.nothing()
	c := d.attach(f, now)
	d.refused(now.Add(time.Second))
	c.next(now.Add(time.Second))
	seen := 0
	for n := range 120 {
		d.nothing()
		c.next(now.Add(time.Duration(2+n) * time.Second))
		if samples := reader.Read().Samples; len(samples) > 0 {
			require.EqualValues(t, 1, samples[0].Failed)
			seen++
		}
	}
	require.Greater(t, seen, 30)
	require.Less(t, seen, 100)
}

func TestRefusedAllocationsAreReportedOnce(t *testing.T) {
	d, f, s, now := setup(t, false)
	d.refused(now.Add(-time.Minute))
	d.allocated(1)
	c := d.attach(f, now)
	require.Zero(t, s.ooms, "it was before our time")
	d.refused(now.Add(time.Second))
	c.next(now.Add(time.Second))
	require.Equal(t, 1, s.ooms)
	f.Disconnected(now)
	d.refused(now.Add(2 * time.Second))
	d.attach(f, now.Add(3*time.Second))
	require.Equal(t, 2, s.ooms, "the one meanwhile is new, the other is not")
}
