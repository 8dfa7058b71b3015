// SPDX-License-Identifier: Apache-2.0

package main

import (
	"crypto/tls"
	"crypto/x509"
	"net"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/internal/export/faults"
)

// TestCertificatesOfTheDaemonMayBeReplaced, its own and that which signs clients', while it runs.
func TestCertificatesOfTheDaemonMayBeReplaced(t *testing.T) {
	dir := t.TempDir()
	s := serving{address: "tcp://127.0.0.1:0", group: "0"}
	var authority *faults.Authority
	var client tls.Certificate
	renew := func() {
		authority = faults.NewAuthority(t)
		s.caFile = authority.File(t, dir)
		s.certFile, s.keyFile = authority.Issue(t, dir, "daemon")
		var err error
		client, err = tls.LoadX509KeyPair(authority.Issue(t, dir, "client"))
		require.NoError(t, err)
	}
	renew()
	var warnings []string
	server, err := s.credentials(func(text string) { warnings = append(warnings, text) })
	require.NoError(t, err)

	// connect presents a certificate, and returns how the daemon sees it.
	connect := func(with tls.Certificate) error {
		pool := x509.NewCertPool()
		pool.AddCert(authority.Certificate)
		ours, theirs := net.Pipe()
		defer ours.Close()
		require.NoError(t, ours.SetDeadline(time.Now().Add(10*time.Second))) // both may write an alert
		go func() {
			c := tls.Client(theirs, &tls.Config{MinVersion: tls.VersionTLS12, ServerName: "127.0.0.1", RootCAs: pool,
				Certificates: []tls.Certificate{with}, NextProtos: []string{"h2"}})
			if c.Handshake() != nil {
				_ = theirs.Close()
				return
			}
			_, _ = c.Read(make([]byte, 1))
		}()
		_, _, err := server.ServerHandshake(ours)
		return err
	}
	require.NoError(t, connect(client))
	former := client
	renew()
	require.NoError(t, connect(client))
	require.ErrorContains(t, connect(former), "unknown authority")

	require.Empty(t, warnings)
	require.NoError(t, os.WriteFile(s.caFile, []byte("half"), 0o600))
	require.NoError(t, connect(client), "with what was read before")
	require.NoError(t, os.Remove(s.keyFile))
	require.NoError(t, connect(client))
	require.ErrorContains(t, connect(former), "unknown authority")
	require.Len(t, warnings, 1, "at most one per minute")
	require.Contains(t, warnings[0], "the certificates that were read before are used")

	s.keyFile = dir + "/absent"
	_, _, err = s.parse()
	require.ErrorContains(t, err, "--tls-cert-file")
}
