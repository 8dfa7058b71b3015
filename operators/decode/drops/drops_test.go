// SPDX-License-Identifier: Apache-2.0

package drops

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestSummaryNamesReasonsInOrder(t *testing.T) {
	line, warn := Summary([]Count{
		{Reason: "stacks_full", Count: 3},
		{Reason: "event_lost"},
		{Reason: "rows_full", Count: 2, Bytes: 4096},
	})
	require.Equal(t, "not recorded in full: rows_full 2× (4096 bytes in no row), stacks_full 3×", line)
	require.True(t, warn)
}

func TestSummaryOfAQuietRunIsEmpty(t *testing.T) {
	line, warn := Summary([]Count{{Reason: "rows_full"}})
	require.Empty(t, line)
	require.False(t, warn)
}

func TestFreesFromBeforeAttachAreNoAlarm(t *testing.T) {
	line, warn := Summary([]Count{{Reason: "freed_before_attach", Count: 7}})
	require.Equal(t, "not recorded in full: freed_before_attach 7×", line)
	require.False(t, warn)
}
