// SPDX-License-Identifier: Apache-2.0

package stack

import "strings"

const (
	// longName is from how many bytes on the name of a native function is shortened in a
	// label, and longGroup from how many on what is in brackets is left out then.
	longName  = 80
	longGroup = 24
)

// shorten leaves out of a long C++ or Rust name what is in long brackets, template arguments
// and parameters: `at::native::launch<…>(…)`. Short brackets stay, because they distinguish
// overloads; so does a name whose brackets do not match. Frames have the whole name.
func shorten(function string) string {
	if len(function) <= longName {
		return function
	}
	var b strings.Builder
	from, depth := 0, 0 // of an outermost bracket
	var open [64]byte
	for i := range len(function) {
		c := function[i]
		switch c {
		case '<', '(':
			if depth == 0 {
				b.WriteString(function[from:i])
				from = i
			}
			if depth == len(open) {
				return function
			}
			open[depth] = c
			depth++
		case '>', ')':
			if c == '>' && i > 0 && (function[i-1] == '-' || function[i-1] == '=') {
				continue // an arrow
			}
			if depth == 0 || (open[depth-1] == '<') != (c == '>') {
				return function // an operator
			}
			if depth--; depth > 0 {
				continue
			}
			if i+1-from > longGroup {
				b.WriteByte(function[from])
				b.WriteString("…")
				from = i
			}
			b.WriteString(function[from : i+1])
			from = i + 1
		}
	}
	if depth > 0 {
		return function
	}
	b.WriteString(function[from:])
	return b.String()
}
