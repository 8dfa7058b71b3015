// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"io"
	"log"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/stretchr/testify/require"
	"oras.land/oras-go/v2"
	"oras.land/oras-go/v2/registry/remote"
)

// startRegistry is a registry without TLS, in this process.
func startRegistry(t *testing.T) (host string) {
	t.Helper()
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	t.Cleanup(server.Close)
	return strings.TrimPrefix(server.URL, "http://")
}

// push is what `make images REGISTRY=…` does, with the test gadget. It returns the
// digest that it has written for the chart.
func push(t *testing.T, to, tag string) (digest string) {
	t.Helper()
	dir := t.TempDir()
	out, err := exec.Command("go", "run", "../gadget-images", "-f", "../gadget-images/testdata/build.yaml",
		"-o", dir, "-objects", filepath.Join(dir, "bpf"), "-push", to, "-tag", tag, "-plain-http").CombinedOutput()
	require.NoError(t, err, string(out))
	values, err := os.ReadFile(filepath.Join(dir, "digests.yaml"))
	require.NoError(t, err)
	require.Contains(t, string(values), "repository: "+to+"\n")
	found := regexp.MustCompile(`execs: (sha256:[0-9a-f]{64})`).FindSubmatch(values)
	require.NotNil(t, found, string(values))
	return string(found[1])
}

// pulled runs the gadget of a reference with an image store that has nothing yet.
func pulled(t *testing.T, reference string, args ...string) (rows, errors string, err error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	host, _, _ := strings.Cut(reference, "/")
	cmd := exec.CommandContext(ctx, "unshare", append([]string{"-m", "sh", "-ec",
		`mkdir -p /var/lib/ig; mount -t tmpfs none /var/lib/ig; exec "$@"`, "sh", os.Args[0],
		"run", reference, "--host", "--timeout", "3", "-o", "json", "--insecure-registries", host}, args...)...)
	cmd.Env = append(os.Environ(), layoutsVariable+"="+t.TempDir())
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	require.NoError(t, cmd.Start())
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	for {
		require.NoError(t, exec.Command("/bin/true").Run())
		select {
		case err := <-ended:
			return stdout.String(), stderr.String(), err
		case <-time.After(100 * time.Millisecond):
		}
	}
}

func newKey(t *testing.T) (*ecdsa.PrivateKey, string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	der, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
	require.NoError(t, err)
	return key, string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}))
}

// sign writes what `cosign sign --key` writes in its older format (cosign's
// specs/SIGNATURE_SPEC.md): a manifest beside the image, under a tag made of its digest.
func sign(t *testing.T, key *ecdsa.PrivateKey, repository, digest string) {
	t.Helper()
	payload, err := json.Marshal(map[string]any{
		"critical": map[string]any{
			"identity": map[string]string{"docker-reference": repository},
			"image":    map[string]string{"docker-manifest-digest": digest},
			"type":     "cosign container image signature",
		},
		"optional": nil,
	})
	require.NoError(t, err)
	hash := sha256.Sum256(payload)
	signature, err := ecdsa.SignASN1(rand.Reader, key, hash[:])
	require.NoError(t, err)

	target, err := remote.NewRepository(repository)
	require.NoError(t, err)
	target.PlainHTTP = true
	layer, err := oras.PushBytes(t.Context(), target, "application/vnd.dev.cosign.simplesigning.v1+json", payload)
	require.NoError(t, err)
	layer.Annotations = map[string]string{"dev.cosignproject.cosign/signature": base64.StdEncoding.EncodeToString(signature)}
	config, err := oras.PushBytes(t.Context(), target, ocispec.MediaTypeImageConfig, []byte("{}"))
	require.NoError(t, err)
	manifest, err := json.Marshal(ocispec.Manifest{
		Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageManifest,
		Config: config, Layers: []ocispec.Descriptor{layer},
	})
	require.NoError(t, err)
	_, err = oras.TagBytes(t.Context(), target, ocispec.MediaTypeImageManifest, manifest, strings.Replace(digest, ":", "-", 1)+".sig")
	require.NoError(t, err)
}

func TestPushedImagesAreRunByTagAndDigest(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: loads eBPF programs")
	}
	repository := startRegistry(t) + "/team/gadgets"
	digest := push(t, repository, "v1")
	for _, reference := range []string{":v1", "@" + digest, ":v1@" + digest} {
		rows, text, err := pulled(t, repository+"/execs"+reference, "--verify-image=false")
		require.NoError(t, err, text)
		require.Contains(t, rows, `"comm":"true"`, reference)
	}
	_, text, err := pulled(t, repository+"/execs@sha256:"+strings.Repeat("0", 64), "--verify-image=false")
	require.Error(t, err)
	require.Contains(t, text, "not found")
}

// The signature is checked by Inspektor Gadget's own code.
func TestSignedImagesRunAndOthersDoNot(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: loads eBPF programs")
	}
	repository := startRegistry(t) + "/gadgets"
	digest := push(t, repository, "v1")
	key, public := newKey(t)
	_, others := newKey(t)
	reference := repository + "/execs:v1"

	_, text, err := pulled(t, reference, "--public-keys="+public)
	require.Error(t, err, "nobody has signed it")
	require.Contains(t, text, "verifying image")

	sign(t, key, repository+"/execs", digest)
	rows, text, err := pulled(t, reference, "--public-keys="+public)
	require.NoError(t, err, text)
	require.Contains(t, rows, `"comm":"true"`)
	require.NotContains(t, text, "verif", "nothing to warn of")

	_, text, err = pulled(t, reference, "--public-keys="+others)
	require.Error(t, err)
	require.Contains(t, text, "the image was not signed by the provided keys")

	// A signature of another image says nothing about this one.
	sign(t, key, repository+"/execs", "sha256:"+strings.Repeat("1", 64))
	other, err := remote.NewRepository(repository + "/execs")
	require.NoError(t, err)
	other.PlainHTTP = true
	wrong, err := other.Resolve(t.Context(), "sha256-"+strings.Repeat("1", 64)+".sig")
	require.NoError(t, err)
	require.NoError(t, other.Tag(t.Context(), wrong, strings.Replace(digest, ":", "-", 1)+".sig"))
	_, text, err = pulled(t, reference, "--public-keys="+public)
	require.Error(t, err)
	require.Contains(t, text, "payload digest does not correspond to image")
}
