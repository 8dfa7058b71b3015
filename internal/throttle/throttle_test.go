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

// Tenants start and end with containers: those that have nothing to pay back are forgotten.
func TestAllowances(t *testing.T) {
	a := Allowances[int]{Burst: 2 * time.Second, Share: 20}
	now := time.Now()
	require.Zero(t, a.Pause(1, now))
	a.Take(1, time.Minute, now)
	a.Take(2, time.Millisecond, now.Add(-time.Minute))
	require.Equal(t, 58*20*time.Second, a.Pause(1, now))
	require.Zero(t, a.Pause(2, now))
	require.Zero(t, a.Pause(3, now))
	require.Equal(t, 2, a.Len())
	a.ForgetPaid(now)
	require.Equal(t, 1, a.Len())
	require.Positive(t, a.Pause(1, now))
	a.Clear()
	require.Zero(t, a.Pause(1, now))
}
