// SPDX-License-Identifier: Apache-2.0

package label

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"

	"github.com/gpu-gadgets/gpu-gadgets/internal/profile"
)

// Series of one metric have the same labels: those without a value, too.
func TestLabelsOfTheUserAreThereWithoutAValue(t *testing.T) {
	p := profile.Process{PID: 7, Comm: "python3", Labels: "team=vision,slurm_job="}
	require.Equal(t, append(Process(profile.Process{PID: 7, Comm: "python3"}),
		attribute.String("team", "vision"), attribute.String("slurm_job", "")), Process(p))
}
