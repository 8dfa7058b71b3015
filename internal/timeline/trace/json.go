// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"strconv"
	"unicode/utf8"
)

// maxText bounds a name: those of kernels and threads come from the traced
// process, and one may be a megabyte long.
const maxText = 512

// appendText appends s as a JSON string. Bytes that are not UTF-8 and control
// characters become U+FFFD; longer text is cut at maxText and ends with an ellipsis.
func appendText(b []byte, s string) []byte {
	b = append(b, '"')
	cut := false
	if len(s) > maxText {
		s, cut = s[:maxText], true
		for len(s) > maxText-utf8.UTFMax && !utf8.RuneStart(s[len(s)-1]) {
			s = s[:len(s)-1]
		}
		if r, size := utf8.DecodeLastRuneInString(s); r == utf8.RuneError && size == 1 {
			s = s[:len(s)-1] // the first byte of a letter that was cut
		}
	}
	for i := 0; i < len(s); {
		c := s[i]
		switch {
		case c == '"' || c == '\\':
			b = append(b, '\\', c)
			i++
		case c >= 0x20 && c < 0x7f:
			b = append(b, c)
			i++
		case c < 0x20 || c == 0x7f:
			b = append(b, "\ufffd"...)
			i++
		default:
			r, size := utf8.DecodeRuneInString(s[i:])
			b = utf8.AppendRune(b, r) // RuneError for invalid bytes
			i += size
		}
	}
	if cut {
		b = append(b, "…"...)
	}
	return append(b, '"')
}

// appendMicroseconds appends nanoseconds in the unit of the format, exactly.
func appendMicroseconds(b []byte, ns uint64) []byte {
	b = strconv.AppendUint(b, ns/1000, 10)
	if rest := ns % 1000; rest != 0 {
		b = append(b, '.', byte('0'+rest/100), byte('0'+rest/10%10), byte('0'+rest%10))
	}
	return b
}
