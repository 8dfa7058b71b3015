// SPDX-License-Identifier: Apache-2.0

package drops

import (
	"os"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestSummaryExplainsLossesAndTheirEffect(t *testing.T) {
	line, warn := Summary([]Count{
		{Reason: "stacks_full", Count: 3},
		{Reason: "event_lost"},
		{Reason: "unknown_rows_full", Count: 2, Bytes: 4096},
	}, 997)
	require.Equal(t, "not recorded in full: 3 calls whose stack did not fit in the table (0.3 % of all): their numbers are under [unknown], and in every total [stacks_full]; "+
		"2 calls without any row (0.2 % of all), 4.00 KiB in no row: they are missing in the totals [unknown_rows_full]", line)
	require.True(t, warn)
}

func TestSummaryOfAQuietRunIsEmpty(t *testing.T) {
	line, warn := Summary([]Count{{Reason: "rows_full"}}, 5)
	require.Empty(t, line)
	require.False(t, warn)
}

func TestFreesOfOlderAllocationsRaiseNoAlarm(t *testing.T) {
	line, warn := Summary([]Count{{Reason: "freed_before_attach", Count: 7}}, 0)
	require.Equal(t, "7 frees were of memory allocated before ig-gpu attached; nothing is lost [freed_before_attach]", line)
	require.False(t, warn)
	line, _ = Summary([]Count{{Reason: "freed_before_attach", Count: 1}, {Reason: "rows_full"}}, 0)
	require.Equal(t, "1 free was of memory allocated before ig-gpu attached; nothing is lost [freed_before_attach]", line)
	line, _ = Summary([]Count{{Reason: "freed_before_attach", Count: 7}, {Reason: "rows_full", Count: 1}}, 0)
	require.Contains(t, line, "not recorded in full: 7 frees of memory from before attach: no loss [freed_before_attach]; 1 ")
}

// A lost sample of the host is not a lost call of CUDA, and the line states that.
func TestLostSamplesAreNotCalls(t *testing.T) {
	line, warn := Summary([]Count{{Reason: "process_unreadable", Count: 1}}, 0)
	require.Contains(t, line, "no call of CUDA is lost by it")
	require.False(t, warn)
}

// TestEveryReasonHasWords holds words.go to the table of the eBPF programs.
func TestEveryReasonHasWords(t *testing.T) {
	header, err := os.ReadFile("../../../bpf/program/drops.h")
	require.NoError(t, err)
	names := map[string]bool{}
	for _, m := range regexp.MustCompile(`X\(DROP_\w+, "(\w+)"\)`).FindAllSubmatch(header, -1) {
		names[string(m[1])] = true
		require.Contains(t, reasons(), string(m[1]))
	}
	require.Greater(t, len(names), 20)
	require.Len(t, reasons(), len(names))
}
