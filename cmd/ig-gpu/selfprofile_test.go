// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/pem"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// What ig-gpu sends of itself arrives before it ends, with our name, the node's and
// secrets, at a server whose certificate only the given file has.
func TestSelfProfileArrives(t *testing.T) {
	var mu sync.Mutex
	var names, tenants []string
	server := httptest.NewTLSServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		mu.Lock()
		defer mu.Unlock()
		names = append(names, r.URL.Path+" "+r.URL.Query().Get("name"))
		tenants = append(tenants, r.Header.Get("X-Scope-OrgID"))
	}))
	defer server.Close()
	empty := filepath.Join(t.TempDir(), "none")
	require.NoError(t, os.Mkdir(empty, 0o755))
	cmd, _, stderr := command(t, empty, "--self-profile", server.URL, "version")
	ca := filepath.Join(t.TempDir(), "ca.crt")
	require.NoError(t, os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}), 0o644))
	cmd.Env = append(cmd.Env, "PYROSCOPE_TENANT_ID=team", "PYROSCOPE_CA_FILE="+ca, "NODE_NAME=node-a")
	require.NoError(t, cmd.Run(), stderr.String())
	mu.Lock()
	defer mu.Unlock()
	require.NotEmpty(t, names)
	require.Regexp(t, `^/ingest ig-gpu\{.*node=node-a`, names[0])
	require.Equal(t, "team", tenants[0])
}

func TestSelfProfileToAWrongAddress(t *testing.T) {
	empty := t.TempDir()
	cmd, _, stderr := command(t, empty, "--self-profile", "pyroscope:4040", "version")
	require.Error(t, cmd.Run())
	require.Contains(t, stderr.String(), "Error: --self-profile: want http://HOST[:PORT]")
	// No server listens: the command works all the same.
	cmd, _, stderr = command(t, empty, "--self-profile", "http://127.0.0.1:1", "version")
	require.NoError(t, cmd.Run(), stderr.String())
}
