// SPDX-License-Identifier: Apache-2.0

package rows

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestOtherClocksAreNotTakenForTheWallClock(t *testing.T) {
	for ns, want := range map[uint64]bool{0: false, uint64(time.Hour): false, 1 << 63: false, uint64(time.Now().UnixNano()): true} {
		_, ok := eventTime(ns)
		require.Equal(t, want, ok, ns)
	}
}
