// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"gopkg.in/yaml.v3"
	"oras.land/oras-go/v2"
	"oras.land/oras-go/v2/content/oci"
	"oras.land/oras-go/v2/registry"

	"github.com/gpu-gadgets/gpu-gadgets/cmd/internal/ociregistry"
)

// pushTimeout is for one image, of about 3 MiB.
const pushTimeout = 5 * time.Minute

// destination is where images are pushed.
type destination struct{ *ociregistry.Registry }

// newRegistry returns nil if there is nothing to push. It does not connect yet.
func newRegistry(opts options) (*destination, error) {
	if opts.push == "" {
		return nil, nil
	}
	name := strings.TrimSuffix(opts.push, "/")
	probe, err := registry.ParseReference(name + "/x:" + opts.tag)
	if err != nil {
		return nil, fmt.Errorf("-push %s -tag %s: want HOST[:PORT]/NAME and a tag: %w", opts.push, opts.tag, err)
	}
	if probe.Repository == "x" {
		return nil, fmt.Errorf("-push %s: want a name behind the host, HOST[:PORT]/NAME", opts.push)
	}
	to, err := ociregistry.New(name, "gadget-images", opts.plainHTTP)
	if err != nil {
		return nil, err
	}
	return &destination{to}, nil
}

// push copies the image of a tar as it is: its digest does not change.
func (d *destination) push(file, gadget, tag string) error {
	ctx, cancel := context.WithTimeout(context.Background(), pushTimeout)
	defer cancel()
	source, err := oci.NewFromTar(ctx, file)
	if err != nil {
		return fmt.Errorf("read %s: %w", file, err)
	}
	target, err := d.Repository(gadget)
	if err != nil {
		return fmt.Errorf("push: %w", err)
	}
	if _, err := oras.Copy(ctx, source, repository+gadget+":latest", target, tag, oras.DefaultCopyOptions); err != nil {
		return fmt.Errorf("push to %s/%s: %w", d.Name, gadget, ociregistry.Explain(err))
	}
	return nil
}

// digests are values of our chart, which pin the images that a cluster runs.
type digests struct {
	Repository string            `yaml:"repository"`
	Tag        string            `yaml:"tag"`
	Digests    map[string]string `yaml:"digests"`
}

func (d digests) write(file string) error {
	var out bytes.Buffer
	out.WriteString("# The images that were built, as values of the chart (helm -f).\n")
	encoder := yaml.NewEncoder(&out)
	encoder.SetIndent(2)
	if err := errors.Join(encoder.Encode(map[string]digests{"gadgetImages": d}), encoder.Close()); err != nil {
		return fmt.Errorf("write digests: %w", err)
	}
	if err := os.WriteFile(file, out.Bytes(), 0o644); err != nil {
		return fmt.Errorf("write digests: %w", err)
	}
	return nil
}
