// SPDX-License-Identifier: Apache-2.0

package ranks

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/internal/process/procmaps"
)

// The processes of a container that have loaded NCCL leave room to those of another one.
func TestATenantLeavesProcessesToOthers(t *testing.T) {
	l := late{attached: map[uint32]attached{}}
	fill := func(tenant procmaps.Tenant) (n int) {
		for l.hasRoom(tenant) {
			l.attached[uint32(len(l.attached))] = attached{1, tenant}
			n++
		}
		return n
	}
	require.Equal(t, maxStanding-maxStanding/4, fill(1))
	require.Equal(t, maxStanding/4, fill(2))
	require.Zero(t, fill(3))
}
