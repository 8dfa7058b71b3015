// SPDX-License-Identifier: Apache-2.0

package pyroscope

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"connectrpc.com/connect"
	pushv1 "github.com/grafana/pyroscope/api/gen/proto/go/push/v1"
	"github.com/grafana/pyroscope/api/gen/proto/go/push/v1/pushv1connect"
	typesv1 "github.com/grafana/pyroscope/api/gen/proto/go/types/v1"

	"github.com/gpu-gadgets/gpu-gadgets/internal/export/queue"
	"github.com/gpu-gadgets/gpu-gadgets/internal/export/remote"
)

// Client is safe for concurrent use.
type Client struct {
	http *http.Client
	push pushv1connect.PusherServiceClient

	refused refusals
	pacer   pacer
}

// NewClient does not contact the server.
func NewClient(e *remote.Endpoint) *Client {
	c := &Client{http: e.Client()}
	c.http.Transport = statusKeeper{c.http.Transport}
	c.push = pushv1connect.NewPusherServiceClient(c.http, e.URL.String())
	return c
}

// Close closes idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Push sends one request. Its errors are those of package queue: the data itself is
// refused, for good or for now, or the request can be retried. Credentials and addresses can be corrected
// during the run, so errors in them are retried as well.
func (c *Client) Push(ctx context.Context, r Request) error {
	c.pacer.wait(ctx, r.Unpacked)
	_, err := c.send(ctx, r.Push)
	var answered *queue.AnsweredError
	if errors.As(err, &answered) && strings.Contains(err.Error(), rateLimit) {
		c.pacer.limited()
	}
	c.refused.note(r.Push, err, time.Now())
	return err
}

// Refused reports whether the server has lately refused the series with these labels, because of its
// limit of series. The labels are sorted.
func (c *Client) Refused(labels []*typesv1.LabelPair) bool { return c.refused.has(labels, time.Now()) }

// Check checks whether the server would accept a push, and returns an error only for a
// negative answer. A server that does not answer may be up later, which unreachable
// reports.
func (c *Client) Check(ctx context.Context) (unreachable, refused error) {
	status, err := c.send(ctx, &pushv1.PushRequest{})
	switch {
	case err == nil, status == http.StatusBadRequest:
		return nil, nil // an empty push may be refused as such
	case status == 0, status >= 500, status == http.StatusTooManyRequests, status == http.StatusRequestTimeout:
		return err, nil
	case status == http.StatusUnauthorized:
		return nil, fmt.Errorf("%w: it requires a tenant, user or token, or different ones", err)
	case status == http.StatusForbidden:
		return nil, fmt.Errorf("%w: these credentials do not allow writing", err)
	case status == http.StatusNotFound:
		return nil, fmt.Errorf("%w: is it the base URL of Pyroscope?", err)
	}
	return nil, err
}

func (c *Client) send(ctx context.Context, push *pushv1.PushRequest) (status int, err error) {
	answer := &answer{}
	_, err = c.push.Push(context.WithValue(ctx, answerKey{}, answer), connect.NewRequest(push))
	return answer.status, classify(err, answer)
}

// classify decides by the HTTP status, because the proxies on the way do not speak
// Pyroscope's protocol.
func classify(err error, a *answer) error {
	if err == nil {
		return nil
	}
	var wire *connect.Error
	if errors.As(err, &wire) && a.status != 0 {
		// Without the name of the code, and without connect's own message if the
		// answer has none: both repeat the status.
		text := fmt.Sprintf("%d %s", a.status, http.StatusText(a.status))
		if wire.Message() != text {
			text += ": " + wire.Message()
		}
		err = errors.New(text)
	}
	switch a.status {
	case http.StatusBadRequest, http.StatusRequestEntityTooLarge, http.StatusUnsupportedMediaType, http.StatusUnprocessableEntity:
		return &queue.RejectedError{Err: err}
	}
	if a.retryAfter > 0 {
		err = &queue.LaterError{Err: err, After: a.retryAfter}
	}
	// 502, 503 and 504 are answers for a server that is away.
	if a.status == http.StatusTooManyRequests || a.status == http.StatusInternalServerError {
		return &queue.AnsweredError{Err: err, IsOwn: strings.Contains(err.Error(), seriesLimit)}
	}
	return err
}

// rateLimit is in Pyroscope's answer to what its tenant's bucket does not hold (1.21, Distributor.rateLimit).
const rateLimit = "push rate limit"

// seriesLimit is in Pyroscope's answer to a series beyond the limit of its tenant, which has the
// status of too many requests (1.21, pkg/validation, SeriesLimitErrorMsg).
const seriesLimit = "active series limit exceeded"

// answer is the part of an HTTP response that connect does not return.
type answer struct {
	status     int
	retryAfter time.Duration
}

type answerKey struct{}

type statusKeeper struct{ http.RoundTripper }

func (k statusKeeper) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := k.RoundTripper.RoundTrip(r)
	if a, ok := r.Context().Value(answerKey{}).(*answer); ok && err == nil {
		a.status = response.StatusCode
		if seconds, err := strconv.ParseUint(response.Header.Get("Retry-After"), 10, 31); err == nil {
			a.retryAfter = time.Duration(seconds) * time.Second
		}
	}
	return response, err
}

func (k statusKeeper) CloseIdleConnections() {
	(&http.Client{Transport: k.RoundTripper}).CloseIdleConnections()
}
