// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"oras.land/oras-go/v2"
	"oras.land/oras-go/v2/content/oci"

	"github.com/gpu-gadgets/gpu-gadgets/cmd/internal/ociregistry"
)

// push copies the images of a release as they are, with their bills of materials and
// signatures.
func push(o options) error {
	files, err := filepath.Glob(filepath.Join(o.out, "images", "*.tar"))
	if err != nil || len(files) == 0 {
		return fmt.Errorf("%s has no images: make release makes them", o.out)
	}
	to, err := ociregistry.New(o.push, "gpu-gadgets-release", o.plainHTTP)
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".tar")
		target, err := to.Repository(name)
		if err != nil {
			return fmt.Errorf("-push %s: want HOST[:PORT]/NAME: %w", o.push, err)
		}
		if err := pushImage(ctx, file, name, o.version, target); err != nil {
			return fmt.Errorf("push %s to %s: %w", name, to.Name, ociregistry.Explain(err))
		}
	}
	return nil
}

func pushImage(ctx context.Context, file, name, version string, target oras.Target) error {
	source, err := oci.NewFromTar(ctx, file)
	if err != nil {
		return err
	}
	// With what refers to it: the bill of materials.
	image, err := oras.ExtendedCopy(ctx, source, repository+name+":"+version, target, version, oras.DefaultExtendedCopyOptions)
	if err != nil {
		return err
	}
	tag := "sha256-" + image.Digest.Encoded() + ".sig"
	signature := repository + name + ":" + tag
	if _, err := source.Resolve(ctx, signature); err != nil {
		fmt.Fprintf(os.Stderr, "release: %s is not signed\n", name)
		return nil
	}
	_, err = oras.Copy(ctx, source, signature, target, tag, oras.DefaultCopyOptions)
	return err
}
