// SPDX-License-Identifier: Apache-2.0

// Package prose holds the project's English, as a test: Phrases is a list of wording that the
// manuals of our field do not use, each with what to write instead. The test reads Markdown,
// YAML, dashboards, the comments of eBPF, and the comments and strings of Go. In Markdown it
// also checks that links resolve and that no page is too long (links.go).
//
// Comments of code also follow a second list, with the terms of the code (comments.go).
//
// A text that passes can still be hard to read: the list only keeps corrected wording from
// coming back.
package prose

import (
	"fmt"
	"go/parser"
	"go/scanner"
	"go/token"
	"path"
	"strings"
)

// Finding is one place that a reader should change.
type Finding struct {
	File string
	Line int
	// Text is the match, Suggestion what to write or do instead.
	Text, Suggestion string
}

func (f Finding) String() string {
	return fmt.Sprintf("%s:%d: %q: %s", f.File, f.Line, f.Text, f.Suggestion)
}

// line is one line of text with the number that it has in its file.
type line struct {
	number int
	text   string
}

// Check compares the text of a file with the list. The file's extension determines the
// text: all of Markdown, YAML, JSON and text files; comments and strings of Go; comments
// of C.
func Check(name, content string, phrases []Phrase) []Finding {
	return check(name, blocks(name, content), phrases)
}

func check(name string, paragraphs [][]line, phrases []Phrase) []Finding {
	var found []Finding
	for _, block := range paragraphs {
		text, starts := join(block)
		for _, p := range phrases {
			for _, at := range p.Pattern.FindAllStringIndex(text, -1) {
				if p.Except != nil && overlaps(p.Except.FindAllStringIndex(text, -1), at) {
					continue
				}
				words := strings.Trim(text[at[0]:at[1]], " .,;:")
				found = append(found, Finding{name, numberAt(block, starts, at[1]-1), words, p.Suggestion})
			}
		}
	}
	return found
}

// overlaps reports whether one of the spans overlaps at.
func overlaps(spans [][]int, at []int) bool {
	for _, s := range spans {
		if s[0] < at[1] && at[0] < s[1] {
			return true
		}
	}
	return false
}

// join makes one string of a paragraph, so that a phrase is found across line breaks.
// starts has the offset of each line.
func join(block []line) (text string, starts []int) {
	var b strings.Builder
	for i, l := range block {
		if i > 0 {
			b.WriteByte(' ')
		}
		starts = append(starts, b.Len())
		b.WriteString(strings.TrimSpace(l.text))
	}
	return b.String(), starts
}

// numberAt returns the line of the file for an offset in the joined text.
func numberAt(block []line, starts []int, offset int) int {
	number := block[0].number
	for i, s := range starts {
		if s > offset {
			break
		}
		number = block[i].number
	}
	return number
}

// blocks returns the paragraphs of a file, without comment markers.
func blocks(name, content string) [][]line {
	switch path.Ext(name) {
	case ".go":
		return paragraphs(goText(content, true))
	case ".c", ".h":
		return paragraphs(cComments(content))
	case ".md": // text between backquotes is a name or a command
		content = code.ReplaceAllString(content, "`code`")
	}
	return paragraphs(numbered(1, content))
}

// paragraphs splits at empty lines and where lines of the file were skipped.
func paragraphs(lines []line) [][]line {
	var all [][]line
	var block []line
	flush := func() {
		if len(block) > 0 {
			all = append(all, block)
		}
		block = nil
	}
	for i, l := range lines {
		l.text = strings.TrimLeft(l.text, " \t")
		l.text = strings.TrimPrefix(strings.TrimPrefix(l.text, "# "), "> ")
		if i > 0 && l.number > lines[i-1].number+1 {
			flush()
		}
		if strings.Trim(l.text, "#*/ \t") == "" {
			flush()
			continue
		}
		block = append(block, l)
	}
	flush()
	return all
}

func numbered(first int, text string) []line {
	var lines []line
	for i, s := range strings.Split(text, "\n") {
		lines = append(lines, line{first + i, s})
	}
	return lines
}

// goText returns the comments and, with literals, the string literals of Go, as lines
// without their markers. A file that does not parse has none: the compiler reports it.
func goText(content string, literals bool) []line {
	if _, err := parser.ParseFile(token.NewFileSet(), "", content, parser.PackageClauseOnly); err != nil {
		return nil
	}
	var s scanner.Scanner
	files := token.NewFileSet()
	file := files.AddFile("", files.Base(), len(content))
	s.Init(file, []byte(content), nil, scanner.ScanComments)
	var lines []line
	for {
		pos, kind, literal := s.Scan()
		if kind == token.EOF {
			return lines
		}
		first := files.Position(pos).Line
		switch kind {
		case token.COMMENT:
			lines = append(lines, numbered(first, commentText(literal))...)
		case token.STRING:
			if !literals {
				continue
			}
			lines = append(lines, numbered(first, strings.Trim(literal, "\"`"))...)
		}
	}
}

// cComments returns the comments of C, as lines. Strings are not parsed, because none in
// our sources contains the beginning of a comment.
func cComments(content string) []line {
	var lines []line
	inside := false
	for _, l := range numbered(1, content) {
		text := l.text
		for text != "" {
			if inside {
				comment, rest, ended := strings.Cut(text, "*/")
				lines = append(lines, line{l.number, strings.TrimLeft(comment, " \t*")})
				inside, text = !ended, rest
				continue
			}
			_, rest, begins := strings.Cut(text, "/*")
			if !begins {
				break
			}
			inside, text = true, rest
		}
		if inside && l.text == "" {
			lines = append(lines, l)
		}
	}
	return lines
}

// commentText returns a comment of Go without its markers.
func commentText(comment string) string {
	if text, is := strings.CutPrefix(comment, "//"); is {
		return strings.TrimPrefix(text, " ")
	}
	return strings.TrimSuffix(strings.TrimPrefix(comment, "/*"), "*/")
}
