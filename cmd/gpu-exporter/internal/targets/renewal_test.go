// SPDX-License-Identifier: Apache-2.0

package targets

import (
	"crypto/tls"
	"crypto/x509"
	"net"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/internal/export/faults"
)

// TestCertificatesOfDaemonsMayBeReplaced, ours and theirs, while the exporter runs.
func TestCertificatesOfDaemonsMayBeReplaced(t *testing.T) {
	dir := t.TempDir()
	var authority *faults.Authority
	var files TLS
	var daemonCert, daemonKey string
	renew := func() {
		authority = faults.NewAuthority(t)
		files.CAFile = authority.File(t, dir)
		files.CertFile, files.KeyFile = authority.Issue(t, dir, "exporter")
		daemonCert, daemonKey = authority.Issue(t, dir, "daemon")
	}
	renew()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer listener.Close()
	all, err := ParseAddresses([]string{"tcp://" + listener.Addr().String()}, files)
	require.NoError(t, err)

	connect := func() (client, daemon error) {
		pair, err := tls.LoadX509KeyPair(daemonCert, daemonKey)
		require.NoError(t, err)
		pool := x509.NewCertPool()
		pool.AddCert(authority.Certificate)
		ended := make(chan error)
		go func() {
			raw, err := listener.Accept()
			if err == nil {
				defer raw.Close()
				err = tls.Server(raw, &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair},
					ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: pool, NextProtos: []string{"h2"}}).Handshake()
			}
			ended <- err
		}()
		raw, err := all[0].Dial(t.Context())
		require.NoError(t, err)
		defer raw.Close()
		_, _, err = all[0].Credentials.ClientHandshake(t.Context(), listener.Addr().String(), raw)
		return err, <-ended
	}
	for range 2 {
		client, daemon := connect()
		require.NoError(t, client)
		require.NoError(t, daemon)
		renew()
	}

	_, err = ParseAddresses([]string{"tcp://a:1"}, TLS{CAFile: files.CAFile, CertFile: files.CertFile, KeyFile: dir + "/absent"})
	require.ErrorContains(t, err, "--tls-cert-file")
}
