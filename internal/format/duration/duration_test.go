// SPDX-License-Identifier: Apache-2.0

package duration

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestANumberIsSeconds(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"30": 30 * time.Second, "30s": 30 * time.Second, "0": 0, "1.5": 1500 * time.Millisecond, "1m30s": 90 * time.Second, "250ms": 250 * time.Millisecond,
		"-3": -3 * time.Second,
	} {
		d, err := Parse(text)
		require.NoError(t, err, text)
		require.Equal(t, want, d, text)
	}
	for _, text := range []string{"", "soon", "30 s", "30x", "1e400", "NaN", "inf", "0x10", "99999999999999999999"} {
		_, err := Parse(text)
		require.ErrorIs(t, err, ErrSyntax, text)
	}
}

func TestAFlagIsNotNegative(t *testing.T) {
	var v Value
	require.NoError(t, v.Set("45"))
	require.Equal(t, "45s", v.String())
	require.ErrorIs(t, v.Set("-1s"), ErrSyntax)
	require.Equal(t, 45*time.Second, time.Duration(v))
}
