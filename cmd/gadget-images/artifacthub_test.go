// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"gopkg.in/yaml.v3"
)

// TestArtifactHubMatchesTheImage: the package's page and the image are of the
// same gadget, for the same architectures.
func TestArtifactHubMatchesTheImage(t *testing.T) {
	list, err := readList("../../build.yaml")
	require.NoError(t, err)
	for _, g := range list.Gadgets {
		if filepath.Base(g.Dir) != g.Name && g.Dir != "" {
			continue // a variant for other kernels, on the page of its gadget
		}
		_, metadata, err := readMetadata(g)
		require.NoError(t, err)
		content, err := os.ReadFile(g.path("artifacthub-pkg.yml"))
		require.NoError(t, err)
		var page struct {
			Name, Description string
			Images            []struct {
				Image     string
				Platforms []string
			} `yaml:"containersImages"`
		}
		require.NoError(t, yaml.Unmarshal(content, &page))
		require.Equal(t, metadata.Name, page.Name)
		require.Equal(t, metadata.Description, page.Description)
		require.Len(t, page.Images, 1)
		require.Equal(t, repository+g.Name+":latest", page.Images[0].Image)
		var platforms []string
		for _, arch := range namesOf(architectures()) {
			platforms = append(platforms, "linux/"+arch)
		}
		require.Equal(t, platforms, page.Images[0].Platforms)
	}
}
