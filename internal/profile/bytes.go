// SPDX-License-Identifier: Apache-2.0

package profile

import "fmt"

// FormatBytes writes a number of bytes human-readable: three significant digits and
// the binary units that nvidia-smi and PyTorch use, "1.50 GiB". Bytes have no
// fraction.
func FormatBytes(bytes int64) string {
	sign, size := "", float64(bytes)
	if bytes < 0 {
		sign, size = "-", -size
	}
	if size < 1<<10 {
		return fmt.Sprintf("%d B", bytes)
	}
	units := [...]string{"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"}
	unit := 0
	// 1023.5 would be printed as 1024.
	for size /= 1 << 10; size >= 1023.5 && unit < len(units)-1; unit++ {
		size /= 1 << 10
	}
	digits := 0
	switch {
	case size < 9.995:
		digits = 2
	case size < 99.95:
		digits = 1
	}
	return fmt.Sprintf("%s%.*f %s", sign, digits, size, units[unit])
}
