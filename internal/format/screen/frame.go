// SPDX-License-Identifier: Apache-2.0

package screen

import (
	"strings"

	"github.com/mattn/go-runewidth"
)

// minFunction is how much of a function's name is worth showing: a letter at each side of
// the ellipsis.
const minFunction = 3

// ShortenFrame makes the label of a frame, function (file:line), fit into width columns.
// The file and the line stay whole: it is the function that is shortened, in its middle,
// so that its class and the end of its name stay. Where not even they fit, the function is
// left out, and then the beginning of the file's name is. A label without a file is
// shortened in its middle.
func ShortenFrame(label string, width int) string {
	if Width(label) <= width {
		return label
	}
	at := strings.LastIndex(label, " (")
	if at < 0 || !strings.HasSuffix(label, ")") {
		return middle(label, width)
	}
	place := label[at+1:]
	if room := width - Width(place) - 1; room >= minFunction {
		return middle(label[:at], room) + " " + place
	}
	return clipLeft(place, width)
}

// ShortenStack makes a stack of labels, root first and joined by "; ", fit: frames at its
// root are left out before the innermost one is shortened.
func ShortenStack(folded string, width int) string {
	if Width(folded) <= width {
		return folded
	}
	const more = "…; "
	frames := strings.Split(folded, "; ")
	for n := 1; n < len(frames); n++ {
		if rest := more + strings.Join(frames[n:], "; "); Width(rest) <= width {
			return rest
		}
	}
	innermost := frames[len(frames)-1]
	if len(frames) > 1 && width > 2*len(more) {
		return more + ShortenFrame(innermost, width-Width(more))
	}
	return ShortenFrame(innermost, width)
}

// middle leaves out the middle of text: half as much again is kept of its beginning.
func middle(text string, width int) string {
	if Width(text) <= width {
		return text
	}
	if width < minFunction {
		return Clip(text, width)
	}
	head := runewidth.Truncate(text, (width-1)*3/5, "")
	return head + clipLeft(text, width-Width(head))
}
