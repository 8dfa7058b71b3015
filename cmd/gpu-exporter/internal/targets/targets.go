// SPDX-License-Identifier: Apache-2.0

// Package targets finds the daemons to collect from: a list of addresses, or the current
// gadget pods of a Kubernetes cluster.
package targets

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"strings"
	"time"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/gpu-gadgets/gpu-gadgets/internal/export/remote"
)

// Target is one daemon.
type Target struct {
	// Key distinguishes it from all others, including an earlier daemon on the same node.
	Key string
	// Node is its name in profiles and metrics.
	Node string
	// Dial connects to the daemon.
	Dial        func(context.Context) (net.Conn, error)
	Credentials credentials.TransportCredentials
	// Started is when the daemon's pod began; zero: not known.
	Started time.Time
}

// Source finds targets until ctx ends. changed receives all current ones,
// each time when that changes, by one goroutine at a time.
type Source interface {
	Watch(ctx context.Context, changed func([]Target)) error
}

// List is targets that never change. Each of them may be away.
type List []Target

// Watch implements Source.
func (l List) Watch(ctx context.Context, changed func([]Target)) error {
	changed(l)
	<-ctx.Done()
	return nil
}

// TLS are the files of a client's identity; all or none of them are given. They are read again for each
// connection, so that they can be replaced.
type TLS struct {
	CAFile, CertFile, KeyFile string
}

func (t TLS) isSet() bool { return t != (TLS{}) }

// ParseAddresses reads addresses as Inspektor Gadget writes them: unix:///PATH or
// tcp://HOST:PORT, with NODE= before it where another name is wanted than the host's.
func ParseAddresses(texts []string, identity TLS) (List, error) {
	if identity.isSet() {
		if _, err := identity.config(); err != nil {
			return nil, err
		}
	}
	var all List
	seen := map[string]bool{}
	for _, text := range texts {
		t, err := parseAddress(text, identity)
		if err != nil {
			return nil, err
		}
		if seen[t.Key] {
			return nil, fmt.Errorf("address %s is given twice", text)
		}
		seen[t.Key] = true
		all = append(all, t)
	}
	return all, nil
}

func parseAddress(text string, identity TLS) (Target, error) {
	node, address, named := strings.Cut(text, "=")
	if !named {
		node, address = "", text
	}
	wrong := fmt.Errorf("%q is no address like unix:///var/run/ig/ig.socket, tcp://10.0.0.7:8080 or node-7=tcp://10.0.0.7:8080", text)
	u, err := url.Parse(address)
	if err != nil || named && node == "" {
		return Target{}, wrong
	}
	t := Target{Key: address, Node: node, Credentials: insecure.NewCredentials()}
	var where string
	switch {
	case u.Scheme == "unix" && u.Host == "" && u.Path != "":
		where = u.Path
		if t.Node == "" {
			t.Node, _ = os.Hostname() // a socket is on this machine
		}
	case u.Scheme == "tcp" && u.Hostname() != "" && u.Port() != "" && u.Path == "":
		where = u.Host
		if t.Node == "" {
			t.Node = u.Hostname()
		}
		if identity.isSet() {
			t.Credentials = remote.Credentials(func() (*tls.Config, error) {
				c, err := identity.config()
				if err == nil {
					c.ServerName = u.Hostname()
				}
				return c, err
			})
		}
	default:
		return Target{}, wrong
	}
	t.Dial = func(ctx context.Context) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, u.Scheme, where)
	}
	return t, nil
}

// config is the configuration by the files as they are now.
func (t TLS) config() (*tls.Config, error) {
	if t.CAFile == "" || t.CertFile == "" || t.KeyFile == "" {
		return nil, errors.New("TLS needs all of --tls-ca-file, --tls-cert-file and --tls-key-file")
	}
	pem, err := os.ReadFile(t.CAFile)
	if err != nil {
		return nil, fmt.Errorf("--tls-ca-file: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("--tls-ca-file: %s has no certificate in PEM", t.CAFile)
	}
	certificate, err := tls.LoadX509KeyPair(t.CertFile, t.KeyFile)
	if err != nil {
		return nil, fmt.Errorf("--tls-cert-file: %w", err)
	}
	return &tls.Config{RootCAs: pool, Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12}, nil
}
