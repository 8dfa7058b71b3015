// SPDX-License-Identifier: Apache-2.0

// Command program-images makes the images of ig-gpu-daemon and ig-gpu without docker: a base
// image, of the registry that has it, with one layer more, which is our program. The base of
// ig-gpu-daemon is Inspektor Gadget's image, whose daemon it replaces, as
// cmd/ig-gpu-daemon/Dockerfile does; that of ig-gpu is any with glibc. It does all
// architectures at once, and the same input gives the same digest.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/remote"
)

type options struct {
	image, base, binaries, to, layout string
	plainHTTP                         bool
}

func main() {
	var o options
	flag.StringVar(&o.image, "image", daemon, "what to make: "+daemon+" or "+program)
	flag.StringVar(&o.base, "base", "", "the base image (default "+kinds[daemon].base+" or "+kinds[program].base+")")
	flag.StringVar(&o.binaries, "binaries", "build/daemon", "directory with <architecture>/gadgettracermanager, of make daemon, or <architecture>/ig-gpu")
	flag.StringVar(&o.to, "to", "", "where to push, HOST[:PORT]/NAME:TAG; credentials are those of docker login")
	flag.StringVar(&o.layout, "layout", "", "a new directory to write an OCI layout into, beside -to or instead of it")
	flag.BoolVar(&o.plainHTTP, "plain-http", false, "registries without TLS")
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, o); err != nil {
		fmt.Fprintf(os.Stderr, "program-images: %v\n", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, o options) error {
	of, known := kinds[o.image]
	if !known {
		return fmt.Errorf("-image %q: want %s or %s", o.image, daemon, program)
	}
	if o.base == "" {
		o.base = of.base
	}
	if o.to == "" && o.layout == "" {
		return fmt.Errorf("where is the image to go? -to HOST[:PORT]/NAME:TAG, or -layout DIR")
	}
	var named []name.Option
	if o.plainHTTP {
		named = append(named, name.Insecure)
	}
	from, err := name.ParseReference(o.base, named...)
	if err != nil {
		return fmt.Errorf("-base: %w", err)
	}
	access := []remote.Option{remote.WithContext(ctx), remote.WithAuthFromKeychain(authn.DefaultKeychain), remote.WithUserAgent("program-images")}
	index, err := remote.Index(from, access...)
	if err != nil {
		return fmt.Errorf("get %s: %w", from, err)
	}
	made, err := of.onBase(index, o.base, func(platform *v1.Platform) ([]byte, error) {
		return os.ReadFile(of.binary(o.binaries, platform))
	})
	if err != nil {
		return err
	}
	digest, err := made.Digest()
	if err != nil {
		return err
	}
	if o.layout != "" {
		files, err := layout.Write(o.layout, empty.Index)
		if err != nil {
			return fmt.Errorf("write the layout: %w", err)
		}
		if err := files.AppendIndex(made); err != nil {
			return fmt.Errorf("write the layout: %w", err)
		}
		fmt.Printf("%s@%s\n", o.layout, digest)
	}
	if o.to == "" {
		return nil
	}
	to, err := name.NewTag(o.to, append(named, name.StrictValidation)...)
	if err != nil {
		return fmt.Errorf("-to: %w", err)
	}
	if err := remote.WriteIndex(to, made, access...); err != nil {
		return fmt.Errorf("push %s: %w", to, err)
	}
	fmt.Printf("%s@%s\n", to, digest)
	return nil
}
