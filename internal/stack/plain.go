// SPDX-License-Identifier: Apache-2.0

package stack

// isPlain reports whether a text is nothing but printable ASCII, as most names are:
// it needs no decoding and no replacing. It reads eight bytes at a time, which
// counts where a turn of a loop is expensive (wasm/names).
func isPlain(s string) bool {
	const (
		ones  = 0x0101010101010101
		highs = 0x8080808080808080
	)
	for len(s) >= 8 {
		v := uint64(s[0]) | uint64(s[1])<<8 | uint64(s[2])<<16 | uint64(s[3])<<24 |
			uint64(s[4])<<32 | uint64(s[5])<<40 | uint64(s[6])<<48 | uint64(s[7])<<56
		// The top bit of a byte is set where it is 0x80 or more; 0x7f, to which 1
		// is added; or below 0x20, from which 0x20 is subtracted with a borrow. A
		// borrow or carry reaches another byte only from one that has its bit set.
		if (v|(v+ones)|(v-ones*0x20))&highs != 0 {
			return false
		}
		s = s[8:]
	}
	for i := range len(s) {
		if s[i] < 0x20 || s[i] >= 0x7f {
			return false
		}
	}
	return true
}
