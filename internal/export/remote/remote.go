// SPDX-License-Identifier: Apache-2.0

// Package remote connects exporters to a server: its address, the certificates to trust
// and our credentials. Certificates and secrets are read from files, again for every request so
// that they can be rotated, or secrets from the environment; never from the command line, which every user
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
	"sync"

	"github.com/gpu-gadgets/gpu-gadgets/internal/throttle"
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

	mu       sync.Mutex
	trusted  []byte // the last text of the CA file that could be used
	warn     func(string)
	unusable throttle.Throttle
}

// WarnWith has warnings go to a function, at most one a minute: while the CA file cannot be used, the certificates that it had
// before are trusted.
func (e *Endpoint) WarnWith(warn func(string)) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.warn = warn
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
	e := &Endpoint{URL: u, cfg: cfg}
	hasUser := cfg.User != "" || cfg.PasswordFile != "" || cfg.Password != ""
	switch {
	case hasUser && (cfg.User == "" || cfg.PasswordFile == "" && cfg.Password == ""):
		return nil, errors.New("a user needs a password, and a password a user")
	case hasUser && (cfg.TokenFile != "" || cfg.Token != ""):
		return nil, errors.New("either a user or a token, not both")
	case cfg.CAFile != "" && u.Scheme != "https":
		return nil, errors.New("a CA file needs a URL with https")
	}
	if _, err := e.TLS(); err != nil {
		return nil, err
	}
	if _, err := e.Header(); err != nil {
		return nil, err
	}
	return e, nil
}

// SendsSecretsInClear reports whether credentials are sent without TLS.
func (e *Endpoint) SendsSecretsInClear() bool {
	if e.IsTLS() || e.cfg.User == "" && e.cfg.TokenFile == "" && e.cfg.Token == "" && e.cfg.HeadersFile == "" {
		return false
	}
	host := e.URL.Hostname()
	ip := net.ParseIP(host)
	return host != "localhost" && (ip == nil || !ip.IsLoopback())
}

// IsTLS reports whether the URL has the scheme https.
func (e *Endpoint) IsTLS() bool { return e.URL.Scheme == "https" }

// TLS is the configuration of a connection by the CA file as it is now.
func (e *Endpoint) TLS() (*tls.Config, error) {
	pem, err := e.authorities()
	if err != nil {
		return nil, err
	}
	return e.trusting(pem)
}

// authorities is the text of the CA file, or what it was before if it cannot be used now; nil: the system's
// certificates are trusted.
func (e *Endpoint) authorities() ([]byte, error) {
	if e.cfg.CAFile == "" {
		return nil, nil
	}
	pem, err := os.ReadFile(e.cfg.CAFile)
	if err == nil {
		_, err = e.trusting(pem)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if err == nil {
		e.trusted = pem
		return pem, nil
	}
	if e.trusted == nil {
		return nil, err
	}
	e.unusable.Warn(e.warn, "the certificates that were read before are trusted: %v", err)
	return e.trusted, nil
}

// trusting is the configuration by a text of the CA file.
func (e *Endpoint) trusting(pem []byte) (*tls.Config, error) {
	c := &tls.Config{MinVersion: tls.VersionTLS12}
	if e.cfg.CAFile == "" {
		return c, nil
	}
	c.RootCAs = x509.NewCertPool()
	if !c.RootCAs.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("no certificate in %s", e.cfg.CAFile)
	}
	return c, nil
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
