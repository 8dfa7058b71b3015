// SPDX-License-Identifier: Apache-2.0

package table

import "fmt"

// Size writes a number of bytes for people: three significant digits and the
// binary units that nvidia-smi and PyTorch use, "1.50 GiB". Bytes have no
// fraction.
func Size(bytes uint64) string {
	if bytes < 1<<10 {
		return fmt.Sprintf("%d B", bytes)
	}
	value, unit := float64(bytes)/(1<<10), 0
	units := [...]string{"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"}
	// 1023.5 would be printed as 1024.
	for value >= 1023.5 && unit < len(units)-1 {
		value /= 1 << 10
		unit++
	}
	switch {
	case value < 9.995:
		return fmt.Sprintf("%.2f %s", value, units[unit])
	case value < 99.95:
		return fmt.Sprintf("%.1f %s", value, units[unit])
	default:
		return fmt.Sprintf("%.0f %s", value, units[unit])
	}
}
