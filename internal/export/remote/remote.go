// SPDX-License-Identifier: Apache-2.0

// Package remote connects exporters to a server: its address, the certificates to trust
// and our credentials. Secrets are read from files, again for every request so that they
// can be rotated, or from the environment; never from the command line, which every user
// of a machine can read.
package remote

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
)

// maxSecret bounds a file that is read as a secret; it could be any file.
const maxSecret = 64 << 10

// Config is the user's configuration.
type Config struct {
	// URL has the scheme http or https.
	URL string
	// CAFile has the certificates to trust instead of the system's, in PEM.
	CAFile string
	// User is used with a password from PasswordFile, or Password.
	User, PasswordFile, Password string
	// TokenFile, or Token, is sent as a bearer token.
	TokenFile, Token string
	// HeadersFile has further headers, "Name: value" in each line.
	HeadersFile string
	// Header is sent as it is.
	Header http.Header
}

// Endpoint is a server. It is safe for concurrent use.
type Endpoint struct {
	// URL is without a slash at its end.
	URL *url.URL
	cfg Config
	tls *tls.Config
}

// New checks everything that can be checked without the server. Errors name no
// secrets; the caller puts the parameter's name before them.
func New(cfg Config) (*Endpoint, error) {
	u, err := url.Parse(cfg.URL)
	if err != nil {
		var parse *url.Error
		if errors.As(err, &parse) {
			err = parse.Err // without the text, which may have a password in it
		}
		return nil, fmt.Errorf("want http://HOST[:PORT] or https://HOST[:PORT]: %w", err)
	}
	switch {
	case u.User != nil:
		return nil, errors.New("a user or password in the URL can be read by every user of this machine: use the parameters instead")
	case u.Scheme != "http" && u.Scheme != "https":
		return nil, fmt.Errorf("want http://HOST[:PORT] or https://HOST[:PORT], not %q", cfg.URL)
	case u.Hostname() == "":
		return nil, fmt.Errorf("no host in %q", cfg.URL)
	case u.RawQuery != "" || u.Fragment != "":
		return nil, fmt.Errorf("no query is possible in %q", cfg.URL)
	}
	u.Path = strings.TrimRight(u.Path, "/")
	e := &Endpoint{URL: u, cfg: cfg, tls: &tls.Config{MinVersion: tls.VersionTLS12}}
	hasUser := cfg.User != "" || cfg.PasswordFile != "" || cfg.Password != ""
	switch {
	case hasUser && (cfg.User == "" || cfg.PasswordFile == "" && cfg.Password == ""):
		return nil, errors.New("a user needs a password, and a password a user")
	case hasUser && (cfg.TokenFile != "" || cfg.Token != ""):
		return nil, errors.New("either a user or a token, not both")
	case cfg.CAFile != "" && u.Scheme != "https":
		return nil, errors.New("a CA file needs a URL with https")
	}
	if cfg.CAFile != "" {
		pem, err := os.ReadFile(cfg.CAFile)
		if err != nil {
			return nil, err
		}
		e.tls.RootCAs = x509.NewCertPool()
		if !e.tls.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("no certificate in %s", cfg.CAFile)
		}
	}
	if _, err := e.Header(); err != nil {
		return nil, err
	}
	return e, nil
}

// SendsSecretsInClear reports whether credentials are sent without TLS.
func (e *Endpoint) SendsSecretsInClear() bool {
	if e.URL.Scheme == "https" || e.cfg.User == "" && e.cfg.TokenFile == "" && e.cfg.Token == "" && e.cfg.HeadersFile == "" {
		return false
	}
	host := e.URL.Hostname()
	ip := net.ParseIP(host)
	return host != "localhost" && (ip == nil || !ip.IsLoopback())
}

// TLS is nil for http.
func (e *Endpoint) TLS() *tls.Config {
	if e.URL.Scheme != "https" {
		return nil
	}
	return e.tls.Clone()
}

// Header returns the current headers of requests.
func (e *Endpoint) Header() (http.Header, error) {
	h := e.cfg.Header.Clone()
	if h == nil {
		h = http.Header{}
	}
	if err := e.addFile(h); err != nil {
		return nil, err
	}
	password, err := secret(e.cfg.PasswordFile, e.cfg.Password)
	if err != nil {
		return nil, err
	}
	token, err := secret(e.cfg.TokenFile, e.cfg.Token)
	if err != nil {
		return nil, err
	}
	switch {
	case password != "":
		h.Set("Authorization", "Basic "+base64.StdEncoding.EncodeToString([]byte(e.cfg.User+":"+password)))
	case token != "":
		h.Set("Authorization", "Bearer "+token)
	}
	return h, nil
}

func (e *Endpoint) addFile(h http.Header) error {
	if e.cfg.HeadersFile == "" {
		return nil
	}
	content, err := readSecret(e.cfg.HeadersFile)
	if err != nil {
		return err
	}
	n := 0
	for line := range strings.Lines(content) {
		n++
		if line = strings.TrimSpace(line); line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		name, value, ok := strings.Cut(line, ":")
		name, value = strings.TrimSpace(name), strings.TrimSpace(value)
		if !ok || !isToken(name) || !Printable(value) {
			return fmt.Errorf("%s, line %d: want \"Name: value\"", e.cfg.HeadersFile, n)
		}
		h.Add(name, value)
	}
	return nil
}

// secret is the file's content, or else the value.
func secret(file, value string) (string, error) {
	if file == "" {
		return value, nil
	}
	content, err := readSecret(file)
	if err != nil {
		return "", err
	}
	s := strings.TrimSpace(content)
	if s == "" || !Printable(s) {
		return "", fmt.Errorf("%s is empty, or not one line of text", file)
	}
	return s, nil
}

func readSecret(file string) (string, error) {
	f, err := os.Open(file)
	if err != nil {
		return "", err
	}
	defer f.Close()
	content, err := io.ReadAll(io.LimitReader(f, maxSecret+1))
	if err != nil {
		return "", err
	}
	if len(content) > maxSecret {
		return "", fmt.Errorf("%s is longer than %d bytes", file, maxSecret)
	}
	return string(content), nil
}

// Printable reports whether a value is safe in a header: it must not end the header.
func Printable(s string) bool {
	for _, c := range []byte(s) {
		if c < ' ' && c != '\t' || c == 0x7f {
			return false
		}
	}
	return true
}

// isToken reports whether a header's name is valid (RFC 9110, section 5.6.2).
func isToken(s string) bool {
	for _, c := range []byte(s) {
		if !strings.ContainsRune("!#$%&'*+-.^_`|~", rune(c)) &&
			(c < '0' || c > '9') && (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') {
			return false
		}
	}
	return s != ""
}

// Client sends the headers with every request. It follows no redirects, which would send
// the secrets elsewhere.
func (e *Endpoint) Client() *http.Client {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	if t := e.TLS(); t != nil {
		transport.TLSClientConfig = t
	}
	return &http.Client{
		Transport:     roundTripper{e, transport},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

type roundTripper struct {
	endpoint *Endpoint
	next     http.RoundTripper
}

func (r roundTripper) RoundTrip(req *http.Request) (*http.Response, error) {
	header, err := r.endpoint.Header()
	if err != nil {
		return nil, err
	}
	req = req.Clone(req.Context())
	for name, values := range header {
		req.Header[name] = values
	}
	return r.next.RoundTrip(req)
}

// CloseIdleConnections is called by http.Client.
func (r roundTripper) CloseIdleConnections() {
	if t, ok := r.next.(*http.Transport); ok {
		t.CloseIdleConnections()
	}
}
