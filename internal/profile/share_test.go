// SPDX-License-Identifier: Apache-2.0

package profile

import "testing"

func TestSharesArePercentWithOneDigit(t *testing.T) {
	for _, c := range []struct {
		part, whole uint64
		want        string
	}{{1, 3, "33.3 %"}, {0, 0, "0.0 %"}, {7, 7, "100.0 %"}} {
		if got := FormatShare(c.part, c.whole); got != c.want {
			t.Errorf("FormatShare(%d, %d) = %q, want %q", c.part, c.whole, got, c.want)
		}
	}
}
