// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"io"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/internal/export/listen"
	"github.com/gpu-gadgets/gpu-gadgets/internal/profile"
)

// get returns the status and the body of one path.
func get(t *testing.T, p *publisher, path string) (int, string) {
	t.Helper()
	response, err := http.Get("http://" + p.addr.String() + path)
	require.NoError(t, err)
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	return response.StatusCode, string(body)
}

func TestHealthLeavesEndedProcessesForTheNextScrape(t *testing.T) {
	store := &Store{}
	run := store.NewRun("cuda_alloc")
	p := serve(t, settings{listen: "127.0.0.1:0"}, &content{store: store})
	rows := []profile.Row{held(proc(1, 10), "device", 0, 100, 40)}
	run.Rows(rows, over())
	require.NotEmpty(t, having(scrape(t, p.addr), "gpu_memory_"))
	run.Rows(rows, over(1))
	for range 3 {
		status, body := get(t, p, "/healthz")
		require.Equal(t, http.StatusOK, status)
		require.Equal(t, "ok", body)
	}
	require.Len(t, having(scrape(t, p.addr), "gpu_memory_implicitly_freed_bytes_total"), 1)
	require.Empty(t, having(scrape(t, p.addr), "gpu_memory_"))
}

func TestHealthNeedsNoRights(t *testing.T) {
	token := filepath.Join(t.TempDir(), "token")
	require.NoError(t, os.WriteFile(token, []byte("secret"), 0o600))
	refuse := func(prometheus.Gatherer) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) })
	}
	for name, s := range map[string]settings{
		"a token":          {protect: listen.Options{Token: token}},
		"rights by reader": {handler: refuse},
	} {
		s.listen = "127.0.0.1:0"
		p := serve(t, s, &content{store: &Store{}})
		status, body := get(t, p, "/healthz")
		require.Equal(t, http.StatusOK, status, name)
		require.Equal(t, "ok", body, name)
		for _, path := range []string{"/metrics", "/healthz/../metrics", "//metrics"} {
			status, _ = get(t, p, path)
			require.Equal(t, http.StatusUnauthorized, status, "%s: %s", name, path)
		}
	}
}
