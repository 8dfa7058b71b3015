// SPDX-License-Identifier: Apache-2.0

// Command release makes the files of a release of what scripts/release.sh has built:
// tarballs for each architecture, images as OCI layouts with their signature and software
// bill of materials, the chart, and the checksums of all. The same input gives the same
// bytes, signatures included.
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"time"
)

func main() {
	var o options
	flag.StringVar(&o.version, "version", "", "version of the release, such as v0.1.0")
	flag.StringVar(&o.in, "in", "build/release-input", "directory with bin/<architecture>, share, layouts, modules and the chart")
	flag.StringVar(&o.out, "out", "build/release", "directory for the files; it must be empty or absent")
	flag.StringVar(&o.key, "key", "", "private key to sign with, P-256 in PEM (PKCS #8, or cosign's with COSIGN_PASSWORD); none: nothing is signed")
	flag.StringVar(&o.epoch, "epoch", os.Getenv("SOURCE_DATE_EPOCH"), "time of all files, in seconds since 1970")
	flag.StringVar(&o.push, "push", "", "push the images of -out to this registry, HOST[:PORT]/NAME, and do nothing else; credentials are those of docker login")
	flag.BoolVar(&o.plainHTTP, "plain-http", false, "push to a registry without TLS")
	flag.Parse()
	if err := run(o); err != nil {
		fmt.Fprintf(os.Stderr, "release: %v\n", err)
		os.Exit(1)
	}
}

type options struct {
	version, in, out, key, epoch, push string
	plainHTTP                          bool
}

// versions are those of semver.org with a v: what Go, Helm and tags of images share.
var versions = regexp.MustCompile(`^v(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(-[0-9A-Za-z.-]+)?$`)

func run(o options) error {
	if !versions.MatchString(o.version) {
		return fmt.Errorf("-version %q: want a version such as v0.1.0 or v0.1.0-rc.1", o.version)
	}
	if o.push != "" {
		return push(o)
	}
	seconds, err := strconv.ParseInt(o.epoch, 10, 64)
	if err != nil {
		return fmt.Errorf("-epoch %q: want seconds since 1970, such as SOURCE_DATE_EPOCH has", o.epoch)
	}
	signer, err := newSigner(o.key, os.Getenv("COSIGN_PASSWORD"))
	if err != nil {
		return err
	}
	if found, _ := filepath.Glob(filepath.Join(o.out, "*")); len(found) > 0 {
		return fmt.Errorf("%s has files of another release: remove it first", o.out)
	}
	if err := os.MkdirAll(filepath.Join(o.out, "images"), 0o755); err != nil {
		return fmt.Errorf("make the release's directory: %w", err)
	}
	r := release{options: o, made: time.Unix(seconds, 0).UTC(), signer: signer}
	for _, step := range []func() error{r.tarballs, r.images, r.chart, r.installer, r.checksums} {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

type release struct {
	options
	made   time.Time
	signer *signer // nil: nothing is signed
}
