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

// TestNothingIsLostWhilePyroscopeIsAway: a proxy before it answers 429, then 503, then
// nothing at all, and then the server itself is stopped and started again.
func TestNothingIsLostWhilePyroscopeIsAway(t *testing.T) {
	p := startPyroscope(t)
	to, err := url.Parse(p.URL)
	require.NoError(t, err)
	var status atomic.Int32
	var refused atomic.Int64
	ended := make(chan struct{})
	pass := httputil.NewSingleHostReverseProxy(to)
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch s := status.Load(); s {
		case 0:
			pass.ServeHTTP(w, r)
		case hang:
			refused.Add(1)
			select {
			case <-r.Context().Done():
			case <-ended:
			}
		default:
			refused.Add(1)
			http.Error(w, "not now", int(s))
		}
	}))
	defer proxy.Close()
	defer close(ended)

	w := startWorkload(t)
	g := trace(t, "cuda_alloc", w.cmd.Process.Pid, "--pyroscope-url", proxy.URL, "--pyroscope-compat", "--export-interval", "1s", "--cluster", "away")
	for _, s := range []int32{http.StatusTooManyRequests, http.StatusServiceUnavailable, hang} {
		before := refused.Load()
		status.Store(s)
		if s == http.StatusTooManyRequests {
			w.say(t, "go")
			w.wait(t, "holding")
		}
		require.Eventually(t, func() bool { return refused.Load() >= before+1 }, patience, 10*time.Millisecond, s)
		time.Sleep(2 * time.Second)
	}
	status.Store(0)
	p.stop(t)
	rows := w.truth(t)
	time.Sleep(5 * time.Second)
	p.start(t)
	time.Sleep(3 * time.Second)
	g.end(t)
	require.Contains(t, g.stderr.String(), "Pyroscope did not take data, which is kept and sent again")
	p.require(t, `{cluster="away"}`, rows, columns(false), false)
	w.say(t, "end")
	w.wait(t, "done")
}
