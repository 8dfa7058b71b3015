// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"bytes"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// daemonPath is where Inspektor Gadget's chart starts and probes its daemon.
const daemonPath = "bin/gadgettracermanager"

// machines are those that the daemon is built for, by the name that images have.
var machines = map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64}

func binary(dir string, platform *v1.Platform) string {
	return filepath.Join(dir, platform.Architecture, "gadgettracermanager")
}

// labels say what the image is; the base's others stay.
func labels() map[string]string {
	return map[string]string{
		"org.opencontainers.image.title":       "gpu-gadgets daemon for Inspektor Gadget",
		"org.opencontainers.image.description": "Inspektor Gadget's daemon with the operators of gpu-gadgets",
		"org.opencontainers.image.source":      "https://github.com/gpu-gadgets/gpu-gadgets",
		"org.opencontainers.image.licenses":    "Apache-2.0",
	}
}

// replaceDaemon makes an index of the base's images for our machines. Others, and
// attestations, which are about the base, are left out.
func replaceDaemon(from v1.ImageIndex, name string, read func(*v1.Platform) ([]byte, error)) (v1.ImageIndex, error) {
	manifest, err := from.IndexManifest()
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	found := 0
	for _, m := range manifest.Manifests {
		if m.Platform == nil || m.Platform.OS != "linux" || machines[m.Platform.Architecture] == 0 || !m.MediaType.IsImage() {
			continue
		}
		image, err := from.Image(m.Digest)
		if err != nil {
			return nil, fmt.Errorf("read %s for %s: %w", name, m.Platform, err)
		}
		content, err := read(m.Platform)
		if err != nil {
			return nil, fmt.Errorf("read the daemon for %s (make daemon builds it): %w", m.Platform, err)
		}
		if image, err = withDaemon(image, m.Platform, content); err != nil {
			return nil, fmt.Errorf("make the image for %s: %w", m.Platform, err)
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: image, Descriptor: v1.Descriptor{Platform: m.Platform}})
		found++
	}
	if found == 0 {
		return nil, fmt.Errorf("%s has no image for linux/amd64 or linux/arm64", name)
	}
	return index, nil
}

// withDaemon adds a layer, and fails where it would not replace what the chart runs.
func withDaemon(image v1.Image, platform *v1.Platform, content []byte) (v1.Image, error) {
	program, err := elf.NewFile(bytes.NewReader(content))
	if err != nil {
		return nil, fmt.Errorf("the daemon is no program: %w", err)
	}
	if program.Machine != machines[platform.Architecture] {
		return nil, fmt.Errorf("the daemon is for %s", program.Machine)
	}
	if interpreted(program) {
		return nil, errors.New("the daemon needs a libc, and Inspektor Gadget's image has none: build it with CGO_ENABLED=0")
	}
	has, err := contains(image, daemonPath)
	if err != nil {
		return nil, err
	}
	if !has {
		return nil, fmt.Errorf("the base has no /%s: is it Inspektor Gadget's image?", daemonPath)
	}
	layer, err := layerOf(content)
	if err != nil {
		return nil, err
	}
	image, err = mutate.Append(image, mutate.Addendum{Layer: layer, History: v1.History{CreatedBy: "COPY gadgettracermanager /" + daemonPath, Comment: "gpu-gadgets"}})
	if err != nil {
		return nil, err
	}
	file, err := image.ConfigFile()
	if err != nil {
		return nil, err
	}
	file = file.DeepCopy()
	if file.Config.Labels == nil {
		file.Config.Labels = map[string]string{}
	}
	for key, value := range labels() {
		file.Config.Labels[key] = value
	}
	return mutate.ConfigFile(image, file)
}

func interpreted(program *elf.File) bool {
	for _, p := range program.Progs {
		if p.Type == elf.PT_INTERP {
			return true
		}
	}
	return false
}

// layerOf is a layer with the daemon, as COPY makes it, without a time.
func layerOf(content []byte) (v1.Layer, error) {
	var archive bytes.Buffer
	w := tar.NewWriter(&archive)
	err := w.WriteHeader(&tar.Header{Name: daemonPath, Typeflag: tar.TypeReg, Mode: 0o755, Size: int64(len(content)), ModTime: time.Unix(0, 0), Format: tar.FormatPAX})
	if err == nil {
		_, err = w.Write(content)
	}
	if err := errors.Join(err, w.Close()); err != nil {
		return nil, fmt.Errorf("make the layer: %w", err)
	}
	return tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(archive.Bytes())), nil },
		tarball.WithMediaType(types.OCILayer))
}

// contains reports whether a layer has the file.
func contains(image v1.Image, path string) (bool, error) {
	layers, err := image.Layers()
	if err != nil {
		return false, err
	}
	for _, layer := range layers {
		found, err := layerContains(layer, path)
		if err != nil || found {
			return found, err
		}
	}
	return false, nil
}

func layerContains(layer v1.Layer, path string) (bool, error) {
	content, err := layer.Uncompressed()
	if err != nil {
		return false, fmt.Errorf("read a layer: %w", err)
	}
	defer content.Close()
	for r := tar.NewReader(content); ; {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			return false, nil
		}
		if err != nil {
			return false, fmt.Errorf("read a layer: %w", err)
		}
		if filepath.Clean("/"+header.Name) == "/"+path {
			return true, nil
		}
	}
}
