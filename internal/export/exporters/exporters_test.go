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
	require.Equal(t, []Named{{"otlp", Stats{Sent: 9}}, {"pyroscope", all}}, r.Read())
}
