// SPDX-License-Identifier: Apache-2.0

// Package listen opens the HTTP endpoints of this project: with limits for every client, with
// TLS and a token where these are set, and closed to web pages.
package listen

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strings"
	"time"

	"golang.org/x/net/netutil"
)

// Limits of a client.
const (
	maxConnections = 64
	maxOfAddress   = 16 // that are for addresses with fewer than these
	maxOfMachine   = 48 // and for loopback, which all users of the machine share
	maxHeader      = 16 << 10
	maxBody        = 4 << 20
	headerTimeout  = 5 * time.Second
	requestTimeout = time.Minute // to read it, and to answer: a profile of --pprof-addr takes half of it
	idleTimeout    = 30 * time.Second

	maxToken = 4 << 10 // bytes of a token's file
)

// Options protect an endpoint. The zero value serves plain HTTP to all that reach the address. The
// files are read again for each connection, or request, so that they can be replaced.
type Options struct {
	Cert, Key string // PEM files: serve TLS
	ClientCA  string // PEM file: clients need a certificate that one of these has signed
	Token     string // file: requests need the header `Authorization: Bearer TOKEN`
	Open      string // path that needs no token; "" for none

	// Warn receives what the operator should know while it serves, at most once a minute. It may be nil.
	Warn func(string)
}

// Protects reports whether a file is set.
func (o Options) Protects() bool {
	return o.Cert != "" || o.Key != "" || o.ClientCA != "" || o.Token != ""
}

// Check returns an error where the options contradict each other or a file cannot be used.
func (o Options) Check() error {
	if (o.Cert == "") != (o.Key == "") {
		return fmt.Errorf("TLS needs a certificate and its key")
	}
	if o.ClientCA != "" && o.Cert == "" {
		return fmt.Errorf("client certificates need TLS: a certificate and its key")
	}
	if o.Cert != "" {
		if _, err := o.config(); err != nil {
			return err
		}
	}
	if o.Token != "" {
		if _, err := readToken(o.Token); err != nil {
			return err
		}
	}
	return nil
}

// config is the TLS configuration by the files as they are now.
func (o Options) config() (*tls.Config, error) {
	pair, err := tls.LoadX509KeyPair(o.Cert, o.Key)
	if err != nil {
		return nil, fmt.Errorf("read the certificate and its key: %w", err)
	}
	c := &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair}}
	if o.ClientCA != "" {
		if c.ClientCAs, err = readPool(o.ClientCA); err != nil {
			return nil, err
		}
		c.ClientAuth = tls.RequireAndVerifyClientCert
	}
	return c, nil
}

// readPool returns the certificates of a PEM file.
func readPool(file string) (*x509.CertPool, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("read the certificates of clients: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("read the certificates of clients: %s has none", file)
	}
	return pool, nil
}

// Server is an open endpoint.
type Server struct {
	http *http.Server
	addr net.Addr
	done chan struct{}
	err  error // why it ended, valid once done is closed
}

// Serve answers at the address, HOST:PORT, until Close. Without a host it listens on all addresses
// of the machine. At a loopback address, requests for another host are refused: the names of web
// sites can be made to resolve to it.
func Serve(address string, handler http.Handler, o Options) (*Server, error) {
	if err := o.Check(); err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, err
	}
	if o.Warn == nil {
		o.Warn = func(string) {}
	}
	s := &Server{addr: l.Addr(), done: make(chan struct{})}
	handler = http.MaxBytesHandler(http.NewCrossOriginProtection().Handler(handler), maxBody)
	if o.Token != "" {
		handler = withToken(handler, o)
	}
	if at, ok := l.Addr().(*net.TCPAddr); ok && at.IP.IsLoopback() {
		handler = forLoopback(handler)
	}
	// A client that fails to connect learns why; it must not be able to fill our log.
	s.http = &http.Server{Handler: handler, ErrorLog: log.New(io.Discard, "", 0), ReadHeaderTimeout: headerTimeout, ReadTimeout: requestTimeout,
		WriteTimeout: requestTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeader}
	l = netutil.LimitListener(newShares(l, o.Warn), maxConnections)
	if o.Cert != "" {
		// HTTP/2, too, is negotiated in the configuration of the connection.
		l = tls.NewListener(l, &tls.Config{MinVersion: tls.VersionTLS12,
			GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return o.config() }})
	}
	go func() {
		defer close(s.done)
		s.err = s.http.Serve(l)
	}()
	return s, nil
}

// Addr is where it listens.
func (s *Server) Addr() net.Addr { return s.addr }

// Wait returns when the server has ended: http.ErrServerClosed after Close or Shutdown.
func (s *Server) Wait() error {
	<-s.done
	return s.err
}

// Close ends all connections.
func (s *Server) Close() error {
	err := s.http.Close()
	<-s.done
	return err
}

// Shutdown lets requests end, until ctx is done.
func (s *Server) Shutdown(ctx context.Context) error {
	if s.http.Shutdown(ctx) != nil {
		return s.Close()
	}
	<-s.done
	return nil
}

// forLoopback refuses requests that name a host beyond this machine.
func forLoopback(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !IsLoopback(r.Host) {
			http.Error(w, "this address serves this machine only: ask for it as localhost or by its address", http.StatusMisdirectedRequest)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// IsLoopback reports whether a host, with or without a port, is a loopback address or localhost.
func IsLoopback(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	if strings.EqualFold(host, "localhost") {
		return true
	}
	address, err := netip.ParseAddr(host)
	return err == nil && address.IsLoopback()
}

// withToken refuses requests without the token in the file, except for the open path.
func withToken(next http.Handler, o Options) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if o.Open != "" && r.URL.Path == o.Open {
			next.ServeHTTP(w, r)
			return
		}
		want, err := readToken(o.Token)
		if err != nil {
			http.Error(w, "the token of this endpoint cannot be read", http.StatusInternalServerError)
			return
		}
		scheme, got, _ := strings.Cut(r.Header.Get("Authorization"), " ")
		a, b := sha256.Sum256([]byte(want)), sha256.Sum256([]byte(strings.TrimSpace(got)))
		if !strings.EqualFold(scheme, "Bearer") || subtle.ConstantTimeCompare(a[:], b[:]) != 1 {
			w.Header().Set("WWW-Authenticate", "Bearer")
			w.Header().Set("Connection", "close") // who has no token takes no room
			http.Error(w, "want the header Authorization: Bearer, with the token of this endpoint", http.StatusUnauthorized)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// readToken is the text of a file without surrounding white space.
func readToken(file string) (string, error) {
	f, err := os.Open(file)
	if err != nil {
		return "", fmt.Errorf("read the token: %w", err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxToken+1))
	if err != nil {
		return "", fmt.Errorf("read the token: %w", err)
	}
	token := strings.TrimSpace(string(text))
	if token == "" || len(text) > maxToken {
		return "", fmt.Errorf("read the token: %s has %d bytes, want 1 to %d", file, len(text), maxToken)
	}
	return token, nil
}
