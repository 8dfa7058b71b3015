// SPDX-License-Identifier: Apache-2.0

package devicetimes

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestShortHasFourDigits(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0s", 7: "7ns", 65000: "65µs", 123456: "123.5µs", 329_280_000: "329.3ms", 1_234_567_890: "1.235s",
		12_345_678_901: "12.35s", 3_723_456 * time.Millisecond: "1h2m3s",
	} {
		require.Equal(t, want, short(d))
	}
}
