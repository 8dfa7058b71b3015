// SPDX-License-Identifier: Apache-2.0

package ranks

import (
	"fmt"
	"strconv"
)

// slowdown parses --slowdown, in percent, into a share.
func slowdown(percent string) (float64, error) {
	if percent == "" {
		return 0, nil
	}
	n, err := strconv.ParseUint(percent, 10, 16)
	if err != nil {
		return 0, fmt.Errorf("--%s: %q is not a number of percent like 20", paramSlowdown, percent)
	}
	return float64(n) / 100, nil
}
