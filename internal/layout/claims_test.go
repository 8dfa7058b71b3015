// SPDX-License-Identifier: Apache-2.0

package layout

import (
	"io/fs"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"
)

const oneTest = "`((?:Test|Fuzz)[A-Z]\\w*)(?:/\\w+)?`"

var (
	testFunction = regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)\w+)\(`)
	// A claim is "`folder` (`TestOne`, `TestTwo/case`)", with or without the folder and the parentheses.
	claim     = regexp.MustCompile("(?:`([a-z0-9_/-]+)` \\(?)?" + oneTest + "(?:[^`|)]*" + oneTest + ")*")
	claimName = regexp.MustCompile(oneTest)
)

// testsByFolder returns the names of the tests of each folder.
func testsByFolder(t *testing.T, root fs.FS) map[string][]string {
	t.Helper()
	all := map[string][]string{}
	for name := range sources(t, root) {
		files, err := fs.Glob(root, path.Join(name, "*_test.go"))
		require.NoError(t, err)
		for _, file := range files {
			text, err := fs.ReadFile(root, file)
			require.NoError(t, err)
			for _, m := range testFunction.FindAllSubmatch(text, -1) {
				all[name] = append(all[name], string(m[1]))
			}
		}
	}
	return all
}

// unproven returns the tests of claims that do not exist, or not in the folder that is named, which may be cut at its front.
func unproven(text string, tests map[string][]string) (missing []string, found int) {
	for _, m := range claim.FindAllStringSubmatch(text, -1) {
		for _, name := range claimName.FindAllStringSubmatch(m[0], -1) {
			found++
			exists := false
			for folder, has := range tests {
				if m[1] == "" || strings.HasSuffix("/"+folder, "/"+m[1]) {
					exists = exists || slices.Contains(has, name[1])
				}
			}
			if !exists {
				missing = append(missing, strings.TrimPrefix(m[1]+" "+name[1], " "))
			}
		}
	}
	return missing, found
}

// What the pages promise is tested: each test that they name exists, where they say.
func TestPagesNameTestsThatExist(t *testing.T) {
	root := os.DirFS("../..")
	tests := testsByFolder(t, root)
	all := 0
	pages := []string{"SECURITY.md", "README.md", "test/README.md"}
	require.NoError(t, fs.WalkDir(root, "docs", func(name string, _ fs.DirEntry, err error) error {
		if path.Ext(name) == ".md" {
			pages = append(pages, name)
		}
		return err
	}))
	for _, page := range pages {
		text, err := fs.ReadFile(root, page)
		require.NoError(t, err)
		missing, found := unproven(string(text), tests)
		require.Empty(t, missing, "tests that %s names", page)
		all += found
	}
	require.Greater(t, all, 90)
}

func TestClaimsWithoutTestsAreFound(t *testing.T) {
	tests := testsByFolder(t, fstest.MapFS{
		"internal/a/a_test.go": {Data: []byte("package a\n\nfunc TestOne(t *testing.T) {}\n\nfunc FuzzTwo(f *testing.F) {}\n")},
		"test/b/b_test.go":     {Data: []byte("package b\n\nfunc TestThree(t *testing.T) {}\n")},
	})
	for text, want := range map[string][]string{
		"`a` (`TestOne`, `FuzzTwo`), `test/b` `TestThree/case`": nil,
		"`a` (`TestOne`: in short, `TestThree`)":                {"a TestThree"},
		"`b` `TestOne`":                                         {"b TestOne"},
		"`TestFour` and `TestThree`":                            {"TestFour"},
		"`est/b` (`TestThree`)":                                 {"est/b TestThree"},
	} {
		missing, found := unproven(text, tests)
		require.Equal(t, want, missing, text)
		require.Positive(t, found)
	}
}
