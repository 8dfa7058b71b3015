// SPDX-License-Identifier: Apache-2.0

package profile

import "fmt"

// FormatShare writes a part of a whole in percent: "12.3 %".
func FormatShare(part, whole uint64) string {
	if whole == 0 {
		return "0.0 %"
	}
	return fmt.Sprintf("%.1f %%", 100*float64(part)/float64(whole))
}
