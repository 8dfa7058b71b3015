// SPDX-License-Identifier: Apache-2.0

package views

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	authentication "k8s.io/client-go/kubernetes/typed/authentication/v1"
)

// heldTokens are reviews that take until end is closed.
type heldTokens struct {
	authentication.TokenReviewInterface
	started, end chan struct{}
}

func (h heldTokens) Create(context.Context, *authenticationv1.TokenReview, metav1.CreateOptions) (*authenticationv1.TokenReview, error) {
	h.started <- struct{}{}
	<-h.end
	return &authenticationv1.TokenReview{}, nil
}

// TestTokensThatAreMadeUpDelayNoKnownReader: they wait for tokensPerSecond in their slots.
func TestTokensThatAreMadeUpDelayNoKnownReader(t *testing.T) {
	c := newCluster()
	v := c.views(t, "")
	_, err := v.reviews.reader(t.Context(), "tok-a") // known from here on, none of its namespaces is
	require.NoError(t, err)
	started, end := make(chan struct{}, maxParallel), make(chan struct{})
	v.reviews.cfg.Tokens = heldTokens{started: started, end: end}
	var group sync.WaitGroup
	for n := range maxParallel + 5 {
		group.Go(func() { _, _ = v.reviews.reader(t.Context(), fmt.Sprintf("made-up-%d", n)) })
	}
	for range maxParallel {
		<-started
	}
	answered := make(chan string, 1)
	go func() { answered <- get(v.Handler(series()), "tok-a").Body.String() }()
	select {
	case body := <-answered:
		require.Equal(t, ofA, body)
	case <-time.After(5 * time.Second):
		t.Error("the known reader waits for the tokens")
	}
	close(end)
	for range 5 {
		<-started
	}
	group.Wait()
}

// TestKnownReadersAreReviewedApart from tokens that may be made up, for an hour after their last review.
func TestKnownReadersAreReviewedApart(t *testing.T) {
	c := newCluster()
	v := c.views(t, "")
	h := v.Handler(series())
	require.Equal(t, ofA, get(h, "tok-a").Body.String())
	for range maxParallel { // made-up tokens have all slots
		v.reviews.parallelTokens <- struct{}{}
	}
	v.reviews.cfg.Tokens = nil
	for range 3 {
		c.clock.Step(knownFor - time.Minute)
		tokens := c.tokens
		require.Equal(t, ofA, get(h, "tok-a").Body.String())
		require.Equal(t, tokens+1, c.tokens, "it is reviewed")
	}
	delete(c.users, "tok-a")
	c.clock.Step(allowFor + time.Second)
	require.Equal(t, http.StatusUnauthorized, get(h, "tok-a").Code)
	require.Empty(t, v.reviews.known.Keys(), "a token that is no longer valid is none of a known reader")
}

// TestAReviewEnds when its client has gone, or after its time.
func TestAReviewEnds(t *testing.T) {
	v := newCluster().views(t, "")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for range maxParallel {
		v.reviews.parallelTokens <- struct{}{}
	}
	require.ErrorIs(t, review(ctx, v.reviews.parallelTokens, func(context.Context) error { return nil }), context.Canceled)
	synctest.Test(t, func(t *testing.T) { // also when no slot gets free
		full := make(chan struct{})
		began := time.Now()
		require.ErrorIs(t, review(t.Context(), full, nil), context.DeadlineExceeded)
		require.Equal(t, reviewTimeout, time.Since(began))
	})
	<-v.reviews.parallelTokens
	require.NoError(t, review(t.Context(), v.reviews.parallelTokens, func(ctx context.Context) error {
		deadline, ok := ctx.Deadline()
		require.True(t, ok)
		require.LessOrEqual(t, time.Until(deadline), reviewTimeout)
		return nil
	}))
}
