// SPDX-License-Identifier: Apache-2.0

package views

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/utils/clock"
)

const (
	// How long answers hold: a revoked right still holds for up to allowFor, and a new one is
	// noticed after denyFor.
	allowFor, denyFor = time.Minute, 10 * time.Second
	// knownFor is how long a token that was valid is reviewed before those that may be made up.
	knownFor = time.Hour

	reviewTimeout = 5 * time.Second // with the wait for a slot
	maxParallel   = 16              // reviews of new tokens, as many of known ones, and as many of accesses, of all requests
	maxReviews    = 1000            // of a request: ten seconds of accessesPerSecond

	// Entries of the caches, about 200 bytes each and 1 KiB for a reader. Those of tokens that are
	// not valid have a cache of their own: anyone can make such tokens up.
	maxReaders, maxInvalid, maxAnswers = 1024, 4096, 32 << 10

	// everyNamespace in a review means all of them: a RoleBinding never allows it, a
	// ClusterRoleBinding does.
	everyNamespace = ""
)

var (
	errInvalid = errors.New("the token is not valid")
	errTooMany = fmt.Errorf("more than %d namespaces are new to a reader", maxReviews)
)

// digest identifies a token, which is kept nowhere.
type digest [sha256.Size]byte

// reader is who a token belongs to.
type reader struct {
	token digest
	user  authenticationv1.UserInfo
}

// question is whether a reader may see a namespace. It is about a token rather than a user,
// because authorizers may use what is in the token.
type question struct {
	token     digest
	namespace string
}

// reviewer sends reviews to the API server and keeps the answers for a while.
type reviewer struct {
	cfg     Config
	readers *cache.LRUExpireCache // digest → *reader
	known   *cache.LRUExpireCache // digest of a token that was valid → true
	invalid *cache.LRUExpireCache // digest → true
	answers *cache.LRUExpireCache // question → bool
	// Reviews that are under way. Those of new tokens have slots of their own, in which they also wait for
	// tokensPerSecond: anyone can make tokens up, and must not delay readers who are known.
	parallelTokens, parallelKnown, parallelAccesses chan struct{}
}

func newReviewer(cfg Config) *reviewer {
	if cfg.Clock == nil {
		cfg.Clock = clock.RealClock{}
	}
	if cfg.KnownTokens == nil {
		cfg.KnownTokens = cfg.Tokens
	}
	return &reviewer{
		cfg:              cfg,
		readers:          cache.NewLRUExpireCacheWithClock(maxReaders, cfg.Clock),
		known:            cache.NewLRUExpireCacheWithClock(maxReaders, cfg.Clock),
		invalid:          cache.NewLRUExpireCacheWithClock(maxInvalid, cfg.Clock),
		answers:          cache.NewLRUExpireCacheWithClock(maxAnswers, cfg.Clock),
		parallelTokens:   make(chan struct{}, maxParallel),
		parallelKnown:    make(chan struct{}, maxParallel),
		parallelAccesses: make(chan struct{}, maxParallel),
	}
}

// reader returns who a token belongs to, errInvalid if it is no token of the cluster.
func (r *reviewer) reader(ctx context.Context, token string) (*reader, error) {
	key := digest(sha256.Sum256([]byte(token)))
	if known, ok := r.readers.Get(key); ok {
		return known.(*reader), nil
	}
	if _, ok := r.invalid.Get(key); ok {
		return nil, errInvalid
	}
	spec := authenticationv1.TokenReviewSpec{Token: token}
	if r.cfg.Audience != "" {
		spec.Audiences = []string{r.cfg.Audience}
	}
	tokens, slots := r.cfg.Tokens, r.parallelTokens
	if _, ok := r.known.Get(key); ok {
		tokens, slots = r.cfg.KnownTokens, r.parallelKnown
	}
	var status authenticationv1.TokenReviewStatus
	err := review(ctx, slots, func(ctx context.Context) error {
		answer, err := tokens.Create(ctx, &authenticationv1.TokenReview{Spec: spec}, metav1.CreateOptions{})
		if err == nil {
			status = answer.Status
		}
		return err
	})
	if err != nil {
		// An API server may quote what it did not understand.
		return nil, fmt.Errorf("review a token: %s", strings.ReplaceAll(err.Error(), token, "(token)"))
	}
	// An authenticator that does not know audiences returns none, and has not checked it.
	hasAudience := r.cfg.Audience == "" || slices.Contains(status.Audiences, r.cfg.Audience)
	if !status.Authenticated || status.User.Username == "" || !hasAudience {
		r.invalid.Add(key, true, denyFor)
		r.known.Remove(key)
		return nil, errInvalid
	}
	known := &reader{key, status.User}
	r.readers.Add(key, known, allowFor)
	r.known.Add(key, true, knownFor)
	return known, nil
}

// allowed returns which of the namespaces a reader may see; an error if one is not known. The
// answers until then are kept, so that the next request needs fewer.
func (r *reviewer) allowed(ctx context.Context, of *reader, namespaces []string) (map[string]bool, error) {
	allowed := map[string]bool{}
	var missing []string
	for _, n := range namespaces {
		if answer, ok := r.answers.Get(question{of.token, n}); ok {
			allowed[n] = answer.(bool)
		} else {
			missing = append(missing, n)
		}
	}
	now := missing[:min(len(missing), maxReviews)]
	answers := make([]bool, len(now))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(maxParallel)
	for i, n := range now {
		group.Go(func() (err error) {
			answers[i], err = r.access(ctx, of, n)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return nil, fmt.Errorf("review the access of %q: %w", of.user.Username, err)
	}
	if len(now) < len(missing) {
		return nil, errTooMany
	}
	for i, n := range now {
		allowed[n] = answers[i]
	}
	return allowed, nil
}

// access reviews one namespace.
func (r *reviewer) access(ctx context.Context, of *reader, namespace string) (bool, error) {
	extra := map[string]authorizationv1.ExtraValue{}
	for key, values := range of.user.Extra {
		extra[key] = authorizationv1.ExtraValue(values)
	}
	request := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User: of.user.Username, UID: of.user.UID, Groups: of.user.Groups, Extra: extra,
		ResourceAttributes: &authorizationv1.ResourceAttributes{Namespace: namespace, Verb: Verb, Group: Group, Resource: Resource},
	}}
	isAllowed := false
	err := review(ctx, r.parallelAccesses, func(ctx context.Context) error {
		answer, err := r.cfg.Accesses.Create(ctx, request, metav1.CreateOptions{})
		if err == nil {
			isAllowed = answer.Status.Allowed && !answer.Status.Denied
		}
		return err
	})
	if err != nil {
		return false, err
	}
	holds := denyFor
	if isAllowed {
		holds = allowFor
	}
	r.answers.Add(question{of.token, namespace}, isAllowed, holds)
	return isAllowed, nil
}

// review calls the API server once, in one of the slots and within the time.
func review(ctx context.Context, slots chan struct{}, call func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, reviewTimeout)
	defer cancel()
	select {
	case slots <- struct{}{}:
		defer func() { <-slots }()
	case <-ctx.Done():
		return ctx.Err()
	}
	return call(ctx)
}
