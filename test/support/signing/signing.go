// SPDX-License-Identifier: Apache-2.0

// Package signing is a registry for tests, with images that are signed as cosign signs
// them, and with keys of the test's own.
package signing

import (
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
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/stretchr/testify/require"
	"oras.land/oras-go/v2"
	"oras.land/oras-go/v2/content/oci"
	"oras.land/oras-go/v2/registry/remote"
)

// StartRegistry starts a registry without TLS, in this process. It ends with the test.
func StartRegistry(t testing.TB) (host string) {
	t.Helper()
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	t.Cleanup(server.Close)
	return strings.TrimPrefix(server.URL, "http://")
}

// Repository is one of such a registry, HOST/NAME.
func Repository(t testing.TB, name string) *remote.Repository {
	t.Helper()
	r, err := remote.NewRepository(name)
	require.NoError(t, err)
	r.PlainHTTP = true
	return r
}

// Push puts the image that an OCI tar names `from` into a repository, and returns its
// digest.
func Push(t testing.TB, tar, from, repository, tag string) (digest string) {
	t.Helper()
	store, err := oci.NewFromTar(t.Context(), tar)
	require.NoError(t, err)
	d, err := oras.Copy(t.Context(), store, from, Repository(t, repository), tag, oras.DefaultCopyOptions)
	require.NoError(t, err)
	return d.Digest.String()
}

// NewKey makes a key, and its public half as PEM.
func NewKey(t testing.TB) (key *ecdsa.PrivateKey, public string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	der, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
	require.NoError(t, err)
	return key, string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}))
}

// Sign writes the signature of `cosign sign --key` in its older format (cosign's
// specs/SIGNATURE_SPEC.md): a manifest beside the image, under a tag made of its digest.
func Sign(t testing.TB, key *ecdsa.PrivateKey, repository, digest string) {
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

	target := Repository(t, repository)
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
	_, err = oras.TagBytes(t.Context(), target, ocispec.MediaTypeImageManifest, manifest, Tag(digest))
	require.NoError(t, err)
}

// Tag is under which the signature of an image is found.
func Tag(digest string) string { return strings.Replace(digest, ":", "-", 1) + ".sig" }
