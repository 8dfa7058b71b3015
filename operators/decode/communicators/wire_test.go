// SPDX-License-Identifier: Apache-2.0

package communicators

import (
	"fmt"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

// A container's share is a part of what the programs take for the size of the table.
func TestSizesAreThoseOfThePrograms(t *testing.T) {
	header, err := os.ReadFile("../../../bpf/nccl/memory/communicators.h")
	require.NoError(t, err)
	for name, size := range map[string]int{"MAX_OWNERS": maxCommunicators, "MAX_OWNER_SUMS": maxSums} {
		require.Contains(t, string(header), fmt.Sprintf("#define %s %d\n", name, size))
	}
}
