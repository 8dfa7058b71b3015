// SPDX-License-Identifier: Apache-2.0

package terminal

import (
	"flag"
	"fmt"
	"html"
	"os"
	"path/filepath"
	"strings"

	"github.com/hinshun/vt10x"
	"github.com/stretchr/testify/require"
)

// update writes the pictures of docs/pictures: the emulator's screen at a point of a test.
var update = flag.Bool("update", false, "write docs/pictures/terminal-*.svg")

// A cell of the picture, in pixels, for a monospaced font of 14.
const (
	cellWidth, cellHeight = 8.4, 18
	margin                = 12
)

// attributes of vt10x, state.go, which does not export them.
const bold = 1 << 2

var colours = map[vt10x.Color]string{
	vt10x.DefaultFG: "#d4d4d4", vt10x.DefaultBG: "#1e1e1e",
	vt10x.Red: "#f14c4c", vt10x.LightRed: "#f14c4c", vt10x.Green: "#23d18b", vt10x.Yellow: "#e5e510", vt10x.LightYellow: "#e5e510",
}

// picture writes the screen as docs/pictures/terminal-NAME.svg, with -update.
func (v *screen) picture(name string) {
	v.t.Helper()
	if !*update {
		return
	}
	v.mu.Lock()
	columns, lines := v.emulator.Size()
	rows := make([][]vt10x.Glyph, lines)
	for y := range rows {
		for x := range columns {
			rows[y] = append(rows[y], v.emulator.Cell(x, y))
		}
	}
	v.mu.Unlock()
	require.NoError(v.t, os.WriteFile(filepath.Join("../../../docs/pictures", "terminal-"+name+".svg"), []byte(svg(rows)), 0o644))
}

// svg is a picture of cells, without the empty ones at the right and below.
func svg(rows [][]vt10x.Glyph) string {
	columns, lines := 1, 1
	for y, row := range rows {
		for x, g := range row {
			if g.Char > ' ' {
				columns, lines = max(columns, x+1), y+1
			}
		}
	}
	rows = rows[:lines]
	for y := range rows {
		rows[y] = rows[y][:columns]
	}
	width, height := int(2*margin+cellWidth*float64(columns)), 2*margin+cellHeight*lines
	var out strings.Builder
	fmt.Fprintf(&out, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d">
<rect width="100%%" height="100%%" rx="6" fill="%s"/>
<g font-family="ui-monospace, 'DejaVu Sans Mono', Menlo, Consolas, monospace" font-size="14" xml:space="preserve">
`, width, height, width, height, colours[vt10x.DefaultBG])
	for y, row := range rows {
		for x := 0; x < len(row); {
			end := x
			var text strings.Builder
			for end < len(row) && row[end].FG == row[x].FG && row[end].BG == row[x].BG && row[end].Mode == row[x].Mode {
				text.WriteRune(max(row[end].Char, ' '))
				end++
			}
			run(&out, row[x], x, y, text.String())
			x = end
		}
	}
	out.WriteString("</g>\n</svg>\n")
	return out.String()
}

// run draws cells with the same attributes.
func run(out *strings.Builder, g vt10x.Glyph, x, y int, text string) {
	left, top := margin+cellWidth*float64(x), margin+cellHeight*y
	length := cellWidth * float64(len([]rune(text)))
	if g.BG != vt10x.DefaultBG {
		fmt.Fprintf(out, `<rect x="%.1f" y="%d" width="%.1f" height="%d" fill="%s"/>`+"\n", left, top, length, cellHeight, colourOf(g.BG))
	}
	if strings.TrimSpace(text) == "" {
		return
	}
	weight := ""
	if g.Mode&bold != 0 {
		weight = ` font-weight="bold"`
	}
	fmt.Fprintf(out, `<text x="%.1f" y="%d" fill="%s"%s textLength="%.1f">%s</text>`+"\n", left, top+14, colourOf(g.FG), weight, length, html.EscapeString(text))
}

func colourOf(c vt10x.Color) string {
	if text, ok := colours[c]; ok {
		return text
	}
	return "#a0a0a0"
}
