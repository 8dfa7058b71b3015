// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"log"
	"net/http/httptest"
	"os"
	"os/exec"
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
	"github.com/stretchr/testify/require"
)

// startRegistry is a registry without TLS, in this process.
func startRegistry(t *testing.T) string {
	t.Helper()
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	t.Cleanup(server.Close)
	return strings.TrimPrefix(server.URL, "http://")
}

func layerWith(t *testing.T, files map[string]string) v1.Layer {
	t.Helper()
	var archive bytes.Buffer
	w := tar.NewWriter(&archive)
	for path, content := range files {
		require.NoError(t, w.WriteHeader(&tar.Header{Name: path, Mode: 0o755, Size: int64(len(content)), Typeflag: tar.TypeReg}))
		_, err := w.Write([]byte(content))
		require.NoError(t, err)
	}
	require.NoError(t, w.Close())
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(archive.Bytes())), nil })
	require.NoError(t, err)
	return layer
}

// pushBase pushes an image shaped like Inspektor Gadget's: two platforms, and an
// attestation as buildx adds it.
func pushBase(t *testing.T, reference string, files map[string]string) {
	t.Helper()
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, architecture := range []string{"amd64", "arm64", "unknown"} {
		image, err := mutate.AppendLayers(empty.Image, layerWith(t, files))
		require.NoError(t, err)
		file, err := image.ConfigFile()
		require.NoError(t, err)
		file = file.DeepCopy()
		file.OS, file.Architecture = "linux", architecture
		file.Config.Labels = map[string]string{"org.opencontainers.image.title": "Inspektor Gadget", "kept": "yes"}
		file.Config.Env = []string{"PATH=/bin"}
		image, err = mutate.ConfigFile(image, file)
		require.NoError(t, err)
		platform := &v1.Platform{OS: "linux", Architecture: architecture}
		if architecture == "unknown" {
			platform.OS = "unknown"
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: image, Descriptor: v1.Descriptor{Platform: platform}})
	}
	to, err := name.NewTag(reference, name.Insecure)
	require.NoError(t, err)
	require.NoError(t, remote.WriteIndex(to, index))
}

// buildBinaries are small programs in the daemon's place.
func buildBinaries(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	source := filepath.Join(dir, "main.go")
	require.NoError(t, os.WriteFile(source, []byte("package main\n\nfunc main() { println(\"our daemon\") }\n"), 0o644))
	for _, architecture := range []string{"amd64", "arm64"} {
		build := exec.Command("go", "build", "-o", filepath.Join(dir, architecture, "gadgettracermanager"), source)
		build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOARCH="+architecture)
		out, err := build.CombinedOutput()
		require.NoError(t, err, string(out))
	}
	return dir
}

// unpack is the file system that a container of the image sees.
func unpack(t *testing.T, image v1.Image) map[string][]byte {
	t.Helper()
	content := mutate.Extract(image)
	defer content.Close()
	files := map[string][]byte{}
	for r := tar.NewReader(content); ; {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		require.NoError(t, err)
		files[header.Name], err = io.ReadAll(r)
		require.NoError(t, err)
		require.EqualValues(t, 0o755, header.Mode&0o777)
	}
}

// pulled is an image of the registry.
func pulled(t *testing.T, reference string) (name.Reference, v1.ImageIndex, *v1.IndexManifest) {
	t.Helper()
	to, err := name.ParseReference(reference, name.Insecure)
	require.NoError(t, err)
	index, err := remote.Index(to)
	require.NoError(t, err)
	manifest, err := index.IndexManifest()
	require.NoError(t, err)
	return to, index, manifest
}

func TestTheImageIsTheBaseWithOurDaemon(t *testing.T) {
	host, binaries := startRegistry(t), buildBinaries(t)
	base := host + "/inspektor-gadget/inspektor-gadget:v0.55.0"
	pushBase(t, base, map[string]string{"bin/gadgettracermanager": "their daemon", "cleanup": "their cleanup"})
	o := options{image: daemon, base: base, binaries: binaries, to: host + "/ours/ig-gpu-daemon:v1", plainHTTP: true}
	require.NoError(t, run(t.Context(), o))

	to, index, manifest := pulled(t, o.to)
	require.Len(t, manifest.Manifests, 2, "the attestation is about another image")
	for i, architecture := range []string{"amd64", "arm64"} {
		require.Equal(t, architecture, manifest.Manifests[i].Platform.Architecture)
		image, err := index.Image(manifest.Manifests[i].Digest)
		require.NoError(t, err)
		program, err := os.ReadFile(filepath.Join(binaries, architecture, "gadgettracermanager"))
		require.NoError(t, err)
		require.Equal(t, map[string][]byte{"bin/gadgettracermanager": program, "cleanup": []byte("their cleanup")}, unpack(t, image))
		file, err := image.ConfigFile()
		require.NoError(t, err)
		require.Equal(t, architecture, file.Architecture)
		require.Equal(t, []string{"PATH=/bin"}, file.Config.Env)
		require.Equal(t, "yes", file.Config.Labels["kept"])
		require.Equal(t, "gpu-gadgets daemon for Inspektor Gadget", file.Config.Labels["org.opencontainers.image.title"])
	}

	first, err := index.Digest()
	require.NoError(t, err)
	require.NoError(t, run(t.Context(), o))
	again, err := remote.Index(to)
	require.NoError(t, err)
	second, err := again.Digest()
	require.NoError(t, err)
	require.Equal(t, first, second, "the same input, the same image")
}

func TestWhatWouldNotStartIsNoImage(t *testing.T) {
	host, binaries := startRegistry(t), buildBinaries(t)
	base := host + "/base:v1"
	pushBase(t, base, map[string]string{"bin/gadgettracermanager": "their daemon"})
	pushBase(t, host+"/other:v1", map[string]string{"bin/sh": ""})
	swapped := t.TempDir()
	for from, to := range map[string]string{"amd64": "arm64", "arm64": "amd64"} {
		require.NoError(t, os.Symlink(filepath.Join(binaries, from), filepath.Join(swapped, to)))
	}
	for _, c := range []struct {
		o    options
		want string
	}{
		{options{image: daemon, base: host + "/other:v1", binaries: binaries}, "the base has no /bin/gadgettracermanager"},
		{options{image: daemon, base: host + "/none:v1", binaries: binaries}, "get " + host + "/none:v1"},
		{options{image: daemon, base: base, binaries: t.TempDir()}, "make daemon builds it"},
		{options{image: daemon, base: base, binaries: swapped}, "gadgettracermanager is for EM_AARCH64"},
	} {
		c.o.to, c.o.plainHTTP = host+"/made:v1", true
		require.ErrorContains(t, run(t.Context(), c.o), c.want)
	}
	to, err := name.ParseReference(host+"/made:v1", name.Insecure)
	require.NoError(t, err)
	_, err = remote.Index(to)
	require.Error(t, err, "nothing was pushed")
}

// ig-gpu needs glibc for NVML; a base without one is refused, unless the program is static.
func TestTheProgramIsPutOnABaseWithGlibc(t *testing.T) {
	host, dir := startRegistry(t), t.TempDir()
	source := filepath.Join(dir, "main.go")
	require.NoError(t, os.WriteFile(source, []byte("package main\n\nfunc main() {}\n"), 0o644))
	for _, architecture := range []string{"amd64", "arm64"} {
		build := exec.Command("go", "build", "-buildmode=pie", "-o", filepath.Join(dir, architecture, "ig-gpu"), source)
		build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOARCH="+architecture)
		out, err := build.CombinedOutput()
		require.NoError(t, err, string(out))
	}
	// As Debian has them: /lib and /lib64 are links.
	pushBase(t, host+"/debian:v1", map[string]string{"usr/lib64/ld-linux-x86-64.so.2": "", "usr/lib/ld-linux-aarch64.so.1": ""})
	pushBase(t, host+"/alpine:v1", map[string]string{"lib/ld-musl-x86_64.so.1": ""})
	o := options{image: program, base: host + "/debian:v1", binaries: dir, to: host + "/ours/ig-gpu:v1", plainHTTP: true}
	require.NoError(t, run(t.Context(), o))
	_, index, manifest := pulled(t, o.to)
	require.Len(t, manifest.Manifests, 2)
	image, err := index.Image(manifest.Manifests[0].Digest)
	require.NoError(t, err)
	file, err := image.ConfigFile()
	require.NoError(t, err)
	require.Equal(t, []string{"/usr/local/bin/ig-gpu"}, file.Config.Entrypoint)
	require.Contains(t, unpack(t, image), "usr/local/bin/ig-gpu")

	o.base = host + "/alpine:v1"
	require.ErrorContains(t, run(t.Context(), o), "the base has no /lib64/ld-linux-x86-64.so.2: it has no glibc")
	o.image = "ig"
	require.ErrorContains(t, run(t.Context(), o), `-image "ig": want ig-gpu-daemon or ig-gpu`)
}

// The Dockerfile does the same; what it takes from where is part of both.
func TestDockerfilePutsTheSameFileInTheSamePlace(t *testing.T) {
	content, err := os.ReadFile("../ig-gpu-daemon/Dockerfile")
	require.NoError(t, err)
	text := string(content)
	require.Contains(t, text, "ARG BASE="+kinds[daemon].base+"\nFROM ${BASE}\n")
	require.Contains(t, text, "\nCOPY ${TARGETARCH}/gadgettracermanager /"+kinds[daemon].path+"\n")
	for key, value := range kinds[daemon].labels() {
		require.Contains(t, text, key+"=\""+value+"\"")
	}
	base := kinds[daemon].base
	module, err := os.ReadFile("../../go.mod")
	require.NoError(t, err)
	require.Contains(t, string(module), "github.com/inspektor-gadget/inspektor-gadget "+base[strings.LastIndex(base, ":")+1:]+"\n")
}
