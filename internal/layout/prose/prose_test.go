// SPDX-License-Identifier: Apache-2.0

package prose

import (
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"
)

// skipped are paths without text of ours, and why.
var skipped = map[string]string{
	"build":                             "outputs",
	"bin":                               "outputs",
	"LICENSES":                          "texts of others",
	"internal/layout/prose/phrases.go":  "the list itself",
	"internal/layout/prose/comments.go": "the list for comments",
}

var readExtensions = []string{".md", ".yaml", ".yml", ".tpl", ".txt", ".json", ".go", ".c", ".h"}

// TestPlainEnglish fails with each phrase of the list, each link that leads nowhere, and
// each page that is too long.
func TestPlainEnglish(t *testing.T) {
	t.Parallel()
	root := os.DirFS("../../..")
	counts := map[string]int{}
	for _, name := range texts(t, root) {
		content, err := fs.ReadFile(root, name)
		require.NoError(t, err)
		found := Check(name, string(content), Phrases())
		if path.Ext(name) == ".md" {
			found = append(found, Links(root, name, string(content))...)
			found = append(found, tooLong(name, string(content))...)
		}
		for _, f := range found {
			counts[strings.ToLower(f.Text)]++
			t.Error(f)
		}
	}
	if testing.Verbose() {
		t.Log(table(counts))
	}
}

// TestPlainComments fails with each phrase of the list for comments, in the folders that
// follow it.
func TestPlainComments(t *testing.T) {
	t.Parallel()
	root := os.DirFS("../../..")
	for _, folder := range Reworded() {
		files := 0
		require.NoError(t, fs.WalkDir(root, folder, func(name string, e fs.DirEntry, err error) error {
			if err != nil || e.IsDir() || skipped[name] != "" {
				return err
			}
			content, err := fs.ReadFile(root, name)
			require.NoError(t, err)
			for _, f := range CheckComments(name, string(content), CommentPhrases()) {
				t.Error(f)
			}
			files++
			return nil
		}))
		require.NotZero(t, files, folder)
	}
}

// tooLong are the pages for users beyond MaxLines.
func tooLong(name, content string) []Finding {
	if name != "README.md" && !inside(name, "docs") {
		return nil
	}
	if n := strings.Count(content, "\n"); n > MaxLines {
		return []Finding{{name, n, fmt.Sprintf("%d lines", n), fmt.Sprintf("at most %d: split the page", MaxLines)}}
	}
	return nil
}

func inside(name, folder string) bool {
	return name == folder || strings.HasPrefix(name, folder+"/")
}

// texts returns the files to read: all except tests, their data, and outputs.
func texts(t *testing.T, root fs.FS) []string {
	t.Helper()
	var all []string
	require.NoError(t, fs.WalkDir(root, ".", func(name string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		_, skip := skipped[name]
		if e.IsDir() {
			if skip || name != "." && strings.HasPrefix(e.Name(), ".") || e.Name() == "testdata" || e.Name() == "node_modules" {
				return fs.SkipDir
			}
			return nil
		}
		test := strings.HasSuffix(name, "_test.go") || inside(name, "test") && path.Ext(name) != ".md"
		if slices.Contains(readExtensions, path.Ext(name)) && !skip && !test {
			all = append(all, name)
		}
		return nil
	}))
	require.Greater(t, len(all), 200, "the tree was not found")
	return all
}

// table is how often each phrase was found, the most frequent first.
func table(counts map[string]int) string {
	var rows []string
	for words, n := range counts {
		rows = append(rows, fmt.Sprintf("%4d  %s", n, words))
	}
	slices.Sort(rows)
	slices.Reverse(rows)
	return "found:\n" + strings.Join(rows, "\n")
}

func TestEachPhraseIsFound(t *testing.T) {
	t.Parallel()
	for _, p := range append(Phrases(), CommentPhrases()...) {
		found := Check("a.md", p.Example, []Phrase{p})
		require.NotEmpty(t, found, p.Example)
		require.Equal(t, p.Suggestion, found[0].Suggestion)
	}
}

func TestExceptionsAreNotFound(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"power drawn by the board", "the field `drawn`", "they are told apart by the pid", "addresses that have come from a hostile process",
		"what is going on", "the estimate is as good as the sample",
	} {
		require.Empty(t, Check("a.md", text, Phrases()), text)
	}
}

func TestTextIsFoundWhereItIsWritten(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, content, want string }{
		{"a.md", "One\n\nit reads what\nnobody takes", `a.md:4: "nobody": no process, no rank, nothing, no one`},
		{"a.md", "rank 1 does\nnot come", `a.md:2: "does not come": is missing, has not arrived`},
		{"a.go", "package a\n\n// A takes what\n// nobody wants.\nvar A = 1", `a.go:4: "nobody": no process, no rank, nothing, no one`},
		{"a.go", "package a\n\nvar A = f(\"for people\")", `a.go:3: "for people": human-readable`},
		{"a.h", "int nobody;\n/* what is\n * drawn\n */", `a.h:3: "drawn": sampled`},
		{"a.yaml", "# for people\na: 1", `a.yaml:1: "for people": human-readable`},
		{"a.yaml", "a:\n  description: for people", `a.yaml:2: "for people": human-readable`},
	} {
		found := Check(c.name, c.content, Phrases())
		require.Len(t, found, 1, c.content)
		require.Equal(t, c.want, found[0].String())
	}
}

func TestNamesInCodeAreNotText(t *testing.T) {
	t.Parallel()
	require.Empty(t, Check("a.go", "package a\n\nfunc nobody(drawn int) {}", Phrases()))
	require.Empty(t, Check("a.h", "int nobody(int drawn);", Phrases()))
}

func TestBrokenLinksAreFound(t *testing.T) {
	t.Parallel()
	root := fstest.MapFS{
		"docs/a.md":         {Data: []byte("# A page\n## Who, what?\n## Who, what?\n### [A](b.md) `c_d`\n")},
		"gadgets/README.md": {Data: []byte("# Gadgets\n")},
	}
	for target, want := range map[string]string{
		"a.md":                     "",
		"a.md#a-page":              "",
		"a.md#who-what":            "",
		"a.md#who-what-1":          "",
		"a.md#a-c_d":               "",
		"../gadgets":               "",
		"../gadgets#gadgets":       "",
		"https://example.com/none": "",
		"#here":                    "",
		"b.md":                     "no such file: docs/b.md",
		"a.md#who-what-2":          "no such heading in docs/a.md",
		"#there":                   "no such heading in docs/c.md",
	} {
		found := Links(root, "docs/c.md", "# Here\n[x]("+target+")\n```\n[y](none.md)\n```\n`[z](none.md)`\n")
		if want == "" {
			require.Empty(t, found, target)
			continue
		}
		require.Equal(t, []Finding{{"docs/c.md", 2, target, want}}, found)
	}
}

func TestLongPagesAreFound(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("a\n", MaxLines+1)
	require.Len(t, tooLong("docs/a.md", long), 1)
	require.Empty(t, tooLong("docs/a.md", long[2:]))
	require.Empty(t, tooLong("CHANGELOG.md", long))
}
