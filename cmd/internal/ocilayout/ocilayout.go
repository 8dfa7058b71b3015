// SPDX-License-Identifier: Apache-2.0

// Package ocilayout holds an OCI image layout (image-spec v1.1, image-layout.md) in
// memory. The same content gives the same bytes.
package ocilayout

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"

	"github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/content"
)

// Layout has one image and other tagged manifests. The zero value is not usable.
type Layout struct {
	Image ocispec.Descriptor // once tagged
	files map[string][]byte  // path → content
	index []ocispec.Descriptor
}

// New returns an empty layout.
func New() *Layout {
	return &Layout{files: map[string][]byte{}}
}

// Add stores a blob and returns its descriptor.
func (l *Layout) Add(mediaType string, blob []byte) ocispec.Descriptor {
	desc := content.NewDescriptorFromBytes(mediaType, blob)
	l.files[path.Join("blobs", desc.Digest.Algorithm().String(), desc.Digest.Encoded())] = blob
	return desc
}

// AddJSON stores a value as JSON.
func (l *Layout) AddJSON(mediaType string, value any) (ocispec.Descriptor, error) {
	blob, err := json.Marshal(value)
	if err != nil {
		return ocispec.Descriptor{}, err
	}
	return l.Add(mediaType, blob), nil
}

// Tag completes the layout: index is its image, known as reference.
func (l *Layout) Tag(index ocispec.Descriptor, reference string) error {
	l.Image = index
	return l.Refer(index, reference)
}

// Refer adds another manifest, such as the image's signature, under a name; "": none.
func (l *Layout) Refer(manifest ocispec.Descriptor, reference string) error {
	l.index = append(l.index, named(manifest, reference))
	return l.writeIndex()
}

// Rename gives the image another name, and no other manifest one.
func (l *Layout) Rename(reference string) error {
	l.index = []ocispec.Descriptor{named(l.Image, reference)}
	return l.writeIndex()
}

func named(manifest ocispec.Descriptor, reference string) ocispec.Descriptor {
	manifest.Annotations = nil
	if reference != "" {
		manifest.Annotations = map[string]string{ocispec.AnnotationRefName: reference}
	}
	return manifest
}

func (l *Layout) writeIndex() error {
	entry, err := json.Marshal(ocispec.Index{
		Versioned: specs.Versioned{SchemaVersion: 2},
		MediaType: ocispec.MediaTypeImageIndex,
		Manifests: l.index,
	})
	if err != nil {
		return err
	}
	marker, err := json.Marshal(ocispec.ImageLayout{Version: ocispec.ImageLayoutVersion})
	if err != nil {
		return err
	}
	l.files[ocispec.ImageIndexFile] = entry
	l.files[ocispec.ImageLayoutFile] = marker
	return nil
}

// Read reads the layout of a folder, whose first manifest is its image.
func Read(dir string) (*Layout, error) {
	l := New()
	root := os.DirFS(dir)
	err := fs.WalkDir(root, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		l.files[name], err = fs.ReadFile(root, name)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read image layout: %w", err)
	}
	var index ocispec.Index
	if err := json.Unmarshal(l.files[ocispec.ImageIndexFile], &index); err != nil {
		return nil, fmt.Errorf("read image layout %s: %w", dir, err)
	}
	if len(index.Manifests) == 0 {
		return nil, fmt.Errorf("read image layout %s: no image is in it", dir)
	}
	l.Image, l.index = index.Manifests[0], index.Manifests
	return l, nil
}

// Size is the sum of all contents in bytes.
func (l *Layout) Size() int {
	total := 0
	for _, blob := range l.files {
		total += len(blob)
	}
	return total
}

// Paths returns the names of all files, sorted, so that output is repeatable.
func (l *Layout) Paths() []string {
	return slices.Sorted(maps.Keys(l.files))
}

// WriteTar replaces the file at once: a reader sees the old image or the new.
func (l *Layout) WriteTar(file string) error {
	var archive bytes.Buffer
	writer := tar.NewWriter(&archive)
	for _, name := range l.Paths() {
		header := &tar.Header{Name: name, Mode: 0o644, Size: int64(len(l.files[name])), Format: tar.FormatUSTAR}
		if err := writer.WriteHeader(header); err != nil {
			return fmt.Errorf("write image: %w", err)
		}
		if _, err := writer.Write(l.files[name]); err != nil {
			return fmt.Errorf("write image: %w", err)
		}
	}
	if err := writer.Close(); err != nil {
		return fmt.Errorf("write image: %w", err)
	}
	temporary := file + ".new"
	if err := os.WriteFile(temporary, archive.Bytes(), 0o644); err != nil {
		return fmt.Errorf("write image: %w", err)
	}
	return os.Rename(temporary, file)
}

// WriteDir writes the files into a folder.
func (l *Layout) WriteDir(dir string) error {
	for _, name := range l.Paths() {
		file := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			return fmt.Errorf("write layout: %w", err)
		}
		if err := os.WriteFile(file, l.files[name], 0o644); err != nil {
			return fmt.Errorf("write layout: %w", err)
		}
	}
	return nil
}
