// SPDX-License-Identifier: Apache-2.0

package labels

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Encode writes labels as NAME=VALUE, separated by commas. Values with a comma or a
// quote are quoted as in Go.
func Encode(pairs [][2]string) string {
	var b strings.Builder
	for i, p := range pairs {
		if i > 0 {
			b.WriteByte(',')
		}
		value := p[1]
		if strings.ContainsAny(value, `,"`) {
			value = strconv.Quote(value)
		}
		fmt.Fprintf(&b, "%s=%s", p[0], value)
	}
	return b.String()
}

// Decode is the inverse of Encode. What is malformed ends the list: the text may be that of
// another machine, and one name that a backend refuses would end the export of all rows.
func Decode(text string) (pairs [][2]string) {
	for text != "" && len(pairs) < maxRules {
		name, rest, ok := strings.Cut(text, "=")
		if !ok || !labelName.MatchString(name) || slices.Contains(reserved, name) ||
			slices.ContainsFunc(pairs, func(p [2]string) bool { return p[0] == name }) {
			return pairs
		}
		value := ""
		if strings.HasPrefix(rest, `"`) {
			quoted, err := strconv.QuotedPrefix(rest)
			if err != nil {
				return pairs
			}
			if value, err = strconv.Unquote(quoted); err != nil {
				return pairs
			}
			text = strings.TrimPrefix(rest[len(quoted):], ",")
		} else {
			value, text, _ = strings.Cut(rest, ",")
		}
		pairs = append(pairs, [2]string{name, clean(value)})
	}
	return pairs
}

// WithValue are those of Decode that have a value.
func WithValue(text string) [][2]string {
	return slices.DeleteFunc(Decode(text), func(l [2]string) bool { return l[1] == "" })
}

// Common has the labels of a process by those of its rows, for what is of no single row: rows whose values of a label
// differ, such as those of spans and stacks, leave it without a value. The zero value has none.
type Common struct {
	text string
	seen map[string]bool
}

// Add takes in the labels of a row and returns those of all rows so far. The order of the rows has no effect on the values.
func (c *Common) Add(text string) string {
	if c.seen[text] {
		return c.text
	}
	if c.seen == nil {
		c.seen, c.text = map[string]bool{text: true}, text
		return c.text
	}
	c.seen[text] = true
	all := Decode(c.text)
	for _, l := range Decode(text) {
		at := slices.IndexFunc(all, func(have [2]string) bool { return have[0] == l[0] })
		switch {
		case at < 0:
			all = append(all, l)
		case all[at][1] != l[1]:
			all[at][1] = ""
		}
	}
	c.text = Encode(all)
	return c.text
}
