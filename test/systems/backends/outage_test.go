// SPDX-License-Identifier: Apache-2.0

package backends

import (
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// hang is no status.
const hang = -1

// proxy is in front of a server and can answer instead of it.
type proxy struct {
	*httptest.Server
	status  atomic.Int32 // 0: the server answers
	refused atomic.Int64
}

func startProxy(t *testing.T, server string) *proxy {
	t.Helper()
	to, err := url.Parse(server)
	require.NoError(t, err)
	p, ended, pass := &proxy{}, make(chan struct{}), httputil.NewSingleHostReverseProxy(to)
	pass.ErrorHandler = func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) }
	p.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch s := p.status.Load(); s {
		case 0:
			pass.ServeHTTP(w, r)
		case hang:
			p.refused.Add(1)
			select {
			case <-r.Context().Done():
			case <-ended:
			}
		default:
			p.refused.Add(1)
			http.Error(w, "not now", int(s))
		}
	}))
	t.Cleanup(func() {
		close(ended)
		p.Close()
	})
	return p
}

// TestNothingIsLostWhilePyroscopeIsAway: a proxy before it answers 429, then 503, then
// nothing at all, and then the server itself is stopped and started again.
func TestNothingIsLostWhilePyroscopeIsAway(t *testing.T) {
	p := startPyroscope(t)
	before := startProxy(t, p.URL)
	w := startWorkload(t)
	g := trace(t, "cuda_alloc", w.PID(), "--pyroscope-url", before.URL, "--pyroscope-compat", "--export-interval", "1s", "--cluster", "away")
	for _, s := range []int32{http.StatusTooManyRequests, http.StatusServiceUnavailable, hang} {
		refused := before.refused.Load()
		before.status.Store(s)
		if s == http.StatusTooManyRequests {
			w.Say("go")
			w.wait(t, "holding")
		}
		require.Eventually(t, func() bool { return before.refused.Load() > refused }, waitLimit, 10*time.Millisecond, s)
		time.Sleep(2 * time.Second)
	}
	before.status.Store(0)
	p.stop(t)
	rows := w.truth(t)
	time.Sleep(5 * time.Second)
	p.start(t)
	time.Sleep(3 * time.Second)
	g.end(t)
	require.Contains(t, g.stderr.String(), "Pyroscope did not accept data, which is kept and retried")
	p.require(t, `{cluster="away"}`, rows, columns(false), false)
	w.Say("end")
	w.wait(t, "done")
}
