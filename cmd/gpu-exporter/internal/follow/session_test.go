// SPDX-License-Identifier: Apache-2.0

package follow

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestAnInstanceThatHasNotStartedIsTriedAgainSoon, and one that never does rarely.
func TestAnInstanceThatHasNotStartedIsTriedAgainSoon(t *testing.T) {
	var s skipped
	now := time.Unix(1000, 0)
	var pauses []time.Duration
	for range 7 {
		s = s.again(time.Second, now)
		pauses = append(pauses, s.until.Sub(now))
		now = s.until
	}
	require.Equal(t, []time.Duration{time.Second, 2 * time.Second, 4 * time.Second, 8 * time.Second, 16 * time.Second, retryInstance, retryInstance}, pauses)
}
