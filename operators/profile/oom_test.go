// SPDX-License-Identifier: Apache-2.0

package profile

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestFormatBytes(t *testing.T) {
	for n, want := range map[int64]string{
		0: "0 B", 1023: "1023 B", 1024: "1.0 KiB", -1536: "-1.5 KiB", 12 << 20: "12.0 MiB",
		80 << 30: "80.0 GiB", math.MaxInt64: "8.0 EiB", math.MinInt64: "-8.0 EiB",
	} {
		require.Equal(t, want, FormatBytes(n))
	}
}
