// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"log"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"

	"github.com/distribution/reference"
	ggcr "github.com/google/go-containerregistry/pkg/registry"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/signature/verifier/cosign"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/sigstore/sigstore/pkg/cryptoutils"
	"github.com/stretchr/testify/require"
	"oras.land/oras-go/v2"
	"oras.land/oras-go/v2/content/memory"
	"oras.land/oras-go/v2/content/oci"
	"oras.land/oras-go/v2/registry"
	"oras.land/oras-go/v2/registry/remote"

	"github.com/gpu-gadgets/gpu-gadgets/cmd/internal/ocilayout"
)

const version = "v1.2.3-rc.1"

// input makes what scripts/release.sh would: programs, a man page, a gadget's image, a chart.
func input(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		path := filepath.Join(dir, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
	}
	write("source/go.mod", "module example.com/program\ngo 1.26\n")
	write("source/main.go", "package main\n\nimport \"os\"\n\nfunc main() { os.Stdout.WriteString(\"ig-gpu "+version+"\\n\") }\n")
	for _, architecture := range architectures {
		program := filepath.Join(dir, "bin", architecture, "ig-gpu")
		build := exec.Command("go", "build", "-ldflags", "-s -w", "-o", program, ".")
		build.Dir = filepath.Join(dir, "source")
		build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOARCH="+architecture)
		out, err := build.CombinedOutput()
		require.NoError(t, err, string(out))
		require.NoError(t, os.Link(program, filepath.Join(dir, "bin", architecture, "gpu-exporter")))
	}
	write("share/man/man1/ig-gpu.1", ".TH IG-GPU 1")
	write("doc/LICENSE", "Apache License")
	write("modules/cuda_alloc", "pkg:generic/libbpf 1.1\nexample.com/wasm v0.55.0\n")
	image := ocilayout.New()
	index, err := image.AddJSON(ocispec.MediaTypeImageIndex, ocispec.Index{MediaType: ocispec.MediaTypeImageIndex})
	require.NoError(t, err)
	require.NoError(t, image.Tag(index, "ghcr.io/gpu-gadgets/cuda_alloc:latest"))
	require.NoError(t, image.WriteDir(filepath.Join(dir, "layouts/cuda_alloc")))
	installer, err := os.ReadFile("../../scripts/install.sh")
	require.NoError(t, err)
	write("install.sh", string(installer))
	chart, err := os.Create(filepath.Join(dir, "gpu-gadgets-1.2.3-rc.1.tgz"))
	require.NoError(t, err)
	info, err := chart.Stat()
	require.NoError(t, err)
	require.NoError(t, writeTar(chart, map[string]file{"gpu-gadgets/Chart.yaml": {[]byte("name: gpu-gadgets\n"), 0o644}}, info.ModTime()))
	require.NoError(t, chart.Close())
	return dir
}

// What the chart runs by default is among the images, by the tags that it uses.
func TestTheImagesOfTheChartAreReleased(t *testing.T) {
	out := made(t, input(t), "")
	for _, name := range []string{"ig-gpu", "gpu-exporter"} {
		values, err := os.ReadFile("../../charts/gpu-gadgets/values.yaml")
		require.NoError(t, err)
		require.Contains(t, string(values), "repository: ghcr.io/gpu-gadgets/"+name+"\n")
		_, err = unpack(t, filepath.Join(out, "images", name+".tar")).Resolve(t.Context(), "ghcr.io/gpu-gadgets/"+name+":"+version)
		require.NoError(t, err)
	}
	chart, err := os.ReadFile("../../charts/gpu-gadgets/Chart.yaml")
	require.NoError(t, err)
	tag := regexp.MustCompile(`(?m)^appVersion: (.*)$`).FindStringSubmatch(string(chart))[1]
	require.Regexp(t, versions, tag, "releases are tagged with a v")
	daemon, err := os.ReadFile("../../charts/gpu-gadgets/values-daemon.yaml")
	require.NoError(t, err)
	require.Contains(t, string(daemon), "  image: {repository: ghcr.io/gpu-gadgets/ig-gpu-daemon, tag: "+tag+"}\n", "what scripts/release.sh changes")
}

// newKey writes a key and returns its path, and that of the public one.
func newKey(t *testing.T) (private, public string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	text, err := cryptoutils.MarshalPrivateKeyToPEM(key)
	require.NoError(t, err)
	private, public = filepath.Join(t.TempDir(), "key.pem"), filepath.Join(t.TempDir(), "key.pub")
	require.NoError(t, os.WriteFile(private, text, 0o600))
	text, err = cryptoutils.MarshalPublicKeyToPEM(key.Public())
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(public, text, 0o644))
	return private, public
}

// files of a folder, by name.
func files(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	require.NoError(t, fs.WalkDir(os.DirFS(dir), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := os.ReadFile(filepath.Join(dir, name))
		all[name] = string(text)
		return err
	}))
	return all
}

func made(t *testing.T, in, key string) string {
	t.Helper()
	out := filepath.Join(t.TempDir(), "release")
	require.NoError(t, run(options{version: version, in: in, out: out, key: key, epoch: "1700000000"}))
	return out
}

// The same input gives the same bytes, with the same key the same signatures.
func TestReleaseIsReproducible(t *testing.T) {
	in := input(t)
	key, _ := newKey(t)
	first, second := files(t, made(t, in, key)), files(t, made(t, in, key))
	names := []string{}
	for name := range first {
		names = append(names, name)
		require.True(t, first[name] == second[name], "%s differs", name)
	}
	require.ElementsMatch(t, names, []string{"SHA256SUMS", "SHA256SUMS.sig", "cosign.pub", "install.sh", "gpu-gadgets-1.2.3-rc.1.tgz",
		"gpu-gadgets-v1.2.3-rc.1-linux-amd64.tar.gz", "gpu-gadgets-v1.2.3-rc.1-linux-arm64.tar.gz", "images/cuda_alloc.tar", "images/gpu-exporter.tar", "images/ig-gpu.tar"})
	require.Len(t, second, len(first))
}

// unpack is an image's layout as a store.
func unpack(t *testing.T, file string) *oci.Store {
	t.Helper()
	dir := t.TempDir()
	from, err := os.Open(file)
	require.NoError(t, err)
	defer from.Close()
	for archive := tar.NewReader(from); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
		path := filepath.Join(dir, header.Name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		content, err := io.ReadAll(archive)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(path, content, 0o644))
	}
	store, err := oci.New(dir)
	require.NoError(t, err)
	return store
}

// Inspektor Gadget itself verifies the images with the public key, and with no other.
func TestInspektorGadgetVerifiesTheImages(t *testing.T) {
	key, public := newKey(t)
	_, another := newKey(t)
	out := made(t, input(t), key)
	for _, name := range []string{"cuda_alloc", "gpu-exporter", "ig-gpu"} {
		store := unpack(t, filepath.Join(out, "images", name+".tar"))
		image, err := reference.ParseNormalizedNamed("ghcr.io/gpu-gadgets/" + name + ":" + version)
		require.NoError(t, err)
		index, err := store.Resolve(t.Context(), image.String())
		require.NoError(t, err)
		// The verifier looks for the signature by its tag alone.
		signature, err := store.Resolve(t.Context(), "ghcr.io/gpu-gadgets/"+name+":sha256-"+index.Digest.Encoded()+".sig")
		require.NoError(t, err)
		require.NoError(t, store.Tag(t.Context(), signature, "sha256-"+index.Digest.Encoded()+".sig"))
		for path, isRight := range map[string]bool{public: true, another: false} {
			text, err := os.ReadFile(path)
			require.NoError(t, err)
			v, err := cosign.NewVerifier(cosign.VerifierOptions{PublicKeys: []string{string(text)}})
			require.NoError(t, err)
			if err = v.Verify(t.Context(), store, image); isRight {
				require.NoError(t, err, name)
			} else {
				require.ErrorContains(t, err, "not signed by the provided keys", name)
			}
		}
	}
}

// The bill of materials is found from the image, and has what went into it.
func TestImagesHaveTheirBillOfMaterials(t *testing.T) {
	out := made(t, input(t), "")
	store := unpack(t, filepath.Join(out, "images", "cuda_alloc.tar"))
	image, err := store.Resolve(t.Context(), "ghcr.io/gpu-gadgets/cuda_alloc:"+version)
	require.NoError(t, err)
	found, err := registry.Referrers(t.Context(), store, image, billOfMaterials)
	require.NoError(t, err)
	require.Len(t, found, 1)
	content, err := store.Fetch(t.Context(), found[0])
	require.NoError(t, err)
	defer content.Close()
	var manifest ocispec.Manifest
	require.NoError(t, json.NewDecoder(content).Decode(&manifest))
	text, err := store.Fetch(t.Context(), manifest.Layers[0])
	require.NoError(t, err)
	defer text.Close()
	var bill struct {
		Metadata struct {
			Component struct{ Name, Version string }
		}
		Components []struct{ Name, Version, Purl string }
	}
	require.NoError(t, json.NewDecoder(text).Decode(&bill))
	require.Equal(t, "cuda_alloc", bill.Metadata.Component.Name)
	require.Equal(t, version, bill.Metadata.Component.Version)
	require.Equal(t, []struct{ Name, Version, Purl string }{
		{"example.com/wasm", "v0.55.0", "pkg:golang/example.com/wasm@v0.55.0"}, {"generic/libbpf", "1.1", "pkg:generic/libbpf@1.1"},
	}, bill.Components)
}

// A registry has the image, its bill of materials and its signature, by the names where
// clients look.
func TestImagesArePushedWithWhatBelongsToThem(t *testing.T) {
	key, public := newKey(t)
	out := made(t, input(t), key)
	server := httptest.NewServer(ggcr.New(ggcr.Logger(log.New(io.Discard, "", 0)), ggcr.WithReferrersSupport(true)))
	defer server.Close()
	host := strings.TrimPrefix(server.URL, "http://")
	require.NoError(t, run(options{version: version, out: out, push: host + "/gpu-gadgets", plainHTTP: true}))

	from, err := remote.NewRepository(host + "/gpu-gadgets/cuda_alloc")
	require.NoError(t, err)
	from.PlainHTTP = true
	image, err := from.Resolve(t.Context(), version)
	require.NoError(t, err)
	found, err := registry.Referrers(t.Context(), from, image, "")
	require.NoError(t, err)
	require.Len(t, found, 1, "the bill of materials") // of a type that this registry does not read
	store := memory.New()
	pulled, err := oras.Copy(t.Context(), from, version, store, host+"/gpu-gadgets/cuda_alloc:"+version, oras.DefaultCopyOptions)
	require.NoError(t, err)
	tag := "sha256-" + pulled.Digest.Encoded() + ".sig"
	_, err = oras.Copy(t.Context(), from, tag, store, tag, oras.DefaultCopyOptions)
	require.NoError(t, err)
	text, err := os.ReadFile(public)
	require.NoError(t, err)
	v, err := cosign.NewVerifier(cosign.VerifierOptions{PublicKeys: []string{string(text)}})
	require.NoError(t, err)
	named, err := reference.ParseNormalizedNamed(host + "/gpu-gadgets/cuda_alloc:" + version)
	require.NoError(t, err)
	require.NoError(t, v.Verify(t.Context(), store, named))
}

// install runs install.sh as a user would, with nothing of this machine's environment.
func install(t *testing.T, out string, args ...string) (string, error) {
	t.Helper()
	cmd := exec.Command("sh", append([]string{filepath.Join(out, "install.sh")}, args...)...)
	cmd.Env = []string{"PATH=/usr/bin:/bin"}
	text, err := cmd.CombinedOutput()
	return string(text), err
}

func TestInstallerInstallsAndRemoves(t *testing.T) {
	key, public := newKey(t)
	out, prefix := made(t, input(t), key), filepath.Join(t.TempDir(), "a prefix")
	text, err := install(t, out, "--prefix", prefix, "--key", public)
	require.NoError(t, err, text)
	require.Equal(t, "Installed ig-gpu "+version+" in "+prefix+"\nAdd "+prefix+"/bin to PATH\nNext: sudo ig-gpu check\n", text)
	require.FileExists(t, filepath.Join(prefix, "share/man/man1/ig-gpu.1"))
	require.FileExists(t, filepath.Join(prefix, "share/doc/gpu-gadgets/ig-gpu.cdx.json"))
	old := "share/man/man1/ig-gpu-old.1" // of a version before
	list := filepath.Join(prefix, "share/doc/gpu-gadgets/installed")
	installed, err := os.ReadFile(list)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(list, append([]byte(old+"\n"), installed...), 0o644))
	require.NoError(t, os.WriteFile(filepath.Join(prefix, old), nil, 0o644))
	text, err = install(t, out, "--prefix", prefix) // again, over it
	require.NoError(t, err, text)
	require.NoFileExists(t, filepath.Join(prefix, old))
	text, err = install(t, out, "--prefix", prefix, "--uninstall")
	require.NoError(t, err, text)
	require.Empty(t, files(t, prefix))
}

func TestInstallerRefusesWhatItCannotTrust(t *testing.T) {
	key, public := newKey(t)
	_, another := newKey(t)
	release := made(t, input(t), key)
	tarball := "gpu-gadgets-" + version + "-linux-" + runtime.GOARCH + ".tar.gz"
	for name, c := range map[string]struct {
		change func(out string) error
		key    string
		want   string
	}{
		"another tarball":     {func(out string) error { return os.WriteFile(filepath.Join(out, tarball), nil, 0o644) }, public, "does not have the checksum"},
		"another key":         {func(string) error { return nil }, another, "were not signed with the key"},
		"changed checksums":   {func(out string) error { return os.WriteFile(filepath.Join(out, "SHA256SUMS"), nil, 0o644) }, public, "were not signed with the key"},
		"no checksums":        {func(out string) error { return os.Remove(filepath.Join(out, "SHA256SUMS")) }, public, "is it the directory of a release?"},
		"no tarball":          {func(out string) error { return os.Remove(filepath.Join(out, tarball)) }, public, "has no " + tarball},
		"no signature at all": {func(out string) error { return os.Remove(filepath.Join(out, "SHA256SUMS.sig")) }, public, "has no SHA256SUMS.sig"},
	} {
		t.Run(name, func(t *testing.T) {
			out, prefix := filepath.Join(t.TempDir(), "release"), t.TempDir()
			require.NoError(t, os.CopyFS(out, os.DirFS(release)))
			require.NoError(t, c.change(out))
			text, err := install(t, out, "--prefix", prefix, "--key", c.key)
			require.Error(t, err)
			require.Contains(t, text, c.want)
			require.Empty(t, files(t, prefix), "something was installed")
		})
	}
}

func TestWhatCannotBeReleasedIsRefused(t *testing.T) {
	for want, o := range map[string]options{
		"want a version such as":        {version: "1.2", epoch: "1"},
		"want seconds since 1970":       {version: version, epoch: "today"},
		"read the key to sign with":     {version: version, epoch: "1", key: "/nowhere"},
		"has files of another release":  {version: version, epoch: "1", out: "."},
		"read what is built for amd64:": {version: version, epoch: "1", in: "/nowhere", out: t.TempDir()},
	} {
		require.ErrorContains(t, run(o), want)
	}
}
