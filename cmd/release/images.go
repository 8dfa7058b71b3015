// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/CycloneDX/cyclonedx-go"
	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/gpu-gadgets/gpu-gadgets/cmd/internal/ocilayout"
)

const (
	// repository is where images are published.
	repository = "ghcr.io/gpu-gadgets/"
	exporter   = "gpu-exporter"
	mainImage  = "ig-gpu"

	// Formats of cosign: https://github.com/sigstore/cosign/blob/main/specs/SIGNATURE_SPEC.md
	simpleSigning   = "application/vnd.dev.cosign.simplesigning.v1+json"
	signatureKey    = "dev.cosignproject.cosign/signature"
	billOfMaterials = "application/vnd.cyclonedx+json"
	nonroot         = "65532:65532" // as distroless images have it
	imageSource     = "https://github.com/gpu-gadgets/gpu-gadgets"
)

// programs are the images that are one static program.
var programs = []struct{ name, dir, user, explained string }{
	{exporter, "", nonroot, "Sends what Inspektor Gadget's instances find on all nodes to Pyroscope, OpenTelemetry and Prometheus"},
	// In PATH, for the chart's `command: [ig-gpu, …]`; eBPF needs root.
	{mainImage, "usr/local/bin/", "", "Which line of Python holds GPU memory, launches kernels and keeps collectives waiting"},
}

// images writes images/<name>.tar for each layout of the input, and for the programs that have
// none: the image, its bill of materials as a referrer, and its signature.
func (r *release) images() error {
	dirs, err := filepath.Glob(filepath.Join(r.in, "layouts", "*"))
	if err != nil || len(dirs) == 0 {
		return fmt.Errorf("%s/layouts has no images", r.in)
	}
	for _, dir := range dirs {
		name := filepath.Base(dir)
		image, err := ocilayout.Read(dir)
		if err != nil {
			return err
		}
		if err := image.Rename(repository + name + ":" + r.version); err != nil {
			return err
		}
		parts, err := readModules(filepath.Join(r.in, "modules", name))
		if err != nil {
			return err
		}
		if err := r.image(name, image, parts); err != nil {
			return fmt.Errorf("image %s: %w", name, err)
		}
	}
	for _, p := range programs {
		if slices.Contains(dirs, filepath.Join(r.in, "layouts", p.name)) {
			continue
		}
		image, parts, err := r.program(p.name, p.dir, p.user, p.explained)
		if err != nil {
			return fmt.Errorf("image %s: %w", p.name, err)
		}
		if err := r.image(p.name, image, parts); err != nil {
			return fmt.Errorf("image %s: %w", p.name, err)
		}
	}
	return nil
}

// readModules reads lines of a path and a version.
func readModules(path string) (all []module, err error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read what the image is made of: %w", err)
	}
	for line := range strings.Lines(string(text)) {
		name, version, ok := strings.Cut(strings.TrimSpace(line), " ")
		if !ok {
			return nil, fmt.Errorf("%s: %q: want a path and a version", path, line)
		}
		all = append(all, module{name, version})
	}
	return all, nil
}

// image completes a layout and writes it.
func (r *release) image(name string, image *ocilayout.Layout, parts []module) error {
	text, err := bill(name, r.version, cyclonedx.ComponentTypeContainer, parts, r.made)
	if err != nil {
		return err
	}
	subject := ocispec.Descriptor{MediaType: image.Image.MediaType, Digest: image.Image.Digest, Size: image.Image.Size}
	about, err := image.AddJSON(ocispec.MediaTypeImageManifest, ocispec.Manifest{
		Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageManifest, ArtifactType: billOfMaterials,
		Config:  image.Add(ocispec.MediaTypeEmptyJSON, ocispec.DescriptorEmptyJSON.Data),
		Layers:  []ocispec.Descriptor{image.Add(billOfMaterials, text)},
		Subject: &subject,
	})
	if err != nil {
		return err
	}
	about.ArtifactType = billOfMaterials
	if err := image.Refer(about, ""); err != nil {
		return err
	}
	if r.signer != nil {
		if err := r.sign(name, image); err != nil {
			return err
		}
	}
	return image.WriteTar(filepath.Join(r.out, "images", name+".tar"))
}

// sign adds the signature where cosign, and Inspektor Gadget, look for it: a manifest by
// the image's digest.
func (r *release) sign(name string, image *ocilayout.Layout) error {
	id := image.Image.Digest
	payload := fmt.Appendf(nil, `{"critical":{"identity":{"docker-reference":%q},"image":{"docker-manifest-digest":%q},"type":"cosign container image signature"},"optional":null}`,
		repository+name, id)
	signature, err := r.signer.sign(payload)
	if err != nil {
		return err
	}
	layer := image.Add(simpleSigning, payload)
	layer.Annotations = map[string]string{signatureKey: base64.StdEncoding.EncodeToString(signature)}
	config, err := image.AddJSON(ocispec.MediaTypeImageConfig, ocispec.Image{
		RootFS: ocispec.RootFS{Type: "layers", DiffIDs: []digest.Digest{layer.Digest}},
	})
	if err != nil {
		return err
	}
	manifest, err := image.AddJSON(ocispec.MediaTypeImageManifest, ocispec.Manifest{
		Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageManifest,
		Config: config, Layers: []ocispec.Descriptor{layer},
	})
	if err != nil {
		return err
	}
	return image.Refer(manifest, repository+name+":"+strings.Replace(id.String(), ":", "-", 1)+".sig")
}

// program is the image of a program that is static and has certificates of its own.
func (r *release) program(name, dir, user, explained string) (*ocilayout.Layout, []module, error) {
	image := ocilayout.New()
	index := ocispec.Index{Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageIndex}
	var parts []module
	for _, architecture := range architectures {
		program, err := os.ReadFile(filepath.Join(r.in, "bin", architecture, name))
		if err != nil {
			return nil, nil, err
		}
		if parts, err = modulesOf(program); err != nil {
			return nil, nil, err
		}
		config := ocispec.ImageConfig{Entrypoint: []string{"/" + dir + name}, User: user, Env: []string{"PATH=/usr/local/bin:/usr/bin:/bin"}, Labels: map[string]string{
			ocispec.AnnotationTitle: name, ocispec.AnnotationDescription: explained, ocispec.AnnotationSource: imageSource,
			ocispec.AnnotationLicenses: "Apache-2.0", ocispec.AnnotationVersion: r.version,
		}}
		manifest, err := programImage(image, dir+name, program, ocispec.Image{
			Created: &r.made, Platform: ocispec.Platform{OS: "linux", Architecture: architecture}, Config: config,
		})
		if err != nil {
			return nil, nil, err
		}
		index.Manifests = append(index.Manifests, manifest)
	}
	all, err := image.AddJSON(ocispec.MediaTypeImageIndex, index)
	if err != nil {
		return nil, nil, err
	}
	return image, parts, image.Tag(all, repository+name+":"+r.version)
}

// programImage adds the image of one architecture, with the program at a path, to a layout.
func programImage(image *ocilayout.Layout, path string, program []byte, about ocispec.Image) (ocispec.Descriptor, error) {
	var plain bytes.Buffer
	archive := tar.NewWriter(&plain)
	for _, f := range []struct {
		name string
		kind byte
		mode int64
		data []byte
	}{{"tmp/", tar.TypeDir, 0o1777, nil}, {path, tar.TypeReg, 0o755, program}} {
		header := &tar.Header{Name: f.name, Typeflag: f.kind, Mode: f.mode, Size: int64(len(f.data)), ModTime: *about.Created, Format: tar.FormatUSTAR}
		if err := archive.WriteHeader(header); err != nil {
			return ocispec.Descriptor{}, err
		}
		if _, err := archive.Write(f.data); err != nil {
			return ocispec.Descriptor{}, err
		}
	}
	if err := archive.Close(); err != nil {
		return ocispec.Descriptor{}, err
	}
	var zipped bytes.Buffer
	writer := gzip.NewWriter(&zipped)
	if _, err := writer.Write(plain.Bytes()); err != nil {
		return ocispec.Descriptor{}, err
	}
	if err := writer.Close(); err != nil {
		return ocispec.Descriptor{}, err
	}
	about.RootFS = ocispec.RootFS{Type: "layers", DiffIDs: []digest.Digest{digest.FromBytes(plain.Bytes())}}
	config, err := image.AddJSON(ocispec.MediaTypeImageConfig, about)
	if err != nil {
		return ocispec.Descriptor{}, err
	}
	manifest, err := image.AddJSON(ocispec.MediaTypeImageManifest, ocispec.Manifest{
		Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageManifest,
		Config: config, Layers: []ocispec.Descriptor{image.Add(ocispec.MediaTypeImageLayerGzip, zipped.Bytes())},
	})
	manifest.Platform = &about.Platform
	return manifest, err
}
