// SPDX-License-Identifier: Apache-2.0

package exporters

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestExportersOfOneNameAreOneSeries(t *testing.T) {
	r := &Registry{}
	require.Empty(t, r.Read())
	all := Stats{1, 2, 3, 4, 5, 6, 7}
	remove := r.Add("pyroscope", func() Stats { return all })
	r.Add("otlp", func() Stats { return Stats{Sent: 9} })
	r.Add("pyroscope", func() Stats { return all })
	require.Equal(t, []Named{{"otlp", Stats{Sent: 9}}, {"pyroscope", Stats{2, 4, 6, 8, 10, 12, 14}}}, r.Read())
	remove()
	remove()
	require.Equal(t, []Named{{"otlp", Stats{Sent: 9}}, {"pyroscope", Stats{1, 2, 3, 8, 10, 12, 14}}}, r.Read(), "counters do not fall")
}

// Prometheus takes a counter that falls for a restart, and all that is left for new: the end of one
// gadget would be an alert on lost exports.
func TestCountersOfAnExporterThatEndsStay(t *testing.T) {
	r := &Registry{}
	lost := Stats{Items: 3, Bytes: 30, CapacityBytes: 100, Sent: 5, Lost: 7, LostBytes: 70}
	first := r.Add("pyroscope", func() Stats { return lost })
	second := r.Add("pyroscope", func() Stats { return Stats{Sent: 100, Lost: 2} })
	require.Equal(t, []Named{{"pyroscope", Stats{Items: 3, Bytes: 30, CapacityBytes: 100, Sent: 105, Lost: 9, LostBytes: 70}}}, r.Read())
	lost.Items, lost.Bytes, lost.Lost, lost.LostBytes = 0, 0, 10, 100 // at its end
	first()
	after := []Named{{"pyroscope", Stats{Sent: 105, Lost: 12, LostBytes: 100}}}
	require.Equal(t, after, r.Read())
	second()
	require.Equal(t, after, r.Read(), "also of the last one")
	r.Add("pyroscope", func() Stats { return Stats{Sent: 1} })
	require.EqualValues(t, 106, r.Read()[0].Sent)
}
