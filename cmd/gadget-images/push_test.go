// SPDX-License-Identifier: Apache-2.0

package main

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestImpossibleDestinationsAreRefusedBeforeAnythingIsBuilt(t *testing.T) {
	for push, want := range map[string]string{
		"registry.example":             "want a name behind the host",
		"registry.example/":            "want a name behind the host",
		"registry.example/Team":        "want HOST[:PORT]/NAME and a tag",
		"https://registry.example/gpu": "want HOST[:PORT]/NAME and a tag",
	} {
		_, err := newRegistry(options{push: push, tag: "v1"})
		require.ErrorContains(t, err, want, push)
	}
	_, err := newRegistry(options{push: "registry.example/gpu", tag: "a tag"})
	require.ErrorContains(t, err, "want HOST[:PORT]/NAME and a tag")
	d, err := newRegistry(options{push: "127.0.0.1:5000/gpu/", tag: "v1"})
	require.NoError(t, err)
	require.Equal(t, "127.0.0.1:5000/gpu", d.Name)
}
