// SPDX-License-Identifier: Apache-2.0

package layout

import (
	"flag"
	"fmt"
	"html"
	"io/fs"
	"maps"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "draw docs/pictures/architecture.svg anew")

const picture = "../../docs/pictures/architecture.svg"

// The picture is drawn from the imports: a new or removed folder or import makes it
// stale.
func TestThePictureIsOfTheseImports(t *testing.T) {
	root := os.DirFS("../..")
	svg := draw(structureOf(sources(t, root), gadgetsOf(t, root)))
	if *update {
		require.NoError(t, os.WriteFile(picture, []byte(svg), 0o644))
	}
	text, err := os.ReadFile(picture)
	require.NoError(t, err)
	require.Equal(t, string(text), svg, "stale: go test ./internal/layout -run Picture -update")
}

// structure is the content of the picture.
type structure struct {
	programs []string            // folders of cmd/
	groups   map[string][]string // packages of each group of operators
	subjects map[string][]string // folders of internal/, and those in them
	uses     map[string][]string // group → subjects that it imports
	gadgets  map[string][]string // gadget → folders of bpf/ that it includes
}

func structureOf(all map[string][]imported, gadgets map[string][]string) structure {
	s := structure{groups: map[string][]string{}, subjects: map[string][]string{}, uses: map[string][]string{}, gadgets: gadgets}
	for folder, imports := range all {
		parts := strings.Split(folder, "/")
		if len(imports) > 0 && !slices.ContainsFunc(imports, func(i imported) bool { return !i.isTest }) {
			continue // tests only
		}
		switch {
		case len(parts) == 2 && parts[0] == "cmd" && parts[1] != "internal":
			s.programs = append(s.programs, parts[1])
		case len(parts) == 3 && parts[0] == "operators":
			s.groups[parts[1]] = append(s.groups[parts[1]], parts[2])
			for _, i := range imports {
				target, ours := strings.CutPrefix(i.path, module+"internal/")
				subject, _, _ := strings.Cut(target, "/")
				if ours && !i.isTest && !slices.Contains(s.uses[parts[1]], subject) {
					s.uses[parts[1]] = append(s.uses[parts[1]], subject)
				}
			}
		case len(parts) == 2 && parts[0] == "internal" && parts[1] != "layout":
			s.subjects[parts[1]] = append(s.subjects[parts[1]], nil...)
		case len(parts) == 3 && parts[0] == "internal":
			s.subjects[parts[1]] = append(s.subjects[parts[1]], parts[2])
		}
	}
	slices.Sort(s.programs)
	for _, m := range []map[string][]string{s.groups, s.subjects, s.uses} {
		for _, names := range m {
			slices.Sort(names)
		}
	}
	return s
}

var include = regexp.MustCompile(`(?m)^\s*#\s*include "([^"]+)"`)

// gadgetsOf follows the includes of each gadget to the folders of bpf/.
func gadgetsOf(t *testing.T, root fs.FS) map[string][]string {
	t.Helper()
	programs, err := fs.Glob(root, "gadgets/*/program.bpf.c")
	require.NoError(t, err)
	found := map[string][]string{}
	for _, program := range programs {
		seen := map[string]bool{}
		folders := map[string]bool{}
		for open := []string{program}; len(open) > 0; open = open[1:] {
			text, err := fs.ReadFile(root, open[0])
			require.NoError(t, err)
			for _, match := range include.FindAllStringSubmatch(string(text), -1) {
				header := path.Join("bpf", match[1])
				if strings.HasPrefix(match[1], "../") { // another gadget's program, or a vendor's table
					header = path.Join(path.Dir(open[0]), match[1])
				}
				if _, err := fs.Stat(root, header); err != nil || seen[header] {
					continue // beside the source, or known
				}
				seen[header] = true
				if folder, ok := strings.CutPrefix(path.Dir(header), "bpf/"); ok {
					folder, _, _ = strings.Cut(folder, "/")
					folders[folder] = true
				}
				open = append(open, header)
			}
		}
		found[path.Base(path.Dir(program))] = slices.Sorted(maps.Keys(folders))
	}
	return found
}

// Measures of the picture, in pixels.
const (
	pictureWidth = 1120
	margin       = 20
	lineHeight   = 15
)

// colors of the groups' lines, in their order.
var colors = []string{"#c2410c", "#0f766e", "#6d28d9", "#1d4ed8", "#be185d"}

// sheet is an SVG that grows downwards.
type sheet struct{ strings.Builder }

func (s *sheet) text(x, y int, class, text string) {
	fmt.Fprintf(s, `<text x="%d" y="%d" class="%s">%s</text>`+"\n", x, y, class, html.EscapeString(text))
}

// box draws a title above lines of text.
func (s *sheet) box(x, y, w, h int, color, title string, lines []string) {
	fmt.Fprintf(s, `<rect x="%d" y="%d" width="%d" height="%d" rx="6" stroke="%s"/>`+"\n", x, y, w, h, color)
	s.text(x+9, y+19, "title", title)
	for n, line := range lines {
		s.text(x+9, y+37+n*lineHeight, "", line)
	}
}

// row draws boxes of the same height side by side, and returns the middle of each, by its
// title, and the row's end.
func (s *sheet) row(y int, titles []string, lines func(string) []string, color func(n int) string) (middle map[string]int, end int) {
	most := 0
	for _, title := range titles {
		most = max(most, len(lines(title)))
	}
	step := (pictureWidth - 2*margin + 10) / len(titles)
	h := 30 + most*lineHeight
	middle = map[string]int{}
	for n, title := range titles {
		x := margin + n*step
		s.box(x, y, step-10, h, color(n), title, lines(title))
		middle[title] = x + (step-10)/2
	}
	return middle, y + h
}

func draw(what structure) string {
	var s sheet
	gray := func(int) string { return "#64748b" }
	y := margin + 8
	s.text(margin, y, "band", "cmd/ — programs: they wire the operators together")
	_, y = s.row(y+10, what.programs, func(string) []string { return nil }, gray)

	y += 34
	s.text(margin, y, "band", "operators/ — data passes from left to right; no group imports one to its right")
	from, y := s.row(y+10, groups, func(g string) []string { return what.groups[g] }, func(n int) string { return colors[n] })
	operatorsEnd := y

	y += 110
	subjects := slices.Sorted(maps.Keys(what.subjects))
	var to map[string]int
	lines := y + 10
	to, y = s.row(lines, subjects, func(n string) []string { return what.subjects[n] }, gray)
	for n, g := range groups {
		for _, subject := range what.uses[g] {
			fmt.Fprintf(&s, `<path d="M%d %d C%d %d %d %d %d %d" stroke="%s"/>`+"\n", from[g], operatorsEnd,
				from[g], operatorsEnd+60, to[subject], lines-60, to[subject], lines, colors[n])
		}
	}

	// Above the lines that lead to the boxes.
	fmt.Fprintf(&s, `<rect x="%d" y="%d" width="440" height="18" style="fill: #fff; opacity: .85"/>`+"\n", margin, lines-24)
	s.text(margin, lines-10, "band", "internal/ — what is known of the data; only ig knows Inspektor Gadget")

	y += 34
	s.text(margin, y, "band", "kernel — gadgets/, with the folders of bpf/ that each includes")
	_, y = s.row(y+10, slices.Sorted(maps.Keys(what.gadgets)), func(g string) []string {
		return wrap(what.gadgets[g], 36)
	}, gray)

	return fmt.Sprintf(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="12">
<style>rect { fill: #f8fafc; stroke-width: 1.5 } path { fill: none; stroke-width: 1.2; opacity: .6 } text { fill: #0f172a } .title { font-weight: bold } .band { font-size: 13px; fill: #475569 }</style>
<rect width="100%%" height="100%%" style="fill: #fff"/>
%s</svg>
`, pictureWidth, y+margin, s.String())
}

// wrap joins names to lines of at most so many bytes.
func wrap(names []string, width int) (lines []string) {
	for _, name := range names {
		if n := len(lines) - 1; n >= 0 && len(lines[n])+3+len(name) <= width {
			lines[n] += ", " + name
			continue
		} else if n >= 0 {
			lines[n] += ","
		}
		lines = append(lines, name)
	}
	return lines
}

func TestThePictureHasWhatIsImported(t *testing.T) {
	root := fstest.MapFS{
		"cmd/run/main.go":            {Data: []byte("package main; import _ \"" + module + "operators/decode/rows\"")},
		"operators/decode/rows/x.go": {Data: []byte("package rows; import _ \"" + module + "internal/stack\"")},
		"internal/stack/x.go":        {Data: []byte("package stack; import _ \"fmt\"")},
		"gadgets/g/program.bpf.c":    {Data: []byte("#include <x.h>\n#include \"call/a.h\"\n")},
		"gadgets/h/program.bpf.c":    {Data: []byte("#define H\n#include \"../g/program.bpf.c\"\n")},
		"bpf/call/a.h":               {Data: []byte("#include \"stack/b.h\"\n")},
		"bpf/stack/b.h":              {Data: []byte("#include \"call/a.h\"\n")},
	}
	require.Equal(t, structure{
		programs: []string{"run"},
		groups:   map[string][]string{"decode": {"rows"}},
		subjects: map[string][]string{"stack": nil},
		uses:     map[string][]string{"decode": {"stack"}},
		gadgets:  map[string][]string{"g": {"call", "stack"}, "h": {"call", "stack"}},
	}, structureOf(sources(t, root), gadgetsOf(t, root)))
}
