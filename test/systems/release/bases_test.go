// SPDX-License-Identifier: Apache-2.0

package release

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"log"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/stretchr/testify/require"
)

// bases is a registry with images like those that a release is made of: one with Inspektor
// Gadget's daemon, and one with this machine's C library, in Debian's places.
func bases(t *testing.T) (host string) {
	t.Helper()
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	t.Cleanup(server.Close)
	host = strings.TrimPrefix(server.URL, "http://")
	libc := map[string]string{}
	for _, name := range []string{"ld-linux-x86-64.so.2", "libc.so.6", "libdl.so.2", "libpthread.so.0", "libresolv.so.2"} {
		content, err := os.ReadFile("/lib/x86_64-linux-gnu/" + name)
		require.NoError(t, err)
		libc["usr/lib/x86_64-linux-gnu/"+name] = string(content)
	}
	libc["usr/lib64/ld-linux-x86-64.so.2"] = libc["usr/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2"]
	pushIndex(t, host+"/debian:v1", libc, map[string]string{"usr/lib/ld-linux-aarch64.so.1": ""})
	daemon := map[string]string{"bin/gadgettracermanager": "the daemon", "cleanup": "the hook"}
	pushIndex(t, host+"/ig:v1", daemon, daemon)
	return host
}

func pushIndex(t *testing.T, reference string, amd64, arm64 map[string]string) {
	t.Helper()
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for architecture, files := range map[string]map[string]string{"amd64": amd64, "arm64": arm64} {
		var archive bytes.Buffer
		w := tar.NewWriter(&archive)
		for path, content := range files {
			require.NoError(t, w.WriteHeader(&tar.Header{Name: path, Mode: 0o755, Size: int64(len(content)), Typeflag: tar.TypeReg}))
			_, err := io.WriteString(w, content)
			require.NoError(t, err)
		}
		require.NoError(t, w.Close())
		layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(archive.Bytes())), nil })
		require.NoError(t, err)
		image, err := mutate.AppendLayers(empty.Image, layer)
		require.NoError(t, err)
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: image, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: architecture}}})
	}
	to, err := name.NewTag(reference)
	require.NoError(t, err)
	require.NoError(t, remote.WriteIndex(to, index))
}

// imageRuns starts the program of an image in the image's own files, by the name that the chart uses.
func imageRuns(t *testing.T, archive string) {
	t.Helper()
	layout, root := t.TempDir(), t.TempDir()
	command(t, ".", "tar", "-xf", archive, "-C", layout)
	read := func(blob ocispec.Descriptor, into any) {
		t.Helper()
		text, err := os.ReadFile(filepath.Join(layout, "blobs/sha256", blob.Digest.Encoded()))
		require.NoError(t, err)
		require.NoError(t, json.Unmarshal(text, into))
	}
	var index ocispec.Index
	text, err := os.ReadFile(filepath.Join(layout, "index.json"))
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(text, &index))
	read(index.Manifests[0], &index)
	for _, m := range index.Manifests {
		if m.Platform == nil || m.Platform.Architecture != "amd64" {
			continue
		}
		var manifest ocispec.Manifest
		read(m, &manifest)
		for _, layer := range manifest.Layers {
			unpack(t, filepath.Join(layout, "blobs/sha256", layer.Digest.Encoded()), root)
		}
	}
	for _, link := range []string{"lib", "lib64"} { // as Debian has them
		require.NoError(t, os.Symlink("usr/"+link, filepath.Join(root, link)))
	}
	require.Contains(t, command(t, ".", "/usr/sbin/chroot", root, "/usr/local/bin/ig-gpu", "--version"), version)
}

// unpack is a layer, compressed or not, in a directory.
func unpack(t *testing.T, layer, dir string) {
	t.Helper()
	content, err := os.ReadFile(layer)
	require.NoError(t, err)
	var plain io.Reader = bytes.NewReader(content)
	if bytes.HasPrefix(content, []byte{0x1f, 0x8b}) {
		plain, err = gzip.NewReader(plain)
		require.NoError(t, err)
	}
	for r := tar.NewReader(plain); ; {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			return
		}
		require.NoError(t, err)
		if header.Typeflag != tar.TypeReg {
			continue
		}
		path := filepath.Join(dir, header.Name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		file, err := os.Create(path)
		require.NoError(t, err)
		_, err = io.Copy(file, r)
		require.NoError(t, err)
		require.NoError(t, file.Chmod(0o755))
		require.NoError(t, file.Close())
	}
}
