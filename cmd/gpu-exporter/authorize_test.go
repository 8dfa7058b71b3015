// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/gpu-gadgets/gpu-gadgets/internal/export/exporters"
	"github.com/gpu-gadgets/gpu-gadgets/internal/profile"
	"github.com/gpu-gadgets/gpu-gadgets/operators/send/metrics"
)

// apiServer reviews what the exporter sends it over HTTP. The user of token-X is X, who may see the
// namespace X; admin all of them.
func apiServer(t *testing.T, reviews *atomic.Int64) *httptest.Server {
	t.Helper()
	answer := func(w http.ResponseWriter, r *http.Request, review runtime.Object, decide func()) {
		reviews.Add(1)
		if r.Header.Get("Authorization") != "Bearer own-token" {
			http.Error(w, "the exporter has to use its own token", http.StatusForbidden)
			return
		}
		body, err := io.ReadAll(r.Body)
		if err == nil {
			_, _, err = scheme.Codecs.UniversalDeserializer().Decode(body, nil, review) // JSON or protobuf
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		decide()
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusCreated)
		_ = json.NewEncoder(w).Encode(review)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /apis/authentication.k8s.io/v1/tokenreviews", func(w http.ResponseWriter, r *http.Request) {
		var review authenticationv1.TokenReview
		answer(w, r, &review, func() {
			if m := regexp.MustCompile(`^token-(.+)$`).FindStringSubmatch(review.Spec.Token); m != nil {
				review.Status = authenticationv1.TokenReviewStatus{Authenticated: true, User: authenticationv1.UserInfo{Username: m[1]}}
			}
		})
	})
	mux.HandleFunc("POST /apis/authorization.k8s.io/v1/subjectaccessreviews", func(w http.ResponseWriter, r *http.Request) {
		var review authorizationv1.SubjectAccessReview
		answer(w, r, &review, func() {
			review.Status.Allowed = review.Spec.User == "admin" || review.Spec.User == review.Spec.ResourceAttributes.Namespace
		})
	})
	server := httptest.NewTLSServer(mux)
	t.Cleanup(server.Close)
	return server
}

func kubeconfig(t *testing.T, server *httptest.Server) string {
	t.Helper()
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	file := filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, os.WriteFile(file, fmt.Appendf(nil, `apiVersion: v1
kind: Config
current-context: test
contexts: [{name: test, context: {cluster: test, user: test}}]
clusters: [{name: test, cluster: {server: %q, certificate-authority-data: %s}}]
users: [{name: test, user: {token: own-token}}]
`, server.URL, base64.StdEncoding.EncodeToString(ca)), 0o600))
	return file
}

// authorized publishes a store as the flags define, until the end of the test. The returned function is
// a scrape with a token.
func authorized(t *testing.T, store *metrics.Store, server *httptest.Server, flags ...string) (scrape func(token string) (int, string)) {
	t.Helper()
	o, err := parse(append(flags, "--metrics-listen", "127.0.0.1:0", "--metrics-listen-authorize", "kubernetes", "--kubeconfig", kubeconfig(t, server)))
	require.NoError(t, err)
	values := o.params(metrics.PublishParams())
	authorizer, err := o.authorizer(values)
	require.NoError(t, err)
	at, end, err := metrics.Publish(values, metrics.Publication{Store: store, Queues: &exporters.Registry{}, Handler: authorizer})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, end(t.Context())) })
	return func(token string) (int, string) {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+at.String()+"/metrics", nil)
		require.NoError(t, err)
		r.Header.Set("Authorization", "Bearer "+token)
		response, err := http.DefaultClient.Do(r)
		require.NoError(t, err)
		defer response.Body.Close()
		body, err := io.ReadAll(response.Body)
		require.NoError(t, err)
		return response.StatusCode, string(body)
	}
}

// TestReadersGetTheSeriesOfTheirNamespaces: from the flags to the series, through an API server.
func TestReadersGetTheSeriesOfTheirNamespaces(t *testing.T) {
	var reviews atomic.Int64
	store := &metrics.Store{}
	run := store.NewRunOn("node1", "cuda_alloc")
	var rows []profile.Row
	for n, namespace := range []string{"team-a", "team-b", ""} {
		rows = append(rows, profile.Row{Kind: "device", Values: profile.Values{AllocBytes: 100, AllocObjects: 1, InuseBytes: 100, InuseObjects: 1},
			Process: profile.Process{ID: uint64(n + 1), PID: uint32(n + 1), Namespace: namespace, Pod: "pod", Node: "node1", Labels: "k8s_namespace=team-a"}})
	}
	run.Rows(rows, func(profile.Process) bool { return false })
	scrape := authorized(t, store, apiServer(t, &reviews), "--metrics-compat", "--metrics-cluster", "prod")
	// pids are those of the series; each process has one of its own.
	pids := func(body string) (all []string) {
		for _, m := range regexp.MustCompile(`\b(?:process_)?pid="(\d+)"`).FindAllStringSubmatch(body, -1) {
			if !slices.Contains(all, m[1]) {
				all = append(all, m[1])
			}
		}
		slices.Sort(all)
		return all
	}
	for token, want := range map[string][]string{"token-team-a": {"1"}, "token-team-b": {"2"}, "token-team-c": nil, "token-admin": {"1", "2", "3"}} {
		status, body := scrape(token)
		require.Equal(t, http.StatusOK, status, body)
		require.Equal(t, want, pids(body), token)
		require.Equal(t, len(want) > 0, regexp.MustCompile(`(?m)^gpu_memory_inuse_bytes\{`).MatchString(body), token)
		require.Equal(t, len(want) > 0, regexp.MustCompile(`(?m)^mem_alloc_bytes_total\{`).MatchString(body), token)
		require.Equal(t, token == "token-admin", regexp.MustCompile(`(?m)^gpu_gadgets_rows\{`).MatchString(body), token)
		require.Equal(t, token == "token-admin", regexp.MustCompile(`(?m)^process_cpu_seconds_total `).MatchString(body), token)
	}
	before := reviews.Load()
	_, _ = scrape("token-team-a")
	require.Equal(t, before, reviews.Load(), "answers are remembered")
	status, body := scrape("other")
	require.Equal(t, http.StatusUnauthorized, status)
	require.Empty(t, pids(body))
}

func TestTheAPIServerIsNeeded(t *testing.T) {
	server := apiServer(t, &atomic.Int64{})
	server.Close()
	status, _ := authorized(t, &metrics.Store{}, server)("token-admin")
	require.Equal(t, http.StatusServiceUnavailable, status)
}

func TestUnsafeCombinationsAreErrors(t *testing.T) {
	tls := []string{"--metrics-listen-cert=c.pem", "--metrics-listen-key=k.pem"}
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"--metrics-listen=:9464", "--metrics-listen-authorize=kubernetes"}, "in clear text"},
		{[]string{"--metrics-listen=0.0.0.0:9464", "--metrics-listen-authorize=kubernetes"}, "in clear text"},
		{[]string{"--metrics-listen=node7:9464", "--metrics-listen-authorize=kubernetes"}, "in clear text"},
		{append(tls, "--metrics-listen=:9464", "--metrics-listen-authorize=kubernetes", "--metrics-listen-token=t"), "one token only"},
		{append(tls, "--metrics-listen=:9464", "--metrics-listen-authorize=rbac"), "want kubernetes"},
		{[]string{"--metrics-listen-authorize=kubernetes"}, "--metrics-listen is missing"},
		{[]string{"--metrics-listen=:9464", "--metrics-listen-audience=x"}, "needs --metrics-listen-authorize"},
		{append(tls, "--metrics-listen=:9464", "--metrics-listen-authorize=kubernetes", "--metrics-listen-client-ca=ca.pem"), ""},
		{[]string{"--metrics-listen=127.0.0.1:9464", "--metrics-listen-authorize=kubernetes"}, ""},
		{[]string{"--metrics-listen=localhost:9464", "--metrics-listen-authorize=kubernetes", "--metrics-listen-audience=x"}, ""},
		{[]string{"--metrics-listen=:9464"}, ""},
	} {
		o, err := parse(c.args)
		require.NoError(t, err)
		err = o.checkAuthorize(o.params(metrics.PublishParams()))
		if c.want == "" {
			require.NoError(t, err, c.args)
			continue
		}
		require.ErrorContains(t, err, c.want, c.args)
	}
}
