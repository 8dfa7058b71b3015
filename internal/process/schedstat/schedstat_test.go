// SPDX-License-Identifier: Apache-2.0

package schedstat

import (
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestRead(t *testing.T) {
	s, err := parse("1000 20 3\n")
	require.NoError(t, err)
	require.Equal(t, Stat{1000 * time.Nanosecond, 20 * time.Nanosecond, 3}, s)
	for _, odd := range []string{"", "1 2", "1 2 x", "-1 -1 -1", "9223372036854775808 1 1"} {
		_, err := parse(odd)
		require.ErrorContains(t, err, "is not a schedstat file", odd)
	}
	pid := uint32(os.Getpid())
	s, err = Read("/proc", pid, pid)
	require.NoError(t, err)
	require.NotZero(t, s.Turns)
	_, err = Read(t.TempDir(), 7, 8)
	require.ErrorIs(t, err, os.ErrNotExist)
}
