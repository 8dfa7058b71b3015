// SPDX-License-Identifier: Apache-2.0

// Package flames draws the flame graphs of docs/pictures.
package flames

import (
	"fmt"
	"html"
	"maps"
	"slices"
	"strings"
)

const (
	width, height, margin, letter = 1200.0, 22, 8, 6.6

	ours, others, joins = "#f0b37e", "#c9d3de", "#b9d8a8"
)

type box struct {
	label        string
	left, weight uint64
}

// SVG is a flame graph, root above, of the weights of stacks as a row has them. Frames whose label ends
// with mark, if any, are in the colour of what a reader knows, and those in angle brackets, which
// join two threads or languages, have one of their own. Boxes narrower than `least` pixels are
// left out.
func SVG(weights map[string]uint64, mark string, least float64) []byte {
	levels := [][]box{{}}
	all := uint64(0)
	for _, folded := range slices.Sorted(maps.Keys(weights)) {
		path := ""
		for i, label := range strings.Split(folded, "; ") {
			if i == len(levels) {
				levels = append(levels, nil)
			}
			path += label
			n := len(levels[i])
			if n > 0 && levels[i][n-1].label == path && levels[i][n-1].left+levels[i][n-1].weight == all {
				levels[i][n-1].weight += weights[folded]
			} else {
				levels[i] = append(levels[i], box{path, all, weights[folded]})
			}
			path += "; "
		}
		all += weights[folded]
	}
	var out strings.Builder
	bottom := 2*margin + height*len(levels)
	fmt.Fprintf(&out, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %.0f %d" width="%.0f" height="%d">
<rect width="100%%" height="100%%" rx="6" fill="#ffffff"/>
<g font-family="ui-monospace, 'DejaVu Sans Mono', Menlo, Consolas, monospace" font-size="11">
`, width, bottom, width, bottom)
	scale := (width - 2*margin) / float64(all)
	for i, level := range levels {
		for _, b := range level {
			left, wide := margin+scale*float64(b.left), scale*float64(b.weight)
			if wide < least {
				continue
			}
			label := b.label
			if i := strings.LastIndex(label, "; "); i >= 0 {
				label = label[i+2:]
			}
			fill := others
			switch {
			case strings.HasPrefix(label, "<") && strings.HasSuffix(label, ">"):
				fill = joins
			case mark != "" && strings.HasSuffix(label, mark):
				fill = ours
			}
			name := []rune(label)
			if most := int((wide - 10) / letter); len(name) > most {
				name = append(name[:max(most-1, 0)], '…')
			}
			top := margin + height*i
			fmt.Fprintf(&out, `<rect x="%.1f" y="%d" width="%.1f" height="%d" rx="2" fill="%s"/><text x="%.1f" y="%d" fill="#1c1c1c">%s</text>`+"\n",
				left, top, wide-1, height-1, fill, left+5, top+15, html.EscapeString(string(name)))
		}
	}
	out.WriteString("</g>\n</svg>\n")
	return []byte(out.String())
}
