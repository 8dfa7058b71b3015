// SPDX-License-Identifier: Apache-2.0

package images

import (
	"encoding/json"
	"io/fs"
	"testing"
	"testing/fstest"

	"github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/stretchr/testify/require"
	"oras.land/oras-go/v2/content"
	"oras.land/oras-go/v2/errdef"
)

// oneImage is a set that holds the image of the gadget name, without layers.
func oneImage(t *testing.T, name string) (Set, ocispec.Descriptor) {
	t.Helper()
	blob := marshal(t, ocispec.Index{Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageIndex})
	desc := content.NewDescriptorFromBytes(ocispec.MediaTypeImageIndex, blob)
	tagged := desc
	tagged.Annotations = map[string]string{ocispec.AnnotationRefName: Repository + name + ":latest"}
	index := marshal(t, ocispec.Index{
		Versioned: specs.Versioned{SchemaVersion: 2},
		Manifests: []ocispec.Descriptor{tagged},
	})
	return Set{files: fstest.MapFS{
		"README.md":          {Data: []byte("a placeholder")},
		name + "/index.json": {Data: index},
		name + "/oci-layout": {Data: marshal(t, ocispec.ImageLayout{Version: ocispec.ImageLayoutVersion})},
		name + "/blobs/sha256/" + desc.Digest.Encoded(): {Data: blob},
	}}, desc
}

func marshal(t *testing.T, value any) []byte {
	t.Helper()
	blob, err := json.Marshal(value)
	require.NoError(t, err)
	return blob
}

func TestOnlyBareNamesAreOurs(t *testing.T) {
	set, _ := oneImage(t, "cuda_alloc")
	require.Equal(t, []string{"cuda_alloc"}, set.Names())
	require.True(t, set.Has("cuda_alloc"))
	for _, other := range []string{
		"", "cuda", "trace_tcp", "README.md", "cuda_alloc:latest", "cuda_alloc:v1",
		"ghcr.io/gpu-gadgets/cuda_alloc", "registry.local:5000/cuda_alloc",
		"cuda_alloc@sha256:0000000000000000000000000000000000000000000000000000000000000000",
	} {
		require.False(t, set.Has(other), other)
	}
}

func TestImageAnswersToTheNamesThatInspektorGadgetAsksFor(t *testing.T) {
	set, want := oneImage(t, "cuda_alloc")
	store, err := set.Open(t.Context(), "cuda_alloc")
	require.NoError(t, err)
	for _, reference := range []string{
		"ghcr.io/inspektor-gadget/gadget/cuda_alloc:latest", // completed bare name
		"ghcr.io/gpu-gadgets/cuda_alloc:latest",
	} {
		desc, err := store.Resolve(t.Context(), reference)
		require.NoError(t, err, reference)
		require.Equal(t, want.Digest, desc.Digest)
	}
	for _, reference := range []string{
		"ghcr.io/inspektor-gadget/gadget/cuda_alloc:v1",
		"ghcr.io/inspektor-gadget/gadget/other_cuda_alloc:latest",
	} {
		_, err := store.Resolve(t.Context(), reference)
		require.ErrorIs(t, err, errdef.ErrNotFound, reference)
	}
}

func TestVariantAnswersToTheGadgetsName(t *testing.T) {
	set, want := oneImage(t, "cuda_alloc_linux_5_10")
	require.Empty(t, set.Names(), "variants are no gadgets of their own")
	require.True(t, set.HasVariant("cuda_alloc"))
	require.False(t, set.HasVariant("py_stack"))
	store, err := set.OpenVariant(t.Context(), "cuda_alloc")
	require.NoError(t, err)
	desc, err := store.Resolve(t.Context(), "ghcr.io/inspektor-gadget/gadget/cuda_alloc:latest")
	require.NoError(t, err)
	require.Equal(t, want.Digest, desc.Digest)
	_, err = set.OpenVariant(t.Context(), "py_stack")
	require.ErrorIs(t, err, ErrNotEmbedded)
}

func TestUnknownNameIsASentinel(t *testing.T) {
	set, _ := oneImage(t, "cuda_alloc")
	_, err := set.Open(t.Context(), "nosuch")
	require.ErrorIs(t, err, ErrNotEmbedded)
}

func TestSetWithoutImagesHasNoNames(t *testing.T) {
	require.Empty(t, Set{files: fstest.MapFS{"README.md": {}}}.Names())
}

// The directory must survive in a fresh clone, where nothing is built yet.
func TestPlaceholderIsEmbedded(t *testing.T) {
	_, err := fs.Stat(Embedded().files, "README.md")
	require.NoError(t, err)
}
