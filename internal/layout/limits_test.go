// SPDX-License-Identifier: Apache-2.0

package layout

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
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

// The limits of readable files and functions.
const (
	maxFileLines     = 400
	maxFunctionLines = 80
)

// tooLong are the files and functions ("file: function") that were longer when the limits
// came. It only shrinks: an entry that has been shortened must be removed.
var tooLong = []string{}

// cFunction is the first line of the body of a function in C, in the kernel's style: the
// brace stands alone, and so does the one that ends it.
var cFunction = regexp.MustCompile(`(?m)^\{\n(?s:.*?)^\}`)

// overLimits are the files and functions of a tree that are too long, each with its length.
func overLimits(t *testing.T, root fs.FS) map[string]int {
	t.Helper()
	found := map[string]int{}
	require.NoError(t, fs.WalkDir(root, ".", func(name string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if e.IsDir() {
			if name != "." && (name == "build" || name == "bin" || strings.HasPrefix(e.Name(), ".")) {
				return fs.SkipDir
			}
			return nil
		}
		if !slices.Contains([]string{".go", ".h", ".c", ".py", ".js", ".sh"}, path.Ext(name)) {
			return nil
		}
		text, err := fs.ReadFile(root, name)
		if err != nil {
			return err
		}
		if n := bytes.Count(text, []byte("\n")); n > maxFileLines {
			found[name] = n
		}
		switch path.Ext(name) {
		case ".go":
			return goFunctions(name, text, found)
		case ".h", ".c":
			cFunctions(name, text, found)
		}
		return nil
	}))
	return found
}

// goFunctions adds the functions of a file that are too long; doc comments do not count.
func goFunctions(name string, text []byte, found map[string]int) error {
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, name, text, 0)
	if err != nil {
		return err
	}
	for _, d := range file.Decls {
		f, ok := d.(*ast.FuncDecl)
		if !ok {
			continue
		}
		if n := files.Position(f.End()).Line - files.Position(f.Pos()).Line + 1; n > maxFunctionLines {
			found[name+": "+f.Name.Name] = n
		}
	}
	return nil
}

func cFunctions(name string, text []byte, found map[string]int) {
	for _, at := range cFunction.FindAllIndex(text, -1) {
		if n := bytes.Count(text[at[0]:at[1]], []byte("\n")) + 1; n > maxFunctionLines {
			before := strings.TrimSpace(string(text[:at[0]]))
			found[name+": "+functionName(before)] = n
		}
	}
}

// functionName is the name in the declaration that a text ends with.
func functionName(text string) string {
	declaration := text[strings.LastIndex(text, "\n\n")+1:]
	before, _, _ := strings.Cut(declaration[strings.LastIndex(declaration, "*/")+1:], "(")
	words := strings.FieldsFunc(before, func(r rune) bool { return strings.ContainsRune(" *\t\n/", r) })
	if len(words) == 0 {
		return "?"
	}
	return words[len(words)-1]
}

func TestFilesAndFunctionsAreShort(t *testing.T) {
	found := overLimits(t, os.DirFS("../.."))
	for name, lines := range found {
		if !slices.Contains(tooLong, name) {
			t.Errorf("%s has %d lines: files have at most %d, functions %d", name, lines, maxFileLines, maxFunctionLines)
		}
	}
	for _, name := range tooLong {
		require.Contains(t, found, name, "it is short enough now: remove it from tooLong")
	}
}

func TestLongFilesAndFunctionsAreNamed(t *testing.T) {
	lines := func(n int) string { return strings.Repeat("\tx();\n", n) }
	found := overLimits(t, fstest.MapFS{
		"a/long.py": {Data: []byte(lines(maxFileLines + 1))},
		"a/x.go":    {Data: []byte("package x\n\nfunc short() {\n" + lines(maxFunctionLines-2) + "}\n\nfunc (t T) long() {\n" + lines(maxFunctionLines-1) + "}\n")},
		"a/x.h": {Data: []byte("/* a */\nstatic int short(void)\n{\n" + lines(maxFunctionLines-2) + "}\n\n/* b() */\nstatic struct x *long_one(int a,\n\tint b)\n{\n" +
			lines(maxFunctionLines-1) + "}\n")},
		"build/x.py": {Data: []byte(lines(maxFileLines + 1))},
	})
	require.Equal(t, map[string]int{"a/long.py": 401, "a/x.go: long": 81, "a/x.h: long_one": 81}, found, fmt.Sprint(found))
}
