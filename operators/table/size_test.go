// SPDX-License-Identifier: Apache-2.0

package table

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestSizeHasThreeDigitsAndBinaryUnits(t *testing.T) {
	for bytes, want := range map[uint64]string{
		0:                   "0 B",
		1023:                "1023 B",
		1 << 10:             "1.00 KiB",
		26 << 20:            "26.0 MiB",
		1<<20 - 1:           "1.00 MiB",
		1<<30 + 1<<29:       "1.50 GiB",
		999 << 30:           "999 GiB",
		10*(1<<20) - 1:      "10.0 MiB",
		math.MaxUint64:      "16.0 EiB",
		1023<<20 + 600<<10:  "1.00 GiB",
		123*(1<<40) + 1<<39: "124 TiB",
	} {
		require.Equal(t, want, Size(bytes), "%d", bytes)
	}
}
