// SPDX-License-Identifier: Apache-2.0

// Package docs runs the commands of README.md and of the guides (docs/guides), as a reader
// would: block by block in one shell, and compares their output with that on the page.
package docs

import (
	"fmt"
	"regexp"
	"strings"
)

// block is a fenced block of commands, with the output that the page shows below it.
type block struct {
	line    int    // of its first command, counted from 1
	script  string // the text that the shell runs
	output  string // of the following text block; "" where the page shows none
	skipped string // why it is not run; "" where it is
}

// notRun marks a block of commands that the test must not run, with the reason.
var notRun = regexp.MustCompile(`^<!-- not run: (.+) -->$`)

// parse returns the blocks of a page in their order: those with the language bash, each with
// the block of language text that follows it after only blank lines.
func parse(text string) ([]block, error) {
	var (
		blocks   []block
		language string // of the open fence
		body     []string
		start    int
		reason   string
		adjacent bool // only blank lines since the last block of commands
	)
	for n, line := range strings.Split(text, "\n") {
		fence := strings.HasPrefix(line, "```")
		switch {
		case fence && language == "":
			language, body, start = strings.TrimPrefix(line, "```"), nil, n+2
			if language == "" {
				language = "none"
			}
		case fence:
			content := strings.Join(body, "\n") + "\n"
			switch language {
			case "bash":
				blocks = append(blocks, block{line: start, script: content, skipped: reason})
				adjacent = true
			case "text":
				if !adjacent {
					return nil, fmt.Errorf("line %d: an output without commands before it", start-1)
				}
				blocks[len(blocks)-1].output = content
				adjacent = false
			default:
				adjacent = false
			}
			language, reason = "", ""
		case language != "":
			body = append(body, line)
		case notRun.MatchString(line):
			reason = notRun.FindStringSubmatch(line)[1]
		case strings.TrimSpace(line) != "":
			adjacent, reason = false, ""
		}
	}
	if language != "" {
		return nil, fmt.Errorf("line %d: a block that does not end", start-1)
	}
	return blocks, nil
}

var (
	escapes = regexp.MustCompile("\x1b\\[[0-9;?]*[A-Za-z]|\r")
	hex     = regexp.MustCompile(`0x[0-9a-f]+`)
	// A number with its unit: both change from run to run.
	numbers = regexp.MustCompile(`[-+]?\d[\d.,:]*(?: ?(?:[KMGT]i?B|B|ns|µs|us|ms|s|m|h|%)\b| ?%)?`)
	blanks  = regexp.MustCompile(`[\s─━-]+`)
)

// shape is a line without the parts that change from run to run: numbers, units, widths.
func shape(line string) string {
	line = escapes.ReplaceAllString(line, "")
	line = hex.ReplaceAllString(line, "#")
	line = numbers.ReplaceAllStringFunc(line, func(s string) string { return "#" })
	return strings.TrimSpace(blanks.ReplaceAllString(line, " "))
}

// missing returns the first line of the page's output that the real output does not have, in
// the order of the page; "" if there is none. A line of … alone matches any lines, and … at
// the end of a line for the rest of it.
func missing(shown, printed string) string {
	lines := strings.Split(printed, "\n")
	for _, want := range strings.Split(strings.TrimSpace(shown), "\n") {
		if strings.Trim(want, " …") == "" {
			continue
		}
		found := false
		for len(lines) > 0 && !found {
			found = matches(shape(want), shape(lines[0]))
			lines = lines[1:]
		}
		if !found {
			return want
		}
	}
	return ""
}

func matches(want, got string) bool {
	if start, cut := strings.CutSuffix(want, "…"); cut {
		return strings.HasPrefix(got, strings.TrimSpace(start))
	}
	return want == got
}
