// SPDX-License-Identifier: Apache-2.0

// Package faults is an HTTPS server that fails in the ways in which servers fail, for
// tests of the exporters.
package faults

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Fault is a way in which the server fails.
type Fault int32

const (
	// None means that it works.
	None Fault = iota
	// Busy answers 429, with Retry-After.
	Busy
	// Unavailable answers 503, as a proxy does: in HTML.
	Unavailable
	// Hang accepts the request and never answers.
	Hang
	// Expired presents an expired certificate.
	Expired
	// Reset closes each connection in the middle of a request.
	Reset
	// Unauthorized answers 401: the credentials were rotated on one side.
	Unauthorized
)

// Timeout is how long a request may take with this fault. On a busy machine a slow
// request must not be abandoned, or it is sent twice.
func (f Fault) Timeout() time.Duration {
	if f == Hang {
		return 3 * time.Second
	}
	return time.Minute
}

// Timeout bounds waits in tests.
const Timeout = time.Minute

// Faults are all but None, by name.
var Faults = map[string]Fault{
	"429": Busy, "503": Unavailable, "hang": Hang, "expired certificate": Expired, "reset": Reset, "401": Unauthorized,
}

// Server is a server whose certificate CAFile signs.
type Server struct {
	*httptest.Server
	// CAFile is the certificate to trust.
	CAFile string
	// Refused counts refused requests.
	Refused atomic.Int64

	fault          atomic.Int32
	valid, expired tls.Certificate
	stop           chan struct{}
}

// New starts a server that passes requests to handler while it does not fail.
func New(t testing.TB, handler http.Handler) *Server {
	t.Helper()
	s := &Server{stop: make(chan struct{})}
	var ca []byte
	ca, s.valid, s.expired = certificates(t)
	s.CAFile = filepath.Join(t.TempDir(), "ca.pem")
	require.NoError(t, os.WriteFile(s.CAFile, ca, 0o600))
	s.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { s.serve(w, r, handler) }))
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	// Not GetCertificate: httptest adds a certificate of its own, which comes first.
	s.TLS = &tls.Config{GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
		c := &tls.Config{NextProtos: []string{"h2", "http/1.1"}, Certificates: []tls.Certificate{s.valid}}
		if Fault(s.fault.Load()) == Expired {
			s.Refused.Add(1)
			c.Certificates[0] = s.expired
		}
		return c, nil
	}}
	s.EnableHTTP2 = true
	s.StartTLS()
	t.Cleanup(func() {
		close(s.stop)
		s.CloseClientConnections()
		s.Close()
	})
	return s
}

// Fail makes all further requests fail; None ends that. No request may be in progress
// when a failure begins.
func (s *Server) Fail(f Fault) {
	s.fault.Store(int32(f))
	if f != None {
		// Certificates are checked when a connection begins. Connections stay
		// open at the end of a failure: a request that arrived in between is
		// accepted, and without an answer it would be sent again.
		s.CloseClientConnections()
	}
}

func (s *Server) serve(w http.ResponseWriter, r *http.Request, next http.Handler) {
	f := Fault(s.fault.Load())
	if f != None {
		s.Refused.Add(1)
	}
	switch f {
	case None:
		next.ServeHTTP(w, r)
	case Busy:
		w.Header().Set("Retry-After", "0")
		http.Error(w, "too many", http.StatusTooManyRequests)
	case Unavailable:
		w.Header().Set("Content-Type", "text/html")
		w.WriteHeader(http.StatusServiceUnavailable)
		_, _ = io.WriteString(w, "<html><h1>503 Service Temporarily Unavailable</h1></html>")
	case Hang:
		select {
		case <-s.stop:
		case <-r.Context().Done():
		}
	case Unauthorized:
		http.Error(w, "who are you", http.StatusUnauthorized)
	default:
		panic(http.ErrAbortHandler)
	}
}

// certificates returns a CA in PEM, and a valid and an expired certificate for 127.0.0.1.
func certificates(t testing.TB) (ca []byte, valid, expired tls.Certificate) {
	t.Helper()
	now := time.Now()
	issue := func(name string, parent *x509.Certificate, parentKey *ecdsa.PrivateKey, until time.Time) (*x509.Certificate, *ecdsa.PrivateKey) {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		require.NoError(t, err)
		c := &x509.Certificate{
			SerialNumber: big.NewInt(now.UnixNano()), Subject: pkix.Name{CommonName: name},
			NotBefore: now.Add(-48 * time.Hour), NotAfter: until,
			IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, BasicConstraintsValid: true,
			IsCA: parent == nil, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		}
		if parent == nil {
			parent, parentKey = c, key
		}
		der, err := x509.CreateCertificate(rand.Reader, c, parent, &key.PublicKey, parentKey)
		require.NoError(t, err)
		c, err = x509.ParseCertificate(der)
		require.NoError(t, err)
		return c, key
	}
	root, rootKey := issue("CA", nil, nil, now.Add(time.Hour))
	pair := func(until time.Time) tls.Certificate {
		c, key := issue("server", root, rootKey, until)
		return tls.Certificate{Certificate: [][]byte{c.Raw}, PrivateKey: key}
	}
	ca = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: root.Raw})
	return ca, pair(now.Add(time.Hour)), pair(now.Add(-24 * time.Hour))
}
