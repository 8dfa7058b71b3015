// SPDX-License-Identifier: Apache-2.0

package views

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/stretchr/testify/require"
)

// series are of two teams, of the host, of the exporter, and such that names of their own look like
// namespaces.
func series() prometheus.Gatherer {
	registry := prometheus.NewRegistry()
	add := func(name string, labels ...prometheus.Labels) {
		for n, l := range labels {
			g := prometheus.NewGauge(prometheus.GaugeOpts{Name: name, Help: "h", ConstLabels: l})
			g.Set(float64(n))
			registry.MustRegister(g)
		}
	}
	of := func(namespace string) prometheus.Labels { return prometheus.Labels{"k8s_namespace_name": namespace} }
	add("a_rows", nil)
	add("b_memory", of("team-a"), of("team-b"), of(""), of("Team A"))
	add("c_only_b", of("team-b"))
	add("d_named", prometheus.Labels{"k8s_namespace_name": "team-b", "k8s_namespace": "team-a", "namespace": "team-a"},
		prometheus.Labels{"k8s_namespace_name": "", "k8s_namespace": "team-a", "namespace": "team-a"})
	add("e_compat", prometheus.Labels{"k8s_namespace": "team-a"}, prometheus.Labels{"k8s_namespace": "team-b"})
	add("f_alias", prometheus.Labels{"namespace": "team-a"})
	return registry
}

const (
	ofA = `# HELP b_memory h
# TYPE b_memory gauge
b_memory{k8s_namespace_name="team-a"} 0
# HELP e_compat h
# TYPE e_compat gauge
e_compat{k8s_namespace="team-a"} 0
`
	// The families that only team-b has.
	onlyB = `# HELP c_only_b h
# TYPE c_only_b gauge
c_only_b{k8s_namespace_name="team-b"} 0
# HELP d_named h
# TYPE d_named gauge
d_named{k8s_namespace="team-a",k8s_namespace_name="team-b",namespace="team-a"} 0
`
	ofB = `# HELP b_memory h
# TYPE b_memory gauge
b_memory{k8s_namespace_name="team-b"} 1
` + onlyB + `# HELP e_compat h
# TYPE e_compat gauge
e_compat{k8s_namespace="team-b"} 1
`
	ofAB = `# HELP b_memory h
# TYPE b_memory gauge
b_memory{k8s_namespace_name="team-a"} 0
b_memory{k8s_namespace_name="team-b"} 1
` + onlyB + `# HELP e_compat h
# TYPE e_compat gauge
e_compat{k8s_namespace="team-a"} 0
e_compat{k8s_namespace="team-b"} 1
`
)

// get is a scrape; the token may be a whole header.
func get(h http.Handler, token string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodGet, "/metrics", nil)
	switch {
	case strings.Contains(token, " "):
		r.Header.Set("Authorization", token)
	case token != "":
		r.Header.Set("Authorization", "Bearer "+token)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// whole returns the text that a listener without views serves.
func whole(t *testing.T) string {
	t.Helper()
	v := newCluster()
	families, err := series().Gather()
	require.NoError(t, err)
	require.Len(t, families, 6)
	body := get(v.views(t, "").Handler(series()), "tok-all").Body.String()
	for _, f := range families {
		require.Contains(t, body, "# HELP "+f.GetName()+" ")
	}
	require.Equal(t, 11, strings.Count(body, "\n")-2*len(families))
	return body
}

func TestAReaderSeesTheSeriesOfItsNamespaces(t *testing.T) {
	c := newCluster()
	h := c.views(t, "").Handler(series())
	for token, want := range map[string]string{"tok-a": ofA, "tok-ab": ofAB, "tok-all": whole(t), "tok-none": ""} {
		w := get(h, token)
		require.Equal(t, http.StatusOK, w.Code, token)
		require.Equal(t, want, w.Body.String(), token)
		require.Equal(t, "no-store", w.Header().Get("Cache-Control"))
	}
	require.NotContains(t, c.asked, "Team A", "no authorizer sees a name that no namespace has")
	require.NotContains(t, c.asked, "empty", "only namespaces with series are reviewed")
	require.Empty(t, c.warnings)
}

func TestWithoutAValidTokenNothingIsGathered(t *testing.T) {
	c := newCluster()
	gathered := 0
	h := c.views(t, "").Handler(prometheus.GathererFunc(func() ([]*dto.MetricFamily, error) { gathered++; return nil, nil }))
	for _, token := range []string{"", "tok-x", "Basic tok-a", "Bearer tok-a tok-b", "Bearer ", "tok-\u00e4", "tok-a\x00"} {
		w := get(h, token)
		require.Equal(t, http.StatusUnauthorized, w.Code, "%q", token)
		require.Contains(t, w.Header().Get("WWW-Authenticate"), "Bearer")
		require.Equal(t, "close", w.Header().Get("Connection"))
	}
	require.Zero(t, gathered)
	require.Empty(t, c.asked)
	require.Equal(t, 1, c.tokens, "only one of them has the form of a token")
	require.Equal(t, http.StatusOK, get(h, "bearer tok-a").Code)
	require.Equal(t, 1, gathered)
}

// TestAUserWithoutANameIsNone: such a review of access would be about no user.
func TestAUserWithoutANameIsNone(t *testing.T) {
	c := newCluster()
	c.users["tok-anonymous"] = ""
	c.allowed[""] = []string{""}
	require.Equal(t, http.StatusUnauthorized, get(c.views(t, "").Handler(series()), "tok-anonymous").Code)
}

func TestWithoutTheAPIServerNothingIsServed(t *testing.T) {
	for name, fail := range map[string]func(*cluster){
		"tokens":        func(c *cluster) { c.tokenError = errors.New("connection refused") },
		"every":         func(c *cluster) { c.accessError = errors.New("connection refused") },
		"one namespace": func(c *cluster) { c.accessError, c.errorFor = errors.New("connection refused"), "team-b" },
	} {
		t.Run(name, func(t *testing.T) {
			c := newCluster()
			fail(c)
			h := c.views(t, "").Handler(series())
			for range 3 {
				w := get(h, "tok-ab")
				require.Equal(t, http.StatusServiceUnavailable, w.Code)
				require.NotContains(t, w.Body.String(), "team-")
				require.NotContains(t, w.Body.String(), "refused")
			}
			require.Len(t, c.warnings, 1, "at most one per minute")
			require.Contains(t, c.warnings[0], "connection refused")
			c.tokenError, c.accessError = nil, nil
			require.Equal(t, ofAB, get(h, "tok-ab").Body.String(), "failures are not remembered")
		})
	}
}

func TestAnswersHoldForAWhile(t *testing.T) {
	c := newCluster()
	h := c.views(t, "").Handler(series())
	reviews := func() int { return c.tokens + len(c.asked) }
	for range 5 {
		require.Equal(t, ofA, get(h, "tok-a").Body.String())
	}
	require.Equal(t, 4, reviews(), "its token, every namespace, and the two with series")
	get(h, "tok-none")
	require.Equal(t, 8, reviews(), "answers are about one token")

	// A right that is given holds after ten seconds, one that is taken ends after a minute.
	c.allowed["alice"] = []string{"team-b"}
	c.clock.Step(denyFor + time.Second)
	require.Equal(t, ofAB, get(h, "tok-a").Body.String())
	require.Equal(t, 10, reviews(), "every namespace and team-b")
	c.clock.Step(allowFor)
	require.Equal(t, ofB, get(h, "tok-a").Body.String())

	// So with tokens.
	require.Equal(t, http.StatusUnauthorized, get(h, "tok-new").Code)
	c.users["tok-new"] = "carol"
	tokens := c.tokens
	require.Equal(t, http.StatusUnauthorized, get(h, "tok-new").Code)
	require.Equal(t, tokens, c.tokens)
	c.clock.Step(denyFor + time.Second)
	require.Equal(t, http.StatusOK, get(h, "tok-new").Code)
	delete(c.users, "tok-new")
	require.Equal(t, http.StatusOK, get(h, "tok-new").Code)
	c.clock.Step(allowFor + time.Second)
	require.Equal(t, http.StatusUnauthorized, get(h, "tok-new").Code)
}

func TestCachesAreBounded(t *testing.T) {
	c := newCluster()
	v := c.views(t, "")
	for n := range maxInvalid + 10 {
		_, err := v.reviews.reader(t.Context(), fmt.Sprintf("made-up-%d", n))
		require.ErrorIs(t, err, errInvalid)
	}
	require.Len(t, v.reviews.invalid.Keys(), maxInvalid)
	require.Empty(t, v.reviews.readers.Keys())
	require.Empty(t, v.reviews.known.Keys())
}

// TestTokensAreNotRevealed: not even if an API server quotes the request that it refuses.
func TestTokensAreNotRevealed(t *testing.T) {
	const token = "eyJhbGciOi.secret~+/-_=="
	c := newCluster()
	c.tokenError = fmt.Errorf(`spec.token: Invalid value: %q`, token)
	v := c.views(t, "")
	w := get(v.Handler(series()), token)
	require.Equal(t, http.StatusServiceUnavailable, w.Code)
	require.Len(t, c.warnings, 1)
	require.Contains(t, c.warnings[0], "spec.token")
	c.tokenError, c.users[token] = nil, "alice"
	require.Equal(t, http.StatusOK, get(v.Handler(series()), token).Code)
	require.NotEmpty(t, v.reviews.answers.Keys())
	kept := fmt.Sprint(c.warnings, w.Body, w.Header(), v.reviews.readers.Keys(), v.reviews.answers.Keys(), v.reviews.invalid.Keys())
	for _, key := range v.reviews.readers.Keys() {
		known, ok := v.reviews.readers.Get(key)
		require.True(t, ok)
		kept += fmt.Sprintf("%+v", known)
	}
	require.NotContains(t, kept, "secret")
}

func TestATokenForAnotherAudienceIsRefused(t *testing.T) {
	for _, test := range []struct {
		audiences []string
		want      int
	}{{nil, 401}, {[]string{"https://kubernetes.default.svc"}, 401}, {[]string{"other", "gpu-exporter"}, 200}} {
		c := newCluster()
		c.audiences = test.audiences
		require.Equal(t, test.want, get(c.views(t, "gpu-exporter").Handler(series()), "tok-a").Code, test.audiences)
	}
}

// TestReviewsOfARequestAreBounded: beyond the bound it is an error and not a part of the series;
// later requests continue.
func TestReviewsOfARequestAreBounded(t *testing.T) {
	registry := prometheus.NewRegistry()
	memory := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "memory", Help: "h"}, []string{"k8s_namespace_name"})
	registry.MustRegister(memory)
	c := newCluster()
	const all = maxReviews*5/2 + 1
	for n := range all {
		namespace := fmt.Sprintf("n%d", n)
		memory.WithLabelValues(namespace).Set(1)
		c.allowed["alice"] = append(c.allowed["alice"], namespace)
	}
	h := c.views(t, "").Handler(registry)
	for _, want := range []int{1 + maxReviews, 1 + 2*maxReviews} {
		require.Equal(t, http.StatusServiceUnavailable, get(h, "tok-a").Code)
		require.Len(t, c.asked, want)
	}
	w := get(h, "tok-a")
	require.Equal(t, http.StatusOK, w.Code)
	require.Equal(t, all, strings.Count(w.Body.String(), "\n")-2)
	require.Contains(t, c.warnings[0], "namespaces")
}

func TestReviewsAtATimeAreBounded(t *testing.T) {
	v := newCluster().views(t, "")
	started, end := make(chan struct{}), make(chan struct{})
	var group sync.WaitGroup
	for range maxParallel + 5 {
		group.Go(func() {
			_ = review(context.Background(), v.reviews.parallelAccesses, func(context.Context) error {
				started <- struct{}{}
				<-end
				return nil
			})
		})
	}
	for range maxParallel {
		<-started
	}
	select {
	case <-started:
		t.Error("more than the bound")
	case <-time.After(50 * time.Millisecond):
	}
	close(end)
	for range 5 {
		<-started
	}
	group.Wait()
}

// TestErrorsOfGatheringNameNoSeries: they name those of all namespaces.
func TestErrorsOfGatheringNameNoSeries(t *testing.T) {
	c := newCluster()
	h := c.views(t, "").Handler(prometheus.GathererFunc(func() ([]*dto.MetricFamily, error) {
		return nil, errors.New(`duplicate {k8s_namespace_name="team-b"}`)
	}))
	w := get(h, "tok-a")
	require.Equal(t, http.StatusInternalServerError, w.Code)
	body, err := io.ReadAll(w.Body)
	require.NoError(t, err)
	require.NotContains(t, string(body), "team-b")
	require.Len(t, c.warnings, 1)
	require.Contains(t, c.warnings[0], "team-b")
}
