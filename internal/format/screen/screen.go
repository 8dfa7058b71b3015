// SPDX-License-Identifier: Apache-2.0

// Package screen lays out text for a terminal: tables whose line of Python is never cut,
// pages of a fixed size with a status line and messages that stay, and colours. It is
// pure: it does not know a terminal, and writes no escape sequence but those of Paint.
package screen

import (
	"strings"
	"unicode"

	"github.com/mattn/go-runewidth"
)

// Style is how a piece of text looks.
type Style uint8

const (
	Plain Style = iota
	Bold
	Dim
	Red
	Yellow
	Green
	Reverse
)

// codes are the parameters of Select Graphic Rendition, ECMA-48 §8.3.117.
var codes = [...]string{Plain: "", Bold: "1", Dim: "2", Red: "1;31", Yellow: "33", Green: "32", Reverse: "7"}

// Span is text of one style.
type Span struct {
	Text  string
	Style Style
}

// Line is one line of a screen, without its end.
type Line []Span

// Text is a line of one style.
func Text(style Style, text string) Line { return Line{{text, style}} }

// Width is the number of columns that the line takes.
func (l Line) Width() int {
	n := 0
	for _, s := range l {
		n += Width(s.Text)
	}
	return n
}

// String is the line without styles.
func (l Line) String() string {
	var b strings.Builder
	for _, s := range l {
		b.WriteString(s.Text)
	}
	return b.String()
}

// Paint is the line with its styles as escape sequences, or without them.
func (l Line) Paint(colour bool) string {
	if !colour {
		return l.String()
	}
	var b strings.Builder
	for _, s := range l {
		if s.Style == Plain || s.Text == "" {
			b.WriteString(s.Text)
			continue
		}
		b.WriteString("\033[" + codes[s.Style] + "m" + s.Text + "\033[0m")
	}
	return b.String()
}

// clip keeps a line within the width.
func (l Line) clip(width int) Line {
	if l.Width() <= width {
		return l
	}
	var out Line
	for _, s := range l {
		if w := Width(s.Text); w <= width {
			out = append(out, s)
			width -= w
			continue
		}
		return append(out, Span{Clip(s.Text, width), s.Style})
	}
	return out
}

// Width is the number of columns that text takes on a terminal: 2 of most East Asian
// characters, 0 of combining ones.
func Width(text string) int {
	for i := range len(text) {
		if text[i] >= 0x80 {
			return runewidth.StringWidth(text)
		}
	}
	return len(text)
}

// Clip cuts text behind width columns, with an ellipsis in the last one.
func Clip(text string, width int) string {
	switch {
	case Width(text) <= width:
		return text
	case width < 1:
		return ""
	}
	return runewidth.Truncate(text, width, "…")
}

// clipLeft cuts text before its last width columns, with an ellipsis in the first one.
func clipLeft(text string, width int) string {
	w := Width(text)
	if w <= width {
		return text
	}
	if width < 1 {
		return ""
	}
	return runewidth.TruncateLeft(text, w-width+1, "…")
}

// Clean replaces what would drive a terminal rather than be shown on it: names of
// processes and functions are chosen by those that are traced.
func Clean(text string) string { return strings.Map(clean, text) }

// CleanLines is Clean for text of several lines, which may have tabs.
func CleanLines(text string) string {
	return strings.Map(func(r rune) rune {
		if r == '\n' || r == '\t' {
			return r
		}
		return clean(r)
	}, text)
}

func clean(r rune) rune {
	if unicode.IsControl(r) || unicode.Is(unicode.Cf, r) || r == '\u2028' || r == '\u2029' {
		return unicode.ReplacementChar
	}
	return r
}

// Wrap breaks text at spaces into lines of at most width columns, of which all but the
// first begin with indent spaces. A word that is too long for a line is broken.
func Wrap(text string, width, indent int) []string {
	width = max(width, indent+8)
	var lines []string
	margin := strings.Repeat(" ", indent)
	line, isEmpty := "", true
	next := func() { lines, line, isEmpty = append(lines, line), margin, true }
	for _, word := range strings.Fields(text) {
		if !isEmpty && Width(line)+1+Width(word) > width {
			next()
		}
		if !isEmpty {
			line += " "
		}
		for Width(line)+Width(word) > width { // longer than a line
			head := runewidth.Truncate(word, width-Width(line), "")
			line, word = line+head, word[len(head):]
			next()
		}
		line, isEmpty = line+word, false
	}
	return append(lines, line)
}
