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
	"oras.land/oras-go/v2/registry/remote"
	"oras.land/oras-go/v2/registry/remote/auth"
	"oras.land/oras-go/v2/registry/remote/credentials"
	"oras.land/oras-go/v2/registry/remote/retry"
)

// pushTimeout is for one image, of about 3 MiB.
const pushTimeout = 5 * time.Minute

// destination is where images are pushed.
type destination struct {
	name      string // HOST[:PORT]/NAME
	client    *auth.Client
	plainHTTP bool
}

// newRegistry returns nil where nothing is to be pushed. It does not connect yet.
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
	store, err := credentials.NewStoreFromDocker(credentials.StoreOptions{})
	if err != nil {
		return nil, fmt.Errorf("read docker's credentials: %w", err)
	}
	client := &auth.Client{Client: retry.DefaultClient, Cache: auth.NewCache(), Credential: credentials.Credential(store)}
	client.SetUserAgent("gadget-images")
	return &destination{name: name, client: client, plainHTTP: opts.plainHTTP}, nil
}

// push copies the image of a tar as it is: its digest does not change.
func (d *destination) push(file, gadget, tag string) error {
	ctx, cancel := context.WithTimeout(context.Background(), pushTimeout)
	defer cancel()
	source, err := oci.NewFromTar(ctx, file)
	if err != nil {
		return fmt.Errorf("read %s: %w", file, err)
	}
	target, err := remote.NewRepository(d.name + "/" + gadget)
	if err != nil {
		return fmt.Errorf("push: %w", err)
	}
	target.Client, target.PlainHTTP = d.client, d.plainHTTP
	if _, err := oras.Copy(ctx, source, repository+gadget+":latest", target, tag, oras.DefaultCopyOptions); err != nil {
		return fmt.Errorf("push to %s/%s: %w", d.name, gadget, explain(err))
	}
	return nil
}

// explain says what to do about what happens first.
func explain(err error) error {
	switch {
	case strings.Contains(err.Error(), "server gave HTTP response to HTTPS client"):
		return fmt.Errorf("%w (the registry has no TLS: -plain-http, PLAIN_HTTP=1 for make)", err)
	case errors.Is(err, auth.ErrBasicCredentialNotFound):
		return fmt.Errorf("%w (docker login)", err)
	}
	return err
}

// digests are values of our chart: what a cluster runs is then known to the byte.
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
