// SPDX-License-Identifier: Apache-2.0

package remote

import (
	"bytes"
	"net/http"
	"sync"
)

// Client sends the headers with every request. It follows no redirects, which would send
// the secrets elsewhere.
func (e *Endpoint) Client() *http.Client {
	return &http.Client{
		Transport:     &roundTripper{endpoint: e},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// roundTripper has other connections when the CA file is another.
type roundTripper struct {
	endpoint *Endpoint

	mu          sync.Mutex
	authorities []byte
	next        *http.Transport // by them; nil before the first request
}

func (r *roundTripper) RoundTrip(req *http.Request) (*http.Response, error) {
	header, err := r.endpoint.Header()
	if err != nil {
		return nil, err
	}
	transport, err := r.transport()
	if err != nil {
		return nil, err
	}
	req = req.Clone(req.Context())
	for name, values := range header {
		req.Header[name] = values
	}
	return transport.RoundTrip(req)
}

// transport is that of the CA file as it is now.
func (r *roundTripper) transport() (*http.Transport, error) {
	authorities, err := r.endpoint.authorities()
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.next != nil && bytes.Equal(authorities, r.authorities) {
		return r.next, nil
	}
	config, err := r.endpoint.trusting(authorities)
	if err != nil {
		return nil, err
	}
	if r.next != nil {
		r.next.CloseIdleConnections()
	}
	r.next, r.authorities = http.DefaultTransport.(*http.Transport).Clone(), authorities
	r.next.TLSClientConfig = config
	return r.next, nil
}

// CloseIdleConnections is called by http.Client.
func (r *roundTripper) CloseIdleConnections() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.next != nil {
		r.next.CloseIdleConnections()
	}
}
