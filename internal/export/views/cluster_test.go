// SPDX-License-Identifier: Apache-2.0

package views

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	testingclock "k8s.io/utils/clock/testing"
)

// cluster has users by their token and what each may see; "" is every namespace.
type cluster struct {
	mu      sync.Mutex
	users   map[string]string
	allowed map[string][]string
	tokens  int      // TokenReviews
	asked   []string // namespaces of SubjectAccessReviews, in any order
	// tokenError and accessError answer instead, the latter for one namespace.
	tokenError, accessError error
	errorFor                string
	audiences               []string // those of every token

	clock    *testingclock.FakeClock
	warnings []string
}

func newCluster() *cluster {
	return &cluster{
		users: map[string]string{"tok-a": "alice", "tok-ab": "bob", "tok-all": "carol", "tok-none": "dave"},
		allowed: map[string][]string{"alice": {"team-a", "empty"}, "bob": {"team-a", "team-b"},
			"carol": {""}, "dave": {"other"}},
		clock: testingclock.NewFakeClock(time.Unix(1800000000, 0)),
	}
}

func (c *cluster) reviewToken(action clienttesting.Action) (bool, runtime.Object, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.tokens++
	review := action.(clienttesting.CreateAction).GetObject().(*authenticationv1.TokenReview).DeepCopy()
	if c.tokenError != nil {
		return true, nil, c.tokenError
	}
	if user, ok := c.users[review.Spec.Token]; ok {
		review.Status = authenticationv1.TokenReviewStatus{Authenticated: true, Audiences: c.audiences, User: authenticationv1.UserInfo{
			Username: user, UID: "uid-" + user, Groups: []string{"g1", "g2"}, Extra: map[string]authenticationv1.ExtraValue{"scopes": {"x"}}}}
	}
	return true, review, nil
}

func (c *cluster) reviewAccess(action clienttesting.Action) (bool, runtime.Object, error) {
	review := action.(clienttesting.CreateAction).GetObject().(*authorizationv1.SubjectAccessReview).DeepCopy()
	spec := review.Spec
	c.mu.Lock()
	defer c.mu.Unlock()
	c.asked = append(c.asked, spec.ResourceAttributes.Namespace)
	want := authorizationv1.ResourceAttributes{Namespace: spec.ResourceAttributes.Namespace, Verb: "get", Group: "gpu-gadgets.github.io", Resource: "metrics"}
	isWhole := *spec.ResourceAttributes == want && spec.UID == "uid-"+spec.User && slices.Equal(spec.Groups, []string{"g1", "g2"}) &&
		slices.Equal(spec.Extra["scopes"], authorizationv1.ExtraValue{"x"})
	if !isWhole {
		return true, nil, fmt.Errorf("incomplete review: %+v", spec)
	}
	if c.accessError != nil && c.errorFor == want.Namespace {
		return true, nil, c.accessError
	}
	review.Status.Allowed = slices.Contains(c.allowed[spec.User], want.Namespace)
	return true, review, nil
}

func (c *cluster) views(t *testing.T, audience string) *Views {
	t.Helper()
	client := &fake.Clientset{}
	client.AddReactor("create", "tokenreviews", c.reviewToken)
	client.AddReactor("create", "subjectaccessreviews", c.reviewAccess)
	v, err := New(Config{Tokens: client.AuthenticationV1().TokenReviews(), Accesses: client.AuthorizationV1().SubjectAccessReviews(),
		Audience: audience, Clock: c.clock, Warn: func(text string) { c.warnings = append(c.warnings, text) }})
	require.NoError(t, err)
	return v
}
