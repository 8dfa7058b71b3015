// SPDX-License-Identifier: Apache-2.0

package labels

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// exporting are the packages that make labels of metrics.
var exporting = []string{"operators/send", "operators/judge/ranks", "operators/attach/unwind", "internal/collective",
	"internal/export/label", "cmd/gpu-exporter/internal/follow"}

// emitted are the names of the labels that the sources of our metrics have, as Prometheus writes
// them: first arguments of attribute.String and the like, second ones of labelled, and first
// elements of [2]string.
func emitted(t *testing.T) (names []string) {
	t.Helper()
	add := func(constants map[string]string, e ast.Expr) {
		name := ""
		switch e := e.(type) {
		case *ast.BasicLit:
			name, _ = strconv.Unquote(e.Value)
		case *ast.Ident:
			name = constants[e.Name]
		}
		if name = strings.ReplaceAll(name, ".", "_"); name != "" && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	for _, files := range sources(t) {
		constants := map[string]string{}
		inspect(files, func(n ast.Node) {
			spec, ok := n.(*ast.ValueSpec)
			if !ok || len(spec.Values) != len(spec.Names) {
				return
			}
			for i, value := range spec.Values {
				if literal, ok := value.(*ast.BasicLit); ok && literal.Kind == token.STRING {
					constants[spec.Names[i].Name], _ = strconv.Unquote(literal.Value)
				}
			}
		})
		inspect(files, func(n ast.Node) {
			switch n := n.(type) {
			case *ast.CallExpr:
				switch f := n.Fun.(type) {
				case *ast.SelectorExpr:
					if of, ok := f.X.(*ast.Ident); ok && of.Name == "attribute" && len(n.Args) == 2 {
						add(constants, n.Args[0])
					}
				case *ast.Ident:
					if f.Name == "labelled" {
						add(constants, n.Args[1])
					}
				}
			case *ast.CompositeLit:
				of, _ := n.Type.(*ast.ArrayType)
				switch {
				case isPair(of):
					add(constants, n.Elts[0])
				case of != nil && of.Len == nil && isPair(of.Elt):
					for _, pair := range n.Elts {
						if pair, ok := pair.(*ast.CompositeLit); ok {
							add(constants, pair.Elts[0])
						}
					}
				}
			}
		})
	}
	return names
}

// sources are the files of each package without its tests.
func sources(t *testing.T) map[string][]*ast.File {
	t.Helper()
	packages := map[string][]*ast.File{}
	for _, folder := range exporting {
		require.NoError(t, filepath.WalkDir(filepath.Join("../../..", folder), func(path string, _ fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
			packages[filepath.Dir(path)] = append(packages[filepath.Dir(path)], file)
			return err
		}))
	}
	return packages
}

func inspect(files []*ast.File, visit func(ast.Node)) {
	for _, file := range files {
		ast.Inspect(file, func(n ast.Node) bool {
			visit(n)
			return true
		})
	}
}

// isPair: [2]string.
func isPair(e ast.Expr) bool {
	of, ok := e.(*ast.ArrayType)
	if !ok || of == nil || of.Len == nil {
		return false
	}
	length, _ := of.Len.(*ast.BasicLit)
	element, _ := of.Elt.(*ast.Ident)
	return length != nil && length.Value == "2" && element != nil && element.Name == "string"
}

// A label of that name would be there twice, which fails every scrape, or would replace a value.
func TestLabelsOfMetricsAreReserved(t *testing.T) {
	names := emitted(t)
	for _, name := range []string{"k8s_node_name", "k8s_cluster_name", "hw_vendor", "error_type", "seq", "communicator_name", "network_io_direction"} {
		require.Contains(t, names, name, "each way to make a label is found")
	}
	var missing []string
	for _, name := range names {
		if _, err := Parse(name + "=env:X"); err == nil {
			missing = append(missing, name)
		}
	}
	slices.Sort(missing)
	require.Empty(t, missing, "add them to reserved")
}
