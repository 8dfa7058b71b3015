// SPDX-License-Identifier: Apache-2.0

// Package views serves metrics by Kubernetes namespace: a reader who presents a bearer token of the
// cluster gets the series of the namespaces in which RBAC allows it to get them. A TokenReview
// identifies the reader and SubjectAccessReviews say what it may see, so that Roles and
// RoleBindings decide, and this package has no list of users.
//
// It fails closed. If the API server does not answer, the answer is 503; a series without a valid
// namespace is only for readers of the whole cluster.
package views

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	dto "github.com/prometheus/client_model/go"
	"golang.org/x/sync/singleflight"
	"k8s.io/apimachinery/pkg/util/cache"
	authentication "k8s.io/client-go/kubernetes/typed/authentication/v1"
	authorization "k8s.io/client-go/kubernetes/typed/authorization/v1"
	"k8s.io/client-go/rest"

	"github.com/gpu-gadgets/gpu-gadgets/internal/throttle"
)

// What a Role has to allow. No resource of this name exists: RBAC compares names only. A group of
// our own is not part of any role that was made for something else, which a subresource of pods
// would be of those with resources: ["*"].
const (
	Verb     = "get"
	Group    = "gpu-gadgets.github.io"
	Resource = "metrics"
)

const (
	// requestTimeout is below Prometheus's longest useful scrape timeout, and below that of the listener.
	requestTimeout = 30 * time.Second
	// maxServed is how many requests are gathered for and written at a time: 4 × 26 MiB of text in
	// the largest cluster measured (docs/reference/scale.md).
	maxServed = 4

	// Reviews for each second of all requests. New tokens and known ones each have a budget of their own, so
	// that a client with random tokens delays only new readers.
	tokensPerSecond, accessesPerSecond = 20, 100
)

// Config of Views.
type Config struct {
	Tokens   authentication.TokenReviewInterface
	Accesses authorization.SubjectAccessReviewInterface
	// KnownTokens reviews tokens that were valid in the last hour, which must not wait behind others; nil: Tokens.
	KnownTokens authentication.TokenReviewInterface
	// Audience that tokens must have been issued for; "": that of the API server.
	Audience string
	// Warn receives failures of the API server, at most one per minute. It may be nil.
	Warn func(string)
	// Clock of the caches; nil: the system's.
	Clock cache.Clock
}

// Views decides what readers see. It is safe for concurrent use.
type Views struct {
	reviews *reviewer
	warn    func(string)
	failed  throttle.Throttle
}

// New returns the views of a cluster.
func New(cfg Config) (*Views, error) {
	if cfg.Tokens == nil || cfg.Accesses == nil {
		return nil, errors.New("views need an API server: one to review tokens, and one to review accesses")
	}
	if cfg.Warn == nil {
		cfg.Warn = func(string) {}
	}
	return &Views{reviews: newReviewer(cfg), warn: cfg.Warn}, nil
}

// ForCluster returns the views of the cluster of a client configuration, which needs the right to
// create tokenreviews and subjectaccessreviews.
func ForCluster(config *rest.Config, audience string, warn func(string)) (*Views, error) {
	limited := func(perSecond float32) *rest.Config {
		c := rest.CopyConfig(config)
		c.QPS, c.Burst, c.Timeout, c.RateLimiter = perSecond, 2*int(perSecond), reviewTimeout, nil
		return c
	}
	tokens, err := authentication.NewForConfig(limited(tokensPerSecond))
	if err != nil {
		return nil, fmt.Errorf("review tokens: %w", err)
	}
	known, err := authentication.NewForConfig(limited(tokensPerSecond))
	if err != nil {
		return nil, fmt.Errorf("review tokens: %w", err)
	}
	accesses, err := authorization.NewForConfig(limited(accessesPerSecond))
	if err != nil {
		return nil, fmt.Errorf("review accesses: %w", err)
	}
	return New(Config{Tokens: tokens.TokenReviews(), KnownTokens: known.TokenReviews(), Accesses: accesses.SubjectAccessReviews(),
		Audience: audience, Warn: warn})
}

// Handler answers with the series of a gatherer that the request's token allows:
//
//   - 200: these series, none if the reader may see none of those that exist now. A namespace
//     without GPU processes and one that is not allowed look the same.
//   - 401: no valid token.
//   - 503: the API server did not answer, or too many namespaces are yet to be reviewed.
func (v *Views) Handler(from prometheus.Gatherer) http.Handler {
	e := &endpoint{Views: v, from: from, slots: make(chan struct{}, maxServed)}
	return http.TimeoutHandler(e, requestTimeout, "metrics took too long")
}

// endpoint is one handler.
type endpoint struct {
	*Views
	from      prometheus.Gatherer
	gathering singleflight.Group
	slots     chan struct{}
}

// ServeHTTP implements http.Handler. Only requests with a valid token cost a gathering.
func (e *endpoint) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Cache-Control", "no-store")
	token, ok := bearer(r)
	if !ok {
		unauthorized(w, "Bearer", "want the header Authorization: Bearer, with a token of the Kubernetes cluster")
		return
	}
	reader, err := e.reviews.reader(r.Context(), token)
	if errors.Is(err, errInvalid) {
		unauthorized(w, `Bearer error="invalid_token"`, "the Kubernetes cluster does not accept this token")
		return
	}
	if err != nil {
		e.unavailable(w, r, err)
		return
	}
	select {
	case e.slots <- struct{}{}:
		defer func() { <-e.slots }()
	case <-r.Context().Done():
		return // the client has closed the connection, or TimeoutHandler has answered
	}
	families, err := e.visible(r.Context(), reader)
	if errors.Is(err, errGather) {
		e.report(err)
		// The reason may name series of other namespaces.
		http.Error(w, "the metrics cannot be gathered: see the log of the exporter", http.StatusInternalServerError)
		return
	}
	if err != nil {
		e.unavailable(w, r, err)
		return
	}
	write := promhttp.HandlerFor(prometheus.GathererFunc(func() ([]*dto.MetricFamily, error) { return families, nil }),
		promhttp.HandlerOpts{ErrorHandling: promhttp.HTTPErrorOnError})
	write.ServeHTTP(w, r)
}

// unauthorized ends the connection, too: a client without a token takes no room from others.
func unauthorized(w http.ResponseWriter, challenge, why string) {
	w.Header().Set("WWW-Authenticate", challenge)
	w.Header().Set("Connection", "close")
	http.Error(w, why, http.StatusUnauthorized)
}

var errGather = errors.New("gather metrics")

// visible are the families that a reader may see now.
func (e *endpoint) visible(ctx context.Context, reader *reader) ([]*dto.MetricFamily, error) {
	everywhere, err := e.reviews.allowed(ctx, reader, []string{everyNamespace})
	if err != nil {
		return nil, err
	}
	// Requests that wait for each other share one result, which nothing changes.
	gathered, err, _ := e.gathering.Do("", func() (any, error) { return e.from.Gather() })
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errGather, err)
	}
	families := gathered.([]*dto.MetricFamily)
	if everywhere[everyNamespace] {
		return families, nil
	}
	allowed, err := e.reviews.allowed(ctx, reader, namespaces(families))
	if err != nil {
		return nil, err
	}
	return only(families, allowed), nil
}

func (e *endpoint) unavailable(w http.ResponseWriter, r *http.Request, err error) {
	if r.Context().Err() == nil {
		e.report(err)
	}
	w.Header().Set("Retry-After", "10")
	http.Error(w, "what this token may see could not be reviewed: see the log of the exporter", http.StatusServiceUnavailable)
}

func (v *Views) report(err error) {
	v.failed.Warn(v.warn, "views of metrics: %v", err)
}

// tokenSyntax is that of RFC 6750, section 2.1: such a token is the same text in JSON and in
// errors, so that it can be removed from them.
var tokenSyntax = regexp.MustCompile(`^[A-Za-z0-9._~+/-]+=*$`)

// bearer is the token of a request.
func bearer(r *http.Request) (string, bool) {
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	token = strings.TrimSpace(token)
	return token, strings.EqualFold(scheme, "Bearer") && tokenSyntax.MatchString(token)
}
