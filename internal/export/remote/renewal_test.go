// SPDX-License-Identifier: Apache-2.0

package remote

import (
	"crypto/tls"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/internal/export/faults"
)

// renewable is a server with a certificate that is read for each connection.
func renewable(t *testing.T, cert, key string) *httptest.Server {
	t.Helper()
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.TLS = &tls.Config{MinVersion: tls.VersionTLS12, GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
		pair, err := tls.LoadX509KeyPair(cert, key)
		return &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair}, NextProtos: []string{"h2", "http/1.1"}}, err
	}}
	s.EnableHTTP2 = true
	s.StartTLS()
	t.Cleanup(s.Close)
	return s
}

// TestAnAuthorityMayBeReplaced while the program runs, for HTTP and for gRPC.
func TestAnAuthorityMayBeReplaced(t *testing.T) {
	dir := t.TempDir()
	first, second := faults.NewAuthority(t), faults.NewAuthority(t)
	cert, key := first.Issue(t, dir, "server")
	server := renewable(t, cert, key)
	e, err := New(Config{URL: server.URL, CAFile: first.File(t, dir)})
	require.NoError(t, err)
	var warnings []string
	e.WarnWith(func(text string) { warnings = append(warnings, text) })
	client, secure := e.Client(), Credentials(e.TLS).Clone()
	get := func() error {
		response, err := client.Get(server.URL)
		if err == nil {
			require.Equal(t, 2, response.ProtoMajor)
			err = response.Body.Close()
		}
		return err
	}
	handshake := func() error {
		raw, err := net.Dial("tcp", e.URL.Host)
		require.NoError(t, err)
		defer func() { _ = raw.Close() }()
		_, _, err = secure.ClientHandshake(t.Context(), e.URL.Host, raw)
		return err
	}
	require.NoError(t, get())
	require.NoError(t, handshake())

	second.Issue(t, dir, "server")
	client.CloseIdleConnections()
	require.ErrorContains(t, get(), "unknown authority")
	require.ErrorContains(t, handshake(), "unknown authority")
	second.File(t, dir)
	require.NoError(t, get())
	require.NoError(t, handshake())

	// While the file cannot be used, what it had is trusted.
	require.Empty(t, warnings)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "ca.pem"), []byte("half"), 0o600))
	require.NoError(t, get())
	client.CloseIdleConnections()
	require.NoError(t, get())
	require.NoError(t, handshake())
	require.NoError(t, os.Remove(filepath.Join(dir, "ca.pem")))
	require.NoError(t, get())
	require.NoError(t, handshake())
	require.Len(t, warnings, 1, "at most one per minute")
	require.Contains(t, warnings[0], "the certificates that were read before are trusted: no certificate in")
	_, err = New(Config{URL: server.URL, CAFile: filepath.Join(dir, "ca.pem")})
	require.Error(t, err, "at the start")
	second.File(t, dir)
	require.NoError(t, get())
	client.CloseIdleConnections()
}
