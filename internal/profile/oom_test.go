// SPDX-License-Identifier: Apache-2.0

package profile

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestHoldersOfOneLineAreAddedUp(t *testing.T) {
	require.Equal(t, "9.00 KiB f (x.py:1); 7.00 KiB g (x.py:2); 1.00 KiB h (x.py:3)", HeldByLine([]LineHeld{
		{"g (x.py:2)", 7 << 10}, {"f (x.py:1)", 5 << 10}, {"f (x.py:1)", 4 << 10}, {"h (x.py:3)", 1 << 10},
	}))
	require.Empty(t, HeldByLine(nil))
}
