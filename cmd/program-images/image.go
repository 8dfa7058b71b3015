// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"bytes"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

const (
	daemon  = "ig-gpu-daemon"
	program = "ig-gpu"
)

// kind is an image that can be made.
type kind struct {
	base             string // the image that it is tested with
	file, path       string // the program's name below <architecture>/, and its place in the image
	built            string // the command that builds it
	replaces         bool   // the base has a program in that place
	glibc            int    // the program may need glibc, up to 2.<this>, which the base has; 0: it has none
	entrypoint       []string
	title, explained string
}

var kinds = map[string]kind{
	daemon: {
		base: "ghcr.io/inspektor-gadget/inspektor-gadget:v0.55.0", // by the version of go.mod
		// Where Inspektor Gadget's chart starts and probes its daemon.
		file: "gadgettracermanager", path: "bin/gadgettracermanager", built: "make daemon", replaces: true,
		title: "gpu-gadgets daemon for Inspektor Gadget", explained: "Inspektor Gadget's daemon with the operators of gpu-gadgets",
	},
	program: {
		base: "docker.io/library/debian:bookworm-slim",
		file: "ig-gpu", path: "usr/local/bin/ig-gpu", built: "make release", glibc: 36,
		entrypoint: []string{"/usr/local/bin/ig-gpu"},
		title:      "ig-gpu", explained: "Which line of Python holds GPU memory, launches kernels and keeps collectives waiting",
	},
}

// machines are those that the programs are built for, by the name that images have.
var machines = map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64}

func (k kind) binary(dir string, platform *v1.Platform) string {
	return filepath.Join(dir, platform.Architecture, k.file)
}

// labels say what the image is; the base's others stay.
func (k kind) labels() map[string]string {
	return map[string]string{
		"org.opencontainers.image.title":       k.title,
		"org.opencontainers.image.description": k.explained,
		"org.opencontainers.image.source":      "https://github.com/gpu-gadgets/gpu-gadgets",
		"org.opencontainers.image.licenses":    "Apache-2.0",
	}
}

// onBase makes an index of the base's images for our machines. Others, and
// attestations, which are about the base, are left out.
func (k kind) onBase(from v1.ImageIndex, name string, read func(*v1.Platform) ([]byte, error)) (v1.ImageIndex, error) {
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
			return nil, fmt.Errorf("read the program for %s (%s builds it): %w", m.Platform, k.built, err)
		}
		if image, err = k.withProgram(image, m.Platform, content); err != nil {
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

// withProgram adds a layer, and fails where the program would not start.
func (k kind) withProgram(image v1.Image, platform *v1.Platform, content []byte) (v1.Image, error) {
	binary, err := elf.NewFile(bytes.NewReader(content))
	if err != nil {
		return nil, fmt.Errorf("%s is no program: %w", k.file, err)
	}
	if binary.Machine != machines[platform.Architecture] {
		return nil, fmt.Errorf("%s is for %s", k.file, binary.Machine)
	}
	loader := interpreter(binary)
	if loader != "" && k.glibc == 0 {
		return nil, errors.New("the daemon needs a libc, and Inspektor Gadget's image has none: build it with CGO_ENABLED=0")
	}
	if err := k.runsWith(binary); err != nil {
		return nil, err
	}
	for path, why := range map[string]string{k.path: "is it Inspektor Gadget's image?", loader: "it has no glibc"} {
		if path == "" || path == k.path && !k.replaces {
			continue
		}
		has, err := contains(image, path)
		if err != nil {
			return nil, err
		}
		if !has {
			return nil, fmt.Errorf("the base has no /%s: %s", strings.TrimPrefix(path, "/"), why)
		}
	}
	layer, err := k.layerOf(content)
	if err != nil {
		return nil, err
	}
	image, err = mutate.Append(image, mutate.Addendum{Layer: layer, History: v1.History{CreatedBy: "COPY " + k.file + " /" + k.path, Comment: "gpu-gadgets"}})
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
	maps.Copy(file.Config.Labels, k.labels())
	if k.entrypoint != nil {
		file.Config.Entrypoint, file.Config.Cmd = k.entrypoint, nil
	}
	return mutate.ConfigFile(image, file)
}

// runsWith fails for a program that was linked with a newer glibc than the base has.
func (k kind) runsWith(binary *elf.File) error {
	symbols, err := binary.ImportedSymbols()
	if errors.Is(err, elf.ErrNoSymbols) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read the symbols of %s: %w", k.file, err)
	}
	for _, symbol := range symbols {
		var minor int
		if _, err := fmt.Sscanf(symbol.Version, "GLIBC_2.%d", &minor); err == nil && minor > k.glibc {
			return fmt.Errorf("%s needs %s of %s, and %s has glibc 2.%d: build it on an older system", k.file, symbol.Name, symbol.Version, k.base, k.glibc)
		}
	}
	return nil
}

// interpreter is the path of the program's dynamic loader, "" for a static one.
func interpreter(binary *elf.File) string {
	for _, p := range binary.Progs {
		if p.Type == elf.PT_INTERP && p.Filesz < 4096 {
			path, err := io.ReadAll(p.Open())
			if err != nil {
				return ""
			}
			return string(bytes.TrimRight(path, "\x00"))
		}
	}
	return ""
}

// layerOf is a layer with the program, as COPY makes it, without a time.
func (k kind) layerOf(content []byte) (v1.Layer, error) {
	var archive bytes.Buffer
	w := tar.NewWriter(&archive)
	err := w.WriteHeader(&tar.Header{Name: k.path, Typeflag: tar.TypeReg, Mode: 0o755, Size: int64(len(content)), ModTime: time.Unix(0, 0), Format: tar.FormatPAX})
	if err == nil {
		_, err = w.Write(content)
	}
	if err := errors.Join(err, w.Close()); err != nil {
		return nil, fmt.Errorf("make the layer: %w", err)
	}
	return tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(archive.Bytes())), nil },
		tarball.WithMediaType(types.OCILayer))
}

// contains reports whether a layer has the file. Debian's /lib and /lib64 are links to those of /usr.
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
		if name := filepath.Clean("/" + header.Name); name == filepath.Clean("/"+path) || name == filepath.Clean("/usr/"+path) {
			return true, nil
		}
	}
}
