// SPDX-License-Identifier: Apache-2.0

package profile

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestFormatBytesHasThreeDigitsAndBinaryUnits(t *testing.T) {
	for bytes, want := range map[int64]string{
		0:                   "0 B",
		1023:                "1023 B",
		-1023:               "-1023 B",
		1 << 10:             "1.00 KiB",
		26 << 20:            "26.0 MiB",
		-26 << 20:           "-26.0 MiB",
		1<<20 - 1:           "1.00 MiB",
		1<<30 + 1<<29:       "1.50 GiB",
		999 << 30:           "999 GiB",
		10*(1<<20) - 1:      "10.0 MiB",
		1023<<20 + 600<<10:  "1.00 GiB",
		123*(1<<40) + 1<<39: "124 TiB",
		math.MaxInt64:       "8.00 EiB",
		math.MinInt64:       "-8.00 EiB",
	} {
		require.Equal(t, want, FormatBytes(bytes), "%d", bytes)
	}
}
