// SPDX-License-Identifier: Apache-2.0

package k8s

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/stretchr/testify/require"
	"oras.land/oras-go/v2/content"
	"oras.land/oras-go/v2/registry/remote"
)

// push makes an image of one layer, with the files of a directory, and puts it into the
// registry. The layer is not compressed: to unpack it is work for an emulated processor.
func (c *cluster) push(name, tag, dir string, config ocispec.ImageConfig) {
	t := c.t
	t.Helper()
	var layer bytes.Buffer
	w := tar.NewWriter(&layer)
	require.NoError(t, w.AddFS(os.DirFS(dir)))
	require.NoError(t, w.Close())

	pem, err := os.ReadFile(filepath.Join(c.dir, "ca.crt"))
	require.NoError(t, err)
	roots := x509.NewCertPool()
	require.True(t, roots.AppendCertsFromPEM(pem))
	repository, err := remote.NewRepository(registry + "/" + name)
	require.NoError(t, err)
	repository.Client = &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}}}

	ctx := context.Background()
	put := func(kind string, blob []byte) ocispec.Descriptor {
		d := content.NewDescriptorFromBytes(kind, blob)
		require.NoError(t, repository.Push(ctx, d, bytes.NewReader(blob)))
		return d
	}
	layerBlob := put(ocispec.MediaTypeImageLayer, layer.Bytes())
	image := ocispec.Image{Platform: ocispec.Platform{Architecture: "amd64", OS: "linux"}, Config: config}
	image.RootFS = ocispec.RootFS{Type: "layers"}
	image.RootFS.DiffIDs = append(image.RootFS.DiffIDs, layerBlob.Digest)
	configBytes, err := json.Marshal(image)
	require.NoError(t, err)
	manifest, err := json.Marshal(ocispec.Manifest{
		Versioned: specs.Versioned{SchemaVersion: 2},
		MediaType: ocispec.MediaTypeImageManifest,
		Config:    put(ocispec.MediaTypeImageConfig, configBytes),
		Layers:    []ocispec.Descriptor{layerBlob},
	})
	require.NoError(t, err)
	d := content.NewDescriptorFromBytes(ocispec.MediaTypeImageManifest, manifest)
	require.NoError(t, repository.PushReference(ctx, d, bytes.NewReader(manifest), tag))
	t.Logf("image %s:%s, %d MB", name, tag, layer.Len()/1e6)
}

// files makes a directory for push: where each file goes, and from where it comes.
func (c *cluster) files(files map[string]string) string {
	c.t.Helper()
	dir := c.t.TempDir()
	for to, from := range files {
		to = filepath.Join(dir, to)
		require.NoError(c.t, os.MkdirAll(filepath.Dir(to), 0o755))
		c.run("cp", "-L", "--preserve=mode", from, to)
	}
	return dir
}

func (c *cluster) run(program string, args ...string) {
	c.t.Helper()
	out, err := exec.Command(program, args...).CombinedOutput()
	require.NoError(c.t, err, "%s", out)
}

// pushImages fills the registry with the images that the user does not push: those of
// Kubernetes, Inspektor Gadget's daemon under its published name, and the image of
// examples/kubernetes/Dockerfile, with Debian's Python.
func (c *cluster) pushImages() {
	c.t.Helper()
	c.push("pause", "1", c.files(map[string]string{"pause": c.built + "/pause"}),
		ocispec.ImageConfig{Entrypoint: []string{"/pause"}})
	c.pushGadget("inspektor-gadget/inspektor-gadget", inspektorGadget, c.built+"/daemon/gadgettracermanager")
	c.push("gpu-gadgets/inference", "v1", c.python(map[string]string{
		"app/inference.py":                      c.root + "/examples/inference/inference.py",
		"app/cuda.py":                           c.root + "/examples/inference/cuda.py",
		"usr/lib/x86_64-linux-gnu/libcuda.so.1": c.root + "/build/simcuda/libcuda.so.1",
	}), ocispec.ImageConfig{
		Env:        []string{"PATH=/usr/bin:/bin", "PYTHONUNBUFFERED=1"},
		Entrypoint: []string{"python3", "/app/inference.py"},
	})
}

// pushDaemon pushes the image of cmd/ig-gpu-daemon/Dockerfile.
func (c *cluster) pushDaemon() {
	c.pushGadget("gpu-gadgets/ig-gpu-daemon", "v1", c.root+"/build/daemon/amd64/gadgettracermanager")
}

// pushGadget pushes the parts of Inspektor Gadget's image that are used here.
func (c *cluster) pushGadget(name, tag, daemon string) {
	c.push(name, tag, c.files(map[string]string{
		"bin/gadgettracermanager": daemon,
		"cleanup":                 c.built + "/daemon/cleanup",
		// As an administrator with a registry of his own adds it.
		"etc/ssl/certs/ca-certificates.crt": c.dir + "/ca.crt",
	}), ocispec.ImageConfig{})
}

// pushProgram pushes bin/ig-gpu with a C library, as the chart's README says.
func (c *cluster) pushProgram() {
	c.push("gpu-gadgets/ig-gpu", "v1", c.python(map[string]string{"usr/local/bin/ig-gpu": c.root + "/bin/ig-gpu"}),
		ocispec.ImageConfig{Env: []string{"PATH=/usr/local/bin:/usr/bin:/bin"}})
}

// python is a directory with Debian's Python, and files.
func (c *cluster) python(files map[string]string) string {
	c.t.Helper()
	root := c.t.TempDir()
	c.run("cp", "-a", c.built+"/python/root/.", root)
	for to, from := range files {
		to = filepath.Join(root, to)
		require.NoError(c.t, os.MkdirAll(filepath.Dir(to), 0o755))
		c.run("cp", "-L", "--preserve=mode", from, to)
	}
	require.NoError(c.t, os.MkdirAll(root+"/etc", 0o755))
	require.NoError(c.t, os.WriteFile(root+"/etc/ld.so.conf",
		[]byte("/usr/lib/x86_64-linux-gnu\n/lib/x86_64-linux-gnu\n"), 0o644))
	c.run("ldconfig", "-r", root)
	require.FileExists(c.t, root+"/etc/ld.so.cache")
	return root
}
