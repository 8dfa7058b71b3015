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
