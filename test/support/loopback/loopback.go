// SPDX-License-Identifier: Apache-2.0

// Package loopback is for tests of servers on 127.0.0.1: a free address, and scrapes of
// metrics.
package loopback

import (
	"bufio"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// Serve serves one path until the test ends, and returns the server's URL.
func Serve(t testing.TB, path string, handler http.Handler) string {
	t.Helper()
	mux := http.NewServeMux()
	mux.Handle(path, handler)
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	return server.URL
}

// Ports that FreeAddress gives are below those that Linux chooses for connections and for port 0
// (net.ipv4.ip_local_port_range), which may take a free one before it is listened at.
const firstPort, lastPort = 10240, 32767

var (
	mu    sync.Mutex
	given = map[int]bool{}
)

// FreeAddress returns 127.0.0.1 with a port that is not in use, and gives none twice.
func FreeAddress(t testing.TB) string {
	t.Helper()
	mu.Lock()
	defer mu.Unlock()
	for range 100 {
		port := firstPort + rand.IntN(lastPort-firstPort+1)
		address := net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
		listener, err := net.Listen("tcp", address)
		if err != nil {
			continue
		}
		wasGiven := given[port]
		given[port] = true
		require.NoError(t, listener.Close())
		if !wasGiven {
			return address
		}
	}
	require.Fail(t, "no free port")
	return ""
}

// FreePort is the port of a FreeAddress.
func FreePort(t testing.TB) int {
	t.Helper()
	_, port, err := net.SplitHostPort(FreeAddress(t))
	require.NoError(t, err)
	number, err := strconv.Atoi(port)
	require.NoError(t, err)
	return number
}

// Series is one of a scrape.
type Series struct {
	Name   string
	Labels string // as in the text, name="value", without braces
	Value  float64
}

// Has reports whether the series has all labels, each as name="value".
func (s *Series) Has(labels ...string) bool {
	return !slices.ContainsFunc(labels, func(l string) bool { return !strings.Contains(s.Labels, l) })
}

// Scrape returns all series with labels of a server of metrics. It returns an error if
// there is no listener (yet); text in another format fails the test.
func Scrape(t testing.TB, address string) (all []Series, err error) {
	t.Helper()
	response, err := http.Get("http://" + address + "/metrics")
	if err != nil {
		return nil, fmt.Errorf("scrape metrics: %w", err)
	}
	defer response.Body.Close()
	if all, err = Parse(t, response.Body); err != nil {
		return nil, fmt.Errorf("read metrics: %w", err)
	}
	return all, nil
}

// Parse returns all series with labels of Prometheus's text format. It returns an error if they cannot
// be read; text in another format fails the test.
func Parse(t testing.TB, from io.Reader) (all []Series, err error) {
	t.Helper()
	lines := bufio.NewScanner(from)
	for lines.Scan() {
		// One series per line, and the value after the last blank.
		name, rest, ok := strings.Cut(lines.Text(), "{")
		if !ok || strings.HasPrefix(name, "#") {
			continue
		}
		end := strings.LastIndex(rest, "} ")
		require.GreaterOrEqual(t, end, 0, lines.Text())
		value, err := strconv.ParseFloat(rest[end+2:], 64)
		require.NoError(t, err, lines.Text())
		all = append(all, Series{name, rest[:end], value})
	}
	return all, lines.Err()
}

// Sum scrapes, and adds up a metric's series that have the labels. False: there is none,
// or no listener.
func Sum(t testing.TB, address, metric string, labels ...string) (sum float64, found bool) {
	t.Helper()
	all, _ := Scrape(t, address)
	for _, s := range all {
		if s.Name == metric && s.Has(labels...) {
			sum, found = sum+s.Value, true
		}
	}
	return sum, found
}
