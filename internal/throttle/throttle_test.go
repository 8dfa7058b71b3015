// SPDX-License-Identifier: Apache-2.0

package throttle

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestThrottleLetsOneThroughPerMinute(t *testing.T) {
	var th Throttle
	at := time.Unix(1000, 0)
	_, ok := th.Pass(at)
	require.True(t, ok)
	for range 3 {
		_, ok = th.Pass(at.Add(time.Second))
		require.False(t, ok)
	}
	suppressed, ok := th.Pass(at.Add(time.Minute))
	require.True(t, ok)
	require.Equal(t, 3, suppressed)
}
