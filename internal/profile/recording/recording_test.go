// SPDX-License-Identifier: Apache-2.0

package recording

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/internal/profile"
)

// A row of samples that the kernel forgot and begins again goes on from where it was.
func TestSamplesThatBeginAgainAddUp(t *testing.T) {
	r := &Recording{}
	id := profile.RowID{Process: 1, StackID: 2}
	for _, samples := range []int64{5, 9, -1, 2, 4, 3, 8} {
		r.Begin(time.Unix(1, 0))
		if samples >= 0 {
			r.See(id, profile.Values{Samples: samples, GILSamples: samples - 1, Nanoseconds: 10 * samples},
				func() profile.Row { return profile.Row{} })
		}
		r.End()
	}
	require.Equal(t, profile.Values{Samples: 9 + 4 + 8, GILSamples: 8 + 3 + 7, Nanoseconds: 210}, r.Profile().Rows[0].Values)
}

// What was held at the peak stays when the process has ended.
func TestThePeakOutlivesItsProcess(t *testing.T) {
	r := &Recording{}
	at := time.Date(2026, 9, 30, 12, 0, 0, 0, time.UTC)
	for second, rows := range []map[uint64]int64{{1: 100, 2: 10}, {1: 40, 2: 90}, {1: 40, 2: 5}, {}} {
		r.Begin(at.Add(time.Duration(second) * time.Second))
		for stack, inuse := range rows {
			values := profile.Values{AllocBytes: 100, AllocObjects: 1, FreedBytes: 100 - inuse, InuseBytes: inuse, PeakBytes: 100}
			_, changed := r.See(profile.RowID{Process: 1, StackID: stack}, values, func() profile.Row { return profile.Row{Thread: uint32(stack), Kind: "device"} })
			require.True(t, changed || stack == 1 && second == 2)
		}
		r.End()
	}
	held := map[uint32]int64{}
	p := r.Profile()
	for _, row := range p.Rows {
		held[row.Thread] = row.AtPeakBytes
		require.Zero(t, row.InuseBytes)
	}
	require.Equal(t, map[uint32]int64{1: 40, 2: 90}, held)
	require.Equal(t, []string{"[0] held the most on GPU 0 at 12:00:01: 130 B; between two readings at most 200 B"}, p.Notes)
}
