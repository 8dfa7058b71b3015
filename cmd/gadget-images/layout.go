// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"

	"github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/content"
)

// layout is an OCI image layout (image-spec v1.1, image-layout.md) in memory:
// path → content. Gadget images are a few hundred KiB.
type layout struct {
	files map[string][]byte
	index ocispec.Descriptor // of the image, once tagged
}

func newLayout() *layout {
	return &layout{files: map[string][]byte{}}
}

// add stores a blob and returns its descriptor.
func (l *layout) add(mediaType string, blob []byte) ocispec.Descriptor {
	desc := content.NewDescriptorFromBytes(mediaType, blob)
	l.files[path.Join("blobs", desc.Digest.Algorithm().String(), desc.Digest.Encoded())] = blob
	return desc
}

func (l *layout) addJSON(mediaType string, value any) (ocispec.Descriptor, error) {
	blob, err := json.Marshal(value)
	if err != nil {
		return ocispec.Descriptor{}, err
	}
	return l.add(mediaType, blob), nil
}

// tag completes the layout: its one image is index, known as reference.
func (l *layout) tag(index ocispec.Descriptor, reference string) error {
	l.index = index
	index.Annotations = map[string]string{ocispec.AnnotationRefName: reference}
	entry, err := json.Marshal(ocispec.Index{
		Versioned: specs.Versioned{SchemaVersion: 2},
		MediaType: ocispec.MediaTypeImageIndex,
		Manifests: []ocispec.Descriptor{index},
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

// size is the sum of all contents in bytes.
func (l *layout) size() int {
	total := 0
	for _, blob := range l.files {
		total += len(blob)
	}
	return total
}

// paths returns the names of all files, sorted, so that output is repeatable.
func (l *layout) paths() []string {
	return slices.Sorted(maps.Keys(l.files))
}

// writeTar replaces the file at once: a reader sees the old image or the new.
func (l *layout) writeTar(file string) error {
	var archive bytes.Buffer
	writer := tar.NewWriter(&archive)
	for _, name := range l.paths() {
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

func (l *layout) writeDir(dir string) error {
	for _, name := range l.paths() {
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
