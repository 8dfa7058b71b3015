// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"strconv"
	"time"

	"github.com/cilium/ebpf"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/gadgets/run/types"
	metadatav1 "github.com/inspektor-gadget/inspektor-gadget/pkg/metadata/v1"
	"github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"gopkg.in/yaml.v3"

	"github.com/gpu-gadgets/gpu-gadgets/cmd/internal/ocilayout"
)

// The media types by which Inspektor Gadget v0.55 recognises the parts of a
// gadget (its pkg/oci).
const (
	gadgetArtifact   = "application/vnd.gadget.v1+binary"
	programMediaType = "application/vnd.gadget.ebpf.program.v1+binary"
	wasmMediaType    = "application/vnd.gadget.wasm.program.v1+binary"
	configMediaType  = "application/vnd.gadget.config.v1+yaml"
	// builderKey names the version of Inspektor Gadget that an image is made
	// for; ig warns when it runs another one.
	builderKey = "io.inspektor-gadget.builder.version"
	// operatorKey is ig.OperatorAnnotation of our internal/ig, which would make
	// this program ten times larger: the operator that replaces a WASM module.
	operatorKey = "io.gpu-gadgets.operator"
)

// repository is where our images live; cmd/ig-gpu knows them by this prefix.
const repository = "ghcr.io/gpu-gadgets/"

// stamp is the build information in an image.
type stamp struct {
	builder string // version of Inspektor Gadget
	created string // RFC 3339, or empty
}

// pack makes the image of one gadget: an index with one manifest per architecture. The
// layers are the program and the WASM module, if any; the config is gadget.yaml.
func pack(g gadget, packed []architecture, objects map[string]string, module string, mark stamp) (*ocilayout.Layout, error) {
	config, metadata, err := readMetadata(g)
	if err != nil {
		return nil, err
	}
	annotations := annotate(metadata, mark)
	image := ocilayout.New()
	configDesc := image.Add(configMediaType, config)
	configDesc.Annotations = annotations

	// After the program: ig starts and stops layers in this order, and the module
	// reads the program's last rows.
	var extra []ocispec.Descriptor
	if module != "" {
		code, err := os.ReadFile(module)
		if err != nil {
			return nil, fmt.Errorf("read WASM module: %w", err)
		}
		layer := image.Add(wasmMediaType, code)
		layer.Annotations = map[string]string{operatorKey: g.WASM.Operator}
		extra = append(extra, layer)
	}

	var manifests []ocispec.Descriptor
	for _, arch := range packed {
		program, err := os.ReadFile(objects[arch.name])
		if err != nil {
			return nil, fmt.Errorf("read object: %w", err)
		}
		if err := validate(metadata, program); err != nil {
			return nil, fmt.Errorf("%s for %s: %w", g.metadata(), arch.name, err)
		}
		manifest, err := image.AddJSON(ocispec.MediaTypeImageManifest, ocispec.Manifest{
			Versioned:    specs.Versioned{SchemaVersion: 2},
			MediaType:    ocispec.MediaTypeImageManifest,
			ArtifactType: gadgetArtifact,
			Config:       configDesc,
			Layers:       append([]ocispec.Descriptor{image.Add(programMediaType, program)}, extra...),
			Annotations:  annotations,
		})
		if err != nil {
			return nil, fmt.Errorf("pack %s manifest: %w", arch.name, err)
		}
		manifest.Annotations = annotations
		manifest.Platform = &ocispec.Platform{Architecture: arch.name, OS: "linux"}
		manifests = append(manifests, manifest)
	}

	index, err := image.AddJSON(ocispec.MediaTypeImageIndex, ocispec.Index{
		Versioned:   specs.Versioned{SchemaVersion: 2},
		MediaType:   ocispec.MediaTypeImageIndex,
		Manifests:   manifests,
		Annotations: annotations,
	})
	if err != nil {
		return nil, fmt.Errorf("pack index: %w", err)
	}
	if err := image.Tag(index, repository+g.Name+":latest"); err != nil {
		return nil, fmt.Errorf("pack index: %w", err)
	}
	return image, nil
}

func readMetadata(g gadget) ([]byte, *metadatav1.GadgetMetadata, error) {
	content, err := os.ReadFile(g.metadata())
	if err != nil {
		return nil, nil, fmt.Errorf("read metadata: %w", err)
	}
	metadata := &metadatav1.GadgetMetadata{}
	if err := yaml.Unmarshal(content, metadata); err != nil {
		return nil, nil, fmt.Errorf("read metadata %s: %w", g.metadata(), err)
	}
	return content, metadata, nil
}

// validate makes sure that the program is a loadable object, and holds gadget.yaml
// against it as ig does: the parameters that it describes must exist. Data sources
// are not checked, because operators add some of their own.
func validate(metadata *metadatav1.GadgetMetadata, program []byte) error {
	spec, err := ebpf.LoadCollectionSpecFromReader(bytes.NewReader(program))
	if err != nil {
		return fmt.Errorf("read program: %w", err)
	}
	return types.Validate(metadata, spec)
}

func annotate(metadata *metadatav1.GadgetMetadata, mark stamp) map[string]string {
	annotations := map[string]string{
		ocispec.AnnotationTitle:         metadata.Name,
		ocispec.AnnotationDescription:   metadata.Description,
		ocispec.AnnotationURL:           metadata.HomepageURL,
		ocispec.AnnotationDocumentation: metadata.DocumentationURL,
		ocispec.AnnotationSource:        metadata.SourceURL,
		ocispec.AnnotationCreated:       mark.created,
		builderKey:                      mark.builder,
	}
	for key, value := range metadata.Annotations {
		annotations[key] = value
	}
	for key, value := range annotations {
		if value == "" {
			delete(annotations, key)
		}
	}
	return annotations
}

// createdFromEnvironment returns SOURCE_DATE_EPOCH as a date, or nothing: the
// clock would make every build differ.
func createdFromEnvironment() (string, error) {
	text, ok := os.LookupEnv("SOURCE_DATE_EPOCH")
	if !ok || text == "" {
		return "", nil
	}
	seconds, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return "", fmt.Errorf("read SOURCE_DATE_EPOCH: %w", err)
	}
	return time.Unix(seconds, 0).UTC().Format(time.RFC3339), nil
}

// gadgetVersion is the version of Inspektor Gadget whose headers and validation
// we use.
func gadgetVersion() (string, error) {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "", errors.New("this binary carries no build information")
	}
	for _, dependency := range info.Deps {
		if dependency.Path == gadgetModule {
			return dependency.Version, nil
		}
	}
	return "", fmt.Errorf("this binary does not link %s", gadgetModule)
}
