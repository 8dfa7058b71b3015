// SPDX-License-Identifier: Apache-2.0

package pyroscope

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/internal/profile/fixture"
)

// The user's labels are labels of series, and only those that have a value.
func TestLabelsOfProcessesAreOfSeries(t *testing.T) {
	p := fixture.Spans()
	for i := range p.Rows {
		p.Rows[i].Process.Labels = "team=vision,slurm_job="
	}
	all := push(t, &Encoder{}, windowOf(p)).stored(t)
	require.Len(t, all, 1)
	require.Contains(t, all[0].labels, "team=vision")
	require.NotContains(t, all[0].labels, "slurm_job")
	for _, s := range all[0].Sample {
		require.Empty(t, s.Label["team"])
	}

	p.Rows[0].Process.Labels = "team=speech,slurm_job="
	require.Len(t, push(t, &Encoder{}, windowOf(p)).stored(t), 2)
}
