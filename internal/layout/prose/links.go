// SPDX-License-Identifier: Apache-2.0

package prose

import (
	"fmt"
	"io/fs"
	"net/url"
	"path"
	"regexp"
	"strings"
	"unicode"
)

// MaxLines is the maximum length of a page for users: a longer one should be two pages.
const MaxLines = 250

var (
	link    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	code    = regexp.MustCompile("`[^`\n]*`")
	heading = regexp.MustCompile(`^#{1,6} +(.+?) *$`)
	label   = regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`)
)

// Links returns the broken relative links of a page of root, including those to its
// headings. Links to other sites are not followed.
func Links(root fs.FS, name, content string) []Finding {
	var found []Finding
	for _, l := range outsideCode(content) {
		for _, m := range link.FindAllStringSubmatch(code.ReplaceAllString(l.text, ""), -1) {
			if why := broken(root, name, content, m[1]); why != "" {
				found = append(found, Finding{name, l.number, m[1], why})
			}
		}
	}
	return found
}

// broken returns why a link is broken, empty if it is not.
func broken(root fs.FS, name, content, target string) string {
	u, err := url.Parse(target)
	if err != nil {
		return err.Error()
	}
	if u.Scheme != "" || u.Host != "" {
		return ""
	}
	if u.Path != "" {
		name = path.Join(path.Dir(name), u.Path)
		info, err := fs.Stat(root, name)
		if err != nil {
			return "no such file: " + name
		}
		if info.IsDir() {
			name = path.Join(name, "README.md")
		}
		if u.Fragment == "" {
			return ""
		}
		text, err := fs.ReadFile(root, name)
		if err != nil {
			return "no such file: " + name
		}
		content = string(text)
	}
	if !anchors(content)[u.Fragment] {
		return fmt.Sprintf("no such heading in %s", name)
	}
	return ""
}

// anchors returns the names that GitHub gives to the headings of a page: lower case,
// without punctuation, blanks as hyphens, numbered if a heading is repeated.
func anchors(content string) map[string]bool {
	all := map[string]bool{}
	for _, l := range outsideCode(content) {
		m := heading.FindStringSubmatch(l.text)
		if m == nil {
			continue
		}
		name := anchor(label.ReplaceAllString(m[1], "$1"))
		again := name
		for i := 1; all[again]; i++ {
			again = fmt.Sprintf("%s-%d", name, i)
		}
		all[again] = true
	}
	return all
}

func anchor(heading string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == ' ':
			return '-'
		case unicode.IsLetter(r), unicode.IsDigit(r), r == '-', r == '_':
			return unicode.ToLower(r)
		}
		return -1
	}, heading)
}

// outsideCode returns the lines of Markdown that are not in a block of code.
func outsideCode(content string) []line {
	var lines []line
	inside := false
	for _, l := range numbered(1, content) {
		if strings.HasPrefix(strings.TrimSpace(l.text), "```") {
			inside = !inside
			continue
		}
		if !inside {
			lines = append(lines, l)
		}
	}
	return lines
}
