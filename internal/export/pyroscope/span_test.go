// SPDX-License-Identifier: Apache-2.0

package pyroscope

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/internal/profile/fixture"
)

// A span is a label of samples, not of series: Pyroscope stores that label separately.
func TestSpansAreOfSamplesAndNotOfSeries(t *testing.T) {
	all := push(t, &Encoder{}, windowOf(fixture.Spans())).stored(t)
	require.Len(t, all, 1)
	require.NotContains(t, all[0].labels, "span")
	bytes := map[string]int64{}
	for _, s := range all[0].Sample {
		id := ""
		for name, values := range s.Label {
			require.Equal(t, "span_id", name)
			require.Len(t, values, 1)
			id = values[0]
		}
		bytes[id] += s.Value[1]
	}
	require.Equal(t, map[string]int64{"": 4 << 20, "00f067aa0ba902b7": 8 << 20, "b7ad6b7169203331": 16 << 20}, bytes)
}
