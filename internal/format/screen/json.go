// SPDX-License-Identifier: Apache-2.0

package screen

import (
	"bytes"
	"fmt"
	"unicode/utf16"
	"unicode/utf8"
)

// JSON escapes in a text of JSON what would drive a terminal that it is shown on, as Clean says it: encoding/json leaves DEL, the
// controls of U+0080 to U+009F and those of the direction as they are. They are in strings only, so the values stay the same.
func JSON(text []byte) []byte {
	drives := func(r rune) bool { return r >= 0x7f && r != utf8.RuneError && clean(r) != r }
	if !bytes.ContainsFunc(text, drives) {
		return text
	}
	var out bytes.Buffer
	for _, r := range string(text) {
		switch {
		case !drives(r):
			out.WriteRune(r)
		case r > 0xffff:
			high, low := utf16.EncodeRune(r)
			fmt.Fprintf(&out, `\u%04x\u%04x`, high, low)
		default:
			fmt.Fprintf(&out, `\u%04x`, r)
		}
	}
	return out.Bytes()
}
