// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// checksums writes SHA256SUMS, which sha256sum reads, and where the release is signed its
// signature, which openssl and `cosign verify-blob` read, and the public key.
func (r *release) checksums() error {
	var sums bytes.Buffer
	root := os.DirFS(r.out)
	err := fs.WalkDir(root, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		content, err := fs.ReadFile(root, name)
		if err != nil {
			return err
		}
		fmt.Fprintf(&sums, "%x  %s\n", sha256.Sum256(content), name)
		return nil
	})
	if err != nil {
		return fmt.Errorf("read the release: %w", err)
	}
	files := map[string][]byte{"SHA256SUMS": sums.Bytes()}
	if r.signer != nil {
		signature, err := r.signer.sign(sums.Bytes())
		if err != nil {
			return err
		}
		files["SHA256SUMS.sig"] = []byte(base64.StdEncoding.EncodeToString(signature) + "\n")
		if files["cosign.pub"], err = r.signer.public(); err != nil {
			return err
		}
	}
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(r.out, name), content, 0o644); err != nil {
			return fmt.Errorf("write %s: %w", name, err)
		}
	}
	return nil
}
