// SPDX-License-Identifier: Apache-2.0

package k8s

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// authority signs all certificates of the cluster and of the registry.
type authority struct {
	dir         string // NAME.crt, NAME.key
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
	serial      int64
}

func newAuthority(t *testing.T, dir string) *authority {
	t.Helper()
	a := &authority{dir: dir}
	a.issue(t, "ca", pkix.Name{CommonName: "test"})
	return a
}

// issue writes a certificate, for servers with addresses, and its key.
func (a *authority) issue(t *testing.T, name string, subject pkix.Name, addresses ...string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	a.serial++
	template := &x509.Certificate{
		SerialNumber: big.NewInt(a.serial),
		Subject:      subject,
		NotBefore:    time.Now().Add(-time.Hour), // the clock of the virtual machine is its own
		NotAfter:     time.Now().Add(24 * time.Hour),
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
	}
	for _, address := range addresses {
		template.IPAddresses = append(template.IPAddresses, net.ParseIP(address))
	}
	if a.certificate == nil {
		template.IsCA, template.BasicConstraintsValid = true, true
		template.KeyUsage |= x509.KeyUsageCertSign
		a.certificate, a.key = template, key
	}
	signed, err := x509.CreateCertificate(rand.Reader, template, a.certificate, &key.PublicKey, a.key)
	require.NoError(t, err)
	if template.IsCA {
		a.certificate, err = x509.ParseCertificate(signed)
		require.NoError(t, err)
	}
	secret, err := x509.MarshalECPrivateKey(key)
	require.NoError(t, err)
	a.write(t, name+".crt", "CERTIFICATE", signed)
	a.write(t, name+".key", "EC PRIVATE KEY", secret)
}

func (a *authority) write(t *testing.T, name, kind string, bytes []byte) {
	t.Helper()
	text := pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: bytes})
	require.NoError(t, os.WriteFile(filepath.Join(a.dir, name), text, 0o600))
}

// client makes NAME.kubeconfig for a user with groups, and a namespace as the default.
func (a *authority) client(t *testing.T, name, user, namespace string, groups ...string) string {
	t.Helper()
	a.issue(t, name, pkix.Name{CommonName: user, Organization: groups})
	return a.kubeconfig(t, name, fmt.Sprintf("client-certificate: %[1]s/%[2]s.crt, client-key: %[1]s/%[2]s.key", a.dir, name), namespace)
}

// kubeconfig makes NAME.kubeconfig for a user by its credentials, fields of YAML.
func (a *authority) kubeconfig(t *testing.T, name, credentials, namespace string) string {
	t.Helper()
	text := fmt.Sprintf(`apiVersion: v1
kind: Config
clusters:
- name: test
  cluster: {server: "https://%s", certificate-authority: %s/ca.crt}
users:
- name: user
  user: {%s}
contexts:
- name: test
  context: {cluster: test, user: user, namespace: %s}
current-context: test
`, controlAddress, a.dir, credentials, namespace)
	path := filepath.Join(a.dir, name+".kubeconfig")
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}
