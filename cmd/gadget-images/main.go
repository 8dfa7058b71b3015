// SPDX-License-Identifier: Apache-2.0

// Command gadget-images compiles the gadgets listed in build.yaml and packs each
// one as an OCI image that Inspektor Gadget runs: a tar to hand around, and
// optionally the same layout unpacked, for linking into ig-gpu.
//
// It does what `ig image build --local` does, with three differences: it needs
// no root and no image store, it passes include paths of this repository to the
// compiler, and the same input gives the same bytes.
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

func main() {
	var opts options
	flag.StringVar(&opts.list, "f", "build.yaml", "list of gadgets; its directory is the root for all paths in it")
	flag.StringVar(&opts.out, "o", "build/images", "directory for <gadget>.tar")
	flag.StringVar(&opts.objects, "objects", "build/bpf", "directory for compiled objects")
	flag.StringVar(&opts.layouts, "layouts", "", "directory for unpacked images, one subdirectory per gadget; others in it are removed")
	flag.StringVar(&opts.architectures, "architectures", "all", "architectures of the images: all, or native: this machine's, and check that the programs compile for the others")
	flag.StringVar(&opts.clang, "clang", "", "C compiler (default: the newest clang of PATH)")
	flag.StringVar(&opts.strip, "strip", "", "llvm-strip (default: the newest of PATH)")
	flag.StringVar(&opts.push, "push", "", "also push the images to this registry, HOST[:PORT]/NAME, as NAME/<gadget>; credentials are those of docker login")
	flag.StringVar(&opts.tag, "tag", "latest", "tag of pushed images")
	flag.BoolVar(&opts.plainHTTP, "plain-http", false, "push to a registry without TLS")
	flag.Parse()

	if err := run(opts); err != nil {
		fmt.Fprintf(os.Stderr, "gadget-images: %v\n", err)
		os.Exit(1)
	}
}

type options struct {
	list, out, objects, layouts, clang, strip string
	push, tag, architectures                  string
	plainHTTP                                 bool
}

func run(opts options) error {
	list, err := readList(opts.list)
	if err != nil {
		return err
	}
	compiler, err := newCompiler(opts)
	if err != nil {
		return err
	}
	created, err := createdFromEnvironment()
	if err != nil {
		return err
	}
	version, err := gadgetVersion()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(opts.out, 0o755); err != nil {
		return fmt.Errorf("make output directory: %w", err)
	}
	if err := removeLayouts(opts.layouts); err != nil {
		return err
	}
	destination, err := newRegistry(opts)
	if err != nil {
		return err
	}

	pinned := digests{Repository: strings.TrimSuffix(repository, "/"), Tag: opts.tag, Digests: map[string]string{}}
	for _, gadget := range list.Gadgets {
		start := time.Now()
		objects, err := compiler.compile(gadget)
		if err != nil {
			return fmt.Errorf("gadget %s: %w", gadget.Name, err)
		}
		module, err := compiler.compileWASM(gadget)
		if err != nil {
			return fmt.Errorf("gadget %s: %w", gadget.Name, err)
		}
		image, err := pack(gadget, compiler.packed, objects, module, stamp{builder: version, created: created})
		if err != nil {
			return fmt.Errorf("gadget %s: %w", gadget.Name, err)
		}
		path := filepath.Join(opts.out, gadget.Name+".tar")
		if err := image.WriteTar(path); err != nil {
			return fmt.Errorf("gadget %s: %w", gadget.Name, err)
		}
		if opts.layouts != "" {
			if err := image.WriteDir(filepath.Join(opts.layouts, gadget.Name)); err != nil {
				return fmt.Errorf("gadget %s: %w", gadget.Name, err)
			}
		}
		fmt.Printf("  %s: %s, %d KiB, %s\n", path, strings.Join(namesOf(compiler.packed), "+"),
			image.Size()/1024, time.Since(start).Round(100*time.Millisecond))
		pinned.Digests[gadget.Name] = image.Image.Digest.String()
		if destination != nil {
			if err := destination.push(path, gadget.Name, opts.tag); err != nil {
				return fmt.Errorf("gadget %s: %w", gadget.Name, err)
			}
			pinned.Repository = destination.Name
			fmt.Printf("  pushed %s/%s:%s@%s\n", destination.Name, gadget.Name, opts.tag, image.Image.Digest)
		}
	}
	return pinned.write(filepath.Join(opts.out, "digests.yaml"))
}

// removeLayouts removes the images in dir, so that a gadget that was removed from
// build.yaml is removed from the binary as well. Plain files are kept.
func removeLayouts(dir string) error {
	if dir == "" {
		return nil
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("read layouts directory: %w", err)
	}
	for _, entry := range entries {
		if !entry.IsDir() {
			continue
		}
		if err := os.RemoveAll(filepath.Join(dir, entry.Name())); err != nil {
			return fmt.Errorf("remove old layout: %w", err)
		}
	}
	return nil
}
