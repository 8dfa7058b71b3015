// SPDX-License-Identifier: Apache-2.0

package main

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/sha256"
	"fmt"
	"os"

	"github.com/sigstore/sigstore/pkg/cryptoutils"
)

// signer signs as cosign does with a key: ECDSA of a SHA-256 digest. Its signatures are
// deterministic (RFC 6979).
type signer struct{ key *ecdsa.PrivateKey }

// newSigner reads a key; nil without a path.
func newSigner(path, password string) (*signer, error) {
	if path == "" {
		return nil, nil
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read the key to sign with: %w", err)
	}
	key, err := cryptoutils.UnmarshalPEMToPrivateKey(text, cryptoutils.StaticPasswordFunc([]byte(password)))
	if err != nil {
		return nil, fmt.Errorf("read the key to sign with, %s (an encrypted one needs COSIGN_PASSWORD): %w", path, err)
	}
	private, ok := key.(*ecdsa.PrivateKey)
	if !ok || private.Curve != elliptic.P256() {
		return nil, fmt.Errorf("read the key to sign with, %s: want an ECDSA key of P-256, such as `openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256` makes", path)
	}
	return &signer{private}, nil
}

func (s *signer) sign(content []byte) ([]byte, error) {
	digest := sha256.Sum256(content)
	signature, err := s.key.Sign(nil, digest[:], crypto.SHA256) // without a source of random numbers: RFC 6979
	if err != nil {
		return nil, fmt.Errorf("sign: %w", err)
	}
	return signature, nil
}

// public is the key to verify with, in PEM.
func (s *signer) public() ([]byte, error) {
	return cryptoutils.MarshalPublicKeyToPEM(s.key.Public())
}
