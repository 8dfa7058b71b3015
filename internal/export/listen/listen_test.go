// SPDX-License-Identifier: Apache-2.0

package listen

import (
	"crypto/tls"
	"crypto/x509"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/internal/export/faults"
)

var hello = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
	_, err := io.Copy(io.Discard, r.Body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusRequestEntityTooLarge)
		return
	}
	_, _ = io.WriteString(w, "hello")
})

func serve(t *testing.T, address string, o Options) *Server {
	t.Helper()
	s, err := Serve(address, hello, o)
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, s.Close())
		require.ErrorIs(t, s.Wait(), http.ErrServerClosed)
	})
	return s
}

// status is that of a request with these headers; Host is one, too.
func status(t *testing.T, client *http.Client, method, url string, headers ...string) int {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, nil)
	require.NoError(t, err)
	for i := 0; i < len(headers); i += 2 {
		if headers[i] == "Host" {
			r.Host = headers[i+1]
		}
		r.Header.Set(headers[i], headers[i+1])
	}
	response, err := client.Do(r)
	require.NoError(t, err)
	require.NoError(t, response.Body.Close())
	return response.StatusCode
}

// TestAtLoopbackOtherHostsAreRefused: a page whose name was made to resolve to 127.0.0.1 is
// another host.
func TestAtLoopbackOtherHostsAreRefused(t *testing.T) {
	s := serve(t, "127.0.0.1:0", Options{})
	url := "http://" + s.Addr().String()
	_, port, err := net.SplitHostPort(s.Addr().String())
	require.NoError(t, err)
	for host, want := range map[string]int{
		"localhost:" + port: 200, "LocalHost": 200, "127.0.0.1": 200, "127.1.2.3:" + port: 200, "[::1]:" + port: 200, "[::1]": 200,
		"evil.example": 421, "evil.example:" + port: 421, "localhost.evil.example": 421, "10.0.0.1": 421,
		"127.0.0.1.evil.example": 421, "0.0.0.0": 421,
	} {
		require.Equal(t, want, status(t, http.DefaultClient, "GET", url, "Host", host), host)
	}
	all := serve(t, "0.0.0.0:0", Options{})
	_, port, err = net.SplitHostPort(all.Addr().String())
	require.NoError(t, err)
	require.Equal(t, 200, status(t, http.DefaultClient, "GET", "http://127.0.0.1:"+port, "Host", "node7.cluster.example"))
}

func TestPagesOfOtherSitesCannotPost(t *testing.T) {
	url := "http://" + serve(t, "127.0.0.1:0", Options{}).Addr().String()
	require.Equal(t, 200, status(t, http.DefaultClient, "POST", url))
	require.Equal(t, 403, status(t, http.DefaultClient, "POST", url, "Origin", "https://evil.example"))
	require.Equal(t, 403, status(t, http.DefaultClient, "POST", url, "Sec-Fetch-Site", "cross-site"))
}

func TestTokenIsNeededAndCanBeReplaced(t *testing.T) {
	file := filepath.Join(t.TempDir(), "token")
	require.NoError(t, os.WriteFile(file, []byte("first\n"), 0o600))
	url := "http://" + serve(t, "127.0.0.1:0", Options{Token: file}).Addr().String()
	require.Equal(t, 401, status(t, http.DefaultClient, "GET", url))
	for header, want := range map[string]int{
		"Bearer first": 200, "bearer first": 200, "Bearer firs": 401, "Bearer first2": 401, "Bearer": 401, "Basic first": 401,
	} {
		require.Equal(t, want, status(t, http.DefaultClient, "GET", url, "Authorization", header), header)
	}
	require.NoError(t, os.WriteFile(file, []byte("second"), 0o600))
	require.Equal(t, 401, status(t, http.DefaultClient, "GET", url, "Authorization", "Bearer first"))
	require.Equal(t, 200, status(t, http.DefaultClient, "GET", url, "Authorization", "Bearer second"))
	require.NoError(t, os.WriteFile(file, nil, 0o600)) // no token never means that none is needed
	require.Equal(t, 500, status(t, http.DefaultClient, "GET", url, "Authorization", "Bearer "))
}

func TestOpenPathNeedsNoToken(t *testing.T) {
	file := filepath.Join(t.TempDir(), "token")
	require.NoError(t, os.WriteFile(file, []byte("first"), 0o600))
	url := "http://" + serve(t, "127.0.0.1:0", Options{Token: file, Open: "/healthz"}).Addr().String()
	for path, want := range map[string]int{
		"/healthz": 200, "/healthz?a=b": 200, "": 401, "/": 401, "/healthz/": 401, "//healthz": 401, "/healthz/../metrics": 401, "/metrics?/healthz": 401,
	} {
		require.Equal(t, want, status(t, http.DefaultClient, "GET", url+path), path)
	}
}

func TestOptionsThatCannotWorkAreErrors(t *testing.T) {
	dir := t.TempDir()
	empty := filepath.Join(dir, "empty")
	require.NoError(t, os.WriteFile(empty, nil, 0o600))
	large := filepath.Join(dir, "large")
	require.NoError(t, os.WriteFile(large, []byte(strings.Repeat("x", maxToken+1)), 0o600))
	ca := faults.NewAuthority(t)
	cert, key := ca.Issue(t, dir, "server")
	for name, o := range map[string]Options{
		"TLS needs": {Cert: cert}, "a certificate and its key": {Key: key}, "client certificates need TLS": {ClientCA: ca.File(t, dir)},
		"has none": {Cert: cert, Key: key, ClientCA: empty}, "read the certificate": {Cert: empty, Key: key},
		"0 bytes": {Token: empty}, "4097 bytes": {Token: large}, "no such file": {Token: dir + "/absent"}, "is a directory": {Token: dir},
	} {
		_, err := Serve("127.0.0.1:0", hello, o)
		require.ErrorContains(t, err, name)
	}
	_, err := Serve("256.0.0.1:0", hello, Options{})
	require.Error(t, err)
}

func TestClientsNeedACertificateOfTheAuthority(t *testing.T) {
	dir := t.TempDir()
	ca, other := faults.NewAuthority(t), faults.NewAuthority(t)
	cert, key := ca.Issue(t, dir, "server")
	url := "https://" + serve(t, "127.0.0.1:0", Options{Cert: cert, Key: key, ClientCA: ca.File(t, dir)}).Addr().String()
	pool := x509.NewCertPool()
	pool.AddCert(ca.Certificate)
	get := func(certs ...tls.Certificate) error {
		transport := &http.Transport{TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: pool, Certificates: certs}}
		defer transport.CloseIdleConnections()
		response, err := (&http.Client{Transport: transport}).Get(url)
		if err == nil {
			require.Equal(t, 200, response.StatusCode)
			err = response.Body.Close()
		}
		return err
	}
	pair := func(a *faults.Authority, name string) tls.Certificate {
		c, k := a.Issue(t, dir, name)
		p, err := tls.LoadX509KeyPair(c, k)
		require.NoError(t, err)
		return p
	}
	require.Error(t, get())
	require.Error(t, get(pair(other, "stranger")))
	require.NoError(t, get(pair(ca, "scraper")))

	// A certificate that was replaced is served from the next connection on.
	before, _ := tls.LoadX509KeyPair(cert, key)
	ca.Issue(t, dir, "server")
	conn, err := tls.Dial("tcp", strings.TrimPrefix(url, "https://"), &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: pool, Certificates: []tls.Certificate{pair(ca, "again")}})
	require.NoError(t, err)
	require.NotEqual(t, before.Certificate[0], conn.ConnectionState().PeerCertificates[0].Raw)
	require.NoError(t, conn.Close())
}

// TestAClientCannotTakeMoreThanItsLimits of size and connections.
func TestAClientCannotTakeMoreThanItsLimits(t *testing.T) {
	s := serve(t, "127.0.0.1:0", Options{})
	url := "http://" + s.Addr().String()
	response, err := http.Post(url, "text/plain", io.LimitReader(zeroes{}, maxBody+1))
	if err == nil { // else it was cut off while it sent
		require.NoError(t, response.Body.Close())
		require.Equal(t, http.StatusRequestEntityTooLarge, response.StatusCode)
	}
	require.Equal(t, http.StatusRequestHeaderFieldsTooLarge, status(t, http.DefaultClient, "GET", url, "X-Long", strings.Repeat("x", 2*maxHeader)))
	http.DefaultClient.CloseIdleConnections()

	// All of loopback are one client. It has room for many, and leaves some to other addresses.
	var idle []net.Conn
	defer func() {
		for _, c := range idle {
			_ = c.Close()
		}
	}()
	for range maxOfMachine {
		c, err := net.Dial("tcp", s.Addr().String())
		require.NoError(t, err)
		idle = append(idle, c)
	}
	_, err = http.Get(url)
	require.Error(t, err, "there are %d connections already", maxOfMachine)
	require.NoError(t, idle[0].Close())
	require.Eventually(t, func() bool {
		response, err := http.Get(url)
		return err == nil && response.Body.Close() == nil && response.StatusCode == 200
	}, 4*time.Second, 10*time.Millisecond, "once the server has noticed")
}

// TestWithoutItsTokenAClientKeepsNoConnection that another one could have.
func TestWithoutItsTokenAClientKeepsNoConnection(t *testing.T) {
	file := filepath.Join(t.TempDir(), "token")
	require.NoError(t, os.WriteFile(file, []byte("first"), 0o600))
	response, err := http.Get("http://" + serve(t, "127.0.0.1:0", Options{Token: file}).Addr().String())
	require.NoError(t, err)
	require.NoError(t, response.Body.Close())
	require.Equal(t, 401, response.StatusCode)
	require.True(t, response.Close)
}

type zeroes struct{}

func (zeroes) Read(to []byte) (int, error) { clear(to); return len(to), nil }
