// SPDX-License-Identifier: Apache-2.0

package k8s

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/stretchr/testify/require"
)

// documentedRegistry is the registry's name in documents and examples.
const documentedRegistry = "registry.example.com"

var stepPattern = regexp.MustCompile("(?s)<!-- step: ([a-z-]+) -->\n+```bash\n(.*?)```\n")

// step is a block of docs/guides/kubernetes.md, with the registry of these tests.
func (c *cluster) step(name string) string {
	c.t.Helper()
	page, err := os.ReadFile(filepath.Join(c.root, "docs/guides/kubernetes.md"))
	require.NoError(c.t, err)
	for _, m := range stepPattern.FindAllStringSubmatch(string(page), -1) {
		if m[1] == name {
			return strings.ReplaceAll(strings.TrimSpace(m[2]), documentedRegistry, registry)
		}
	}
	require.Fail(c.t, "docs/guides/kubernetes.md has no step "+name)
	return ""
}

// examples are copied with the registry of these tests, and the documents' paths of
// them lead there.
func (c *cluster) useExamples() {
	c.t.Helper()
	from := os.DirFS(filepath.Join(c.root, "examples/kubernetes"))
	to := filepath.Join(c.dir, "examples/kubernetes")
	require.NoError(c.t, os.CopyFS(to, from))
	files, err := filepath.Glob(to + "/*.yaml")
	require.NoError(c.t, err)
	require.NotEmpty(c.t, files)
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(c.t, err)
		replaced := strings.ReplaceAll(string(text), documentedRegistry, registry)
		require.NoError(c.t, os.WriteFile(file, []byte(replaced), 0o644))
	}
	for _, name := range []string{"bin", "build", "charts"} {
		require.NoError(c.t, os.Symlink(filepath.Join(c.root, name), filepath.Join(c.dir, name)))
	}
}
