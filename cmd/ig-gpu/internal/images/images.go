// SPDX-License-Identifier: Apache-2.0

// Package images holds the gadget images that travel inside ig-gpu, so that
// `ig-gpu run cuda_alloc` needs neither a registry nor a local image store.
//
// Each image is an OCI layout in embedded/<gadget>/, which `make build` writes
// there with cmd/gadget-images. A plain `go build` on a fresh clone embeds only
// the placeholder of that directory and still works; it then knows no gadget.
package images

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2"
	"oras.land/oras-go/v2/content/oci"
	"oras.land/oras-go/v2/errdef"

	"github.com/gpu-gadgets/gpu-gadgets/internal/ig"
)

// Repository is the prefix of the names that our images are published under.
const Repository = "ghcr.io/gpu-gadgets/"

// ErrNotEmbedded says that this binary carries no image of that name.
var ErrNotEmbedded = errors.New("not embedded in this binary")

//go:embed all:embedded
var embedded embed.FS // go:embed needs a package variable; it is read-only

// Set is a directory tree with one OCI layout per gadget. The zero Set holds
// none.
type Set struct {
	files fs.FS
}

// New returns a Set of the given tree.
func New(files fs.FS) Set {
	return Set{files: files}
}

// Embedded returns the images linked into this binary.
func Embedded() Set {
	files, err := fs.Sub(embedded, "embedded")
	if err != nil { // only for an invalid path, and ours is a constant
		return Set{}
	}
	return Set{files: files}
}

// Names lists the gadgets of the set, sorted; not their variants.
func (s Set) Names() []string {
	return slices.DeleteFunc(s.images(), func(name string) bool { return strings.HasSuffix(name, ig.OldKernels) })
}

func (s Set) images() []string {
	if s.files == nil {
		return nil
	}
	entries, err := fs.ReadDir(s.files, ".")
	if err != nil {
		return nil
	}
	var names []string
	for _, entry := range entries {
		if entry.IsDir() {
			names = append(names, entry.Name())
		}
	}
	slices.Sort(names)
	return names
}

// Has reports whether image is the bare name of a gadget of the set. A name with
// a registry, a path, a tag or a digest is a reference to some other image,
// even when its last element is one of ours.
func (s Set) Has(image string) bool {
	return !strings.ContainsAny(image, "/:@") && slices.Contains(s.images(), image)
}

// HasVariant reports whether the set has a gadget's image for old kernels, too.
func (s Set) HasVariant(name string) bool { return s.Has(name + ig.OldKernels) }

// OpenVariant is Open for the image of a gadget for old kernels. It answers to the
// gadget's own name.
func (s Set) OpenVariant(ctx context.Context, name string) (oras.ReadOnlyTarget, error) {
	return s.open(ctx, name, name+ig.OldKernels)
}

// Open returns the image of one gadget as a store that Inspektor Gadget can
// read instead of its own. It fails with ErrNotEmbedded for an unknown name.
func (s Set) Open(ctx context.Context, name string) (oras.ReadOnlyTarget, error) {
	return s.open(ctx, name, name)
}

func (s Set) open(ctx context.Context, name, image string) (oras.ReadOnlyTarget, error) {
	if !s.Has(image) {
		return nil, fmt.Errorf("gadget %q: %w", image, ErrNotEmbedded)
	}
	layout, err := fs.Sub(s.files, image)
	if err != nil {
		return nil, fmt.Errorf("open image of %s: %w", name, err)
	}
	store, err := oci.NewFromFS(ctx, layout)
	if err != nil {
		return nil, fmt.Errorf("open image of %s: %w", name, err)
	}
	return &target{ReadOnlyStore: store, name: name, image: image}, nil
}

// target answers to the short name as well. Inspektor Gadget completes a bare
// name with its own repository before it asks the store, so the question about
// cuda_alloc arrives as ghcr.io/inspektor-gadget/gadget/cuda_alloc:latest.
type target struct {
	*oci.ReadOnlyStore
	name  string // that users give
	image string // that the layout has
}

func (t *target) Resolve(ctx context.Context, reference string) (ocispec.Descriptor, error) {
	desc, err := t.ReadOnlyStore.Resolve(ctx, reference)
	if !errors.Is(err, errdef.ErrNotFound) {
		return desc, err
	}
	if !strings.HasSuffix(reference, "/"+t.name+":latest") {
		return desc, err
	}
	return t.ReadOnlyStore.Resolve(ctx, Repository+t.image+":latest")
}
