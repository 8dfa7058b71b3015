// SPDX-License-Identifier: Apache-2.0

package ranks

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/internal/collective/ras"
)

// TestConnectionsThatAStoppedProcessTakesAreNoAnswers, as the kernel chooses who of a node gets one.
func TestConnectionsThatAStoppedProcessTakesAreNoAnswers(t *testing.T) {
	calls := 0
	i := &instance{cfg: Config{RAS: func(context.Context, uint32) (*ras.Status, error) {
		if calls++; calls <= 2*rasTries {
			return nil, fmt.Errorf("%w for 2s", ras.ErrSilent)
		}
		return &ras.Status{Version: "2.28.9"}, nil
	}}}
	status, err := i.askRAS(t.Context(), []uint32{1, 2})
	require.NoError(t, err)
	require.Equal(t, "2.28.9", status.Version)
	calls = -1000
	_, err = i.askRAS(t.Context(), []uint32{1, 2})
	require.ErrorIs(t, err, ras.ErrSilent)
	require.Equal(t, -1000+rasSilent, calls)
}
