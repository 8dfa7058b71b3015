// SPDX-License-Identifier: Apache-2.0

package profile

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestCommunicatorsAreNamedByWhatIsKnown(t *testing.T) {
	require.Equal(t, "0xab", CommunicatorName(1, 0xab, 0x7f00, "init"))
	require.Equal(t, "at 0x7f00", CommunicatorName(1, 0, 0x7f00, "operation"))
	require.Equal(t, "#1", CommunicatorName(1, 0, 0, "init"))
	require.Equal(t, "unknown", CommunicatorName(0, 0, 0, "thread"))
	require.Equal(t, "none", CommunicatorName(0, 0, 0, PhaseProgram))
}

// Phases and kinds are added up; what two ranks of one process hold is not.
func TestCommunicatorsAreSummed(t *testing.T) {
	sums := SumCommunicators([]CommunicatorMemory{
		{PID: 7, Communicator: "0xab", Name: "gradients", Rank: 0, Size: 2, State: "active", Line: "train (t.py:3)", Phase: "init", Bytes: 1 << 20},
		{PID: 7, Communicator: "0xab", Name: "gradients", Rank: 0, Size: 2, State: "active", Line: "train (t.py:3)", Phase: "thread", Bytes: 1 << 20},
		{PID: 7, Communicator: "0xab", Rank: 1, Size: 2, State: "destroyed", Bytes: 4 << 20},
		{PID: 7, Communicator: "0xcd", Rank: -1, Size: -1, Bytes: 0},
		{PID: 7, Communicator: "none", Rank: -1, Size: -1, Bytes: 512},
		{PID: 7, Communicator: "unknown", Rank: -1, Size: -1, Bytes: 1024},
	})
	var texts []string
	for _, c := range sums {
		texts = append(texts, c.String())
	}
	require.Equal(t, []string{
		"4.00 MiB for 0xab, rank 1 of 2, destroyed",
		"2.00 MiB for gradients (0xab), rank 0 of 2, made by train (t.py:3)",
		"1.00 KiB for unknown communicators",
		"512 B for the program itself (ncclMemAlloc)",
	}, texts)
}
