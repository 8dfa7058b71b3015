// SPDX-License-Identifier: Apache-2.0

package layout

import (
	"fmt"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"
)

const (
	module  = "github.com/gpu-gadgets/gpu-gadgets/"
	gadget  = "github.com/inspektor-gadget/inspektor-gadget/"
	adapter = "internal/ig"

	// maxFolders is the number that a reader can grasp at a glance.
	maxFolders = 12
)

// groups of operators, in the order in which data passes.
var groups = []string{"attach", "decode", "judge", "show", "send"}

// suites are the groups of tests, by their subject; support is shared by them.
var suites = []string{"gadgets", "product", "systems", "measure", "support"}

// undocumented are the packages behind the context variables of a gadget.
var undocumented = []string{gadget + "pkg/container-collection", gadget + "pkg/gadgets"}

// imported is one import of one file.
type imported struct {
	file, path string
	isTest     bool
}

// sources returns the imports of the module by folder, for all build tags.
func sources(t *testing.T, root fs.FS) map[string][]imported {
	t.Helper()
	all := map[string][]imported{}
	require.NoError(t, fs.WalkDir(root, ".", func(name string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if e.IsDir() {
			if name == "." {
				return nil
			}
			_, err := fs.Stat(root, path.Join(name, "go.mod"))
			if err == nil || strings.HasPrefix(e.Name(), ".") || e.Name() == "testdata" || name == "build" || name == "bin" {
				return fs.SkipDir // another module, or no source
			}
			return nil
		}
		if !strings.HasSuffix(name, ".go") {
			return nil
		}
		text, err := fs.ReadFile(root, name)
		if err != nil {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, text, parser.ImportsOnly)
		if err != nil {
			return err
		}
		folder := path.Dir(name)
		all[folder] = append(all[folder], nil...)
		for _, spec := range file.Imports {
			target, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				return err
			}
			all[folder] = append(all[folder], imported{name, target, strings.HasSuffix(name, "_test.go")})
		}
		return nil
	}))
	return all
}

// problems are the breaches of the rules, each with the file and the import.
func problems(all map[string][]imported) []string {
	var found []string
	for folder, imports := range all {
		for _, i := range imports {
			if why := forbidden(folder, i); why != "" {
				found = append(found, fmt.Sprintf("%s imports %s: %s", i.file, i.path, why))
			}
		}
		if why := misplaced(folder, imports); why != "" {
			found = append(found, folder+": "+why)
		}
	}
	for folder, n := range folders(all) {
		if n > maxFolders {
			found = append(found, fmt.Sprintf("%s: has %d folders with packages, more than %d", folder, n, maxFolders))
		}
	}
	slices.Sort(found)
	return found
}

// forbidden returns why a package must not import another; "" if it may.
func forbidden(folder string, i imported) string {
	from, _, _ := strings.Cut(folder, "/")
	if slices.Contains(undocumented, i.path) && !inAdapter(folder) && from != "test" {
		return "only " + adapter + " knows what Inspektor Gadget does not document"
	}
	if strings.HasPrefix(i.path, gadget) && from == "internal" && !inAdapter(folder) {
		return "in internal/ only " + adapter + " knows Inspektor Gadget"
	}
	target, ours := strings.CutPrefix(i.path, module)
	if !ours {
		return ""
	}
	switch to, _, _ := strings.Cut(target, "/"); to {
	case "cmd":
		if from != "cmd" {
			return "cmd/ only wires, and nothing imports it"
		}
	case "test":
		if from != "test" && !i.isTest {
			return "test/ is for tests"
		}
		if group(target) != "support" && !strings.HasPrefix(target+"/", suite(folder)) {
			return "suites share only what is in test/support"
		}
	case "operators":
		if !slices.Contains([]string{"operators", "cmd", "test"}, from) {
			return from + "/ does not know operators/"
		}
		if from == "operators" && slices.Index(groups, group(target)) > slices.Index(groups, group(folder)) {
			return "data passes from " + group(folder) + " to " + group(target) + ", not back"
		}
	}
	return ""
}

// inAdapter reports whether a folder is the adapter or below it.
func inAdapter(folder string) bool {
	return folder == adapter || strings.HasPrefix(folder, adapter+"/")
}

// misplaced returns why a package is in the wrong place; "" if it is not.
func misplaced(folder string, imports []imported) string {
	if strings.HasPrefix(folder, "test/") && (!slices.Contains(suites, group(folder)) || strings.Count(folder, "/") < 2) {
		return "is not test/<group>/<suite> with a group of " + strings.Join(suites, ", ")
	}
	if !strings.HasPrefix(folder, "operators/") {
		return ""
	}
	if !slices.Contains(groups, group(folder)) || strings.Count(folder, "/") != 2 {
		return "is not operators/<group>/<package> with a group of " + strings.Join(groups, ", ")
	}
	if !slices.ContainsFunc(imports, func(i imported) bool { return !i.isTest && strings.HasPrefix(i.path, gadget) }) {
		return "knows nothing of Inspektor Gadget, and belongs into internal/"
	}
	return ""
}

// suite is the folder of the suite that a folder below test/ belongs to, with a slash.
func suite(folder string) string {
	parts := strings.SplitAfterN(folder+"/", "/", 4)
	return strings.Join(parts[:min(len(parts), 3)], "")
}

// group of a folder below operators/ or test/.
func group(folder string) string {
	parts := strings.Split(folder, "/")
	if len(parts) < 2 {
		return ""
	}
	return parts[1]
}

// folders counts the folders with packages that lie directly in each one.
func folders(all map[string][]imported) map[string]int {
	seen, count := map[string]bool{}, map[string]int{}
	for folder := range all {
		top, _, _ := strings.Cut(folder, "/")
		if !slices.Contains([]string{"operators", "internal", "cmd", "test"}, top) {
			continue
		}
		for ; strings.Contains(folder, "/") && !seen[folder]; folder = path.Dir(folder) {
			seen[folder] = true
			count[path.Dir(folder)]++
		}
	}
	return count
}

func TestPackagesLieWhereTheyBelong(t *testing.T) {
	all := sources(t, os.DirFS("../.."))
	require.Contains(t, all, "cmd/ig-gpu", "this is not the module's root")
	require.Contains(t, all, "operators/attach/attach")
	require.Contains(t, all, adapter)
	require.Empty(t, problems(all))
}

// Each rule finds and names violations.
func TestBreachesAreNamed(t *testing.T) {
	const api = `import _ "` + gadget + `pkg/operators"; `
	ours := func(name string) string { return `import _ "` + module + name + `"; ` }
	for _, c := range []struct {
		name, file, text, want string
	}{
		{"an operator may use what lies before it", "operators/judge/x/x.go", api + ours("operators/decode/rows") + ours("internal/ig"), ""},
		{"tests may use test/", "internal/x/x_test.go", ours("test/support/bpftest"), ""},
		{"tests do not use programs", "test/product/x/x.go", ours("cmd/ig-gpu"), "test/product/x/x.go imports " + module + "cmd/ig-gpu: cmd/ only wires, and nothing imports it"},
		{"internal, operator", "internal/x/x.go", ours("operators/decode/rows"), "internal/x/x.go imports " + module + "operators/decode/rows: internal/ does not know operators/"},
		{"internal, operator in a test", "internal/x/x_test.go", ours("operators/decode/rows"), "internal/x/x_test.go imports " + module + "operators/decode/rows: internal/ does not know operators/"},
		{"internal, behind a build tag", "internal/x/x_arm64.go", ours("cmd/ig-gpu"), "internal/x/x_arm64.go imports " + module + "cmd/ig-gpu: cmd/ only wires, and nothing imports it"},
		{"internal, Inspektor Gadget", "internal/x/x.go", api, "internal/x/x.go imports " + gadget + "pkg/operators: in internal/ only internal/ig knows Inspektor Gadget"},
		{"wasm", "wasm/x/x.go", ours("operators/decode/rows"), "wasm/x/x.go imports " + module + "operators/decode/rows: wasm/ does not know operators/"},
		{"undocumented", "operators/send/x/x.go", api + `import _ "` + gadget + `pkg/gadgets"`, "operators/send/x/x.go imports " + gadget + "pkg/gadgets: only internal/ig knows what Inspektor Gadget does not document"},
		{"back", "operators/judge/x/x.go", api + ours("operators/send/metrics"), "operators/judge/x/x.go imports " + module + "operators/send/metrics: data passes from judge to send, not back"},
		{"test", "operators/judge/x/x.go", api + ours("test/support/bpftest"), "operators/judge/x/x.go imports " + module + "test/support/bpftest: test/ is for tests"},
		{"a part of a suite", "test/product/x/x.go", ours("test/product/x/part"), ""},
		{"another suite", "test/product/x/x.go", ours("test/product/y"), "test/product/x/x.go imports " + module + "test/product/y: suites share only what is in test/support"},
		{"support, suite", "test/support/x/x.go", ours("test/product/y"), "test/support/x/x.go imports " + module + "test/product/y: suites share only what is in test/support"},
		{"a suite without a group", "test/x/x.go", "", "test/x: is not test/<group>/<suite> with a group of gadgets, product, systems, measure, support"},
		{"pure", "operators/judge/x/x.go", "", "operators/judge/x: knows nothing of Inspektor Gadget, and belongs into internal/"},
		{"no group", "operators/x/x.go", api, "operators/x: is not operators/<group>/<package> with a group of attach, decode, judge, show, send"},
		{"too deep", "operators/judge/x/y/y.go", api, "operators/judge/x/y: is not operators/<group>/<package> with a group of attach, decode, judge, show, send"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := problems(sources(t, fstest.MapFS{c.file: {Data: []byte("package x; " + c.text)}}))
			if c.want == "" {
				require.Empty(t, got)
				return
			}
			require.Equal(t, []string{c.want}, got)
		})
	}
	t.Run("another module", func(t *testing.T) {
		require.Empty(t, problems(sources(t, fstest.MapFS{
			"test/other/go.mod": {}, "test/other/x.go": {Data: []byte("package x; " + ours("cmd/ig-gpu"))},
		})))
	})
	t.Run("many folders", func(t *testing.T) {
		many := fstest.MapFS{}
		for n := range maxFolders + 1 {
			many[fmt.Sprintf("internal/elf/p%d/x.go", n)] = &fstest.MapFile{Data: []byte("package x")}
		}
		require.Equal(t, []string{"internal/elf: has 13 folders with packages, more than 12"}, problems(sources(t, many)))
	})
}
