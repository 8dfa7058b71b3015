// SPDX-License-Identifier: Apache-2.0

package pystack

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestRoleIsThatOfAKnownName(t *testing.T) {
	for comm, want := range map[string]string{
		"pt_autograd_0":   "backward work on device 0",
		"pt_autograd_13":  "backward work on device 13",
		"pt_autograd_":    "",
		"pt_autograd_x":   "",
		"pt_data_pin":     "pins batches for the thread that iterates over a DataLoader",
		"pt_data_pinned":  "",
		"python3":         "",
		"":                "",
		"pt_nccl_watchdg": "watches a process group's collectives of NCCL",
	} {
		require.Equal(t, want, role(comm), comm)
	}
	for comm := range roles {
		require.LessOrEqual(t, len(comm), 15, "the kernel cuts %s", comm)
	}
}
