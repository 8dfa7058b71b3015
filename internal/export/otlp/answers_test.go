// SPDX-License-Identifier: Apache-2.0

package otlp

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	collector "go.opentelemetry.io/proto/otlp/collector/profiles/v1development"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/gpu-gadgets/gpu-gadgets/internal/export/faults"
	"github.com/gpu-gadgets/gpu-gadgets/internal/export/queue"
	"github.com/gpu-gadgets/gpu-gadgets/internal/export/remote"
	"github.com/gpu-gadgets/gpu-gadgets/internal/profile"
	"github.com/gpu-gadgets/gpu-gadgets/internal/profile/fixture"
)

func TestNothingIsLostInAnOutageWithinTheLimit(t *testing.T) {
	for _, protocol := range Protocols {
		for name, fault := range faults.Faults {
			t.Run(protocol+" "+name, func(t *testing.T) {
				t.Parallel()
				r := &receiver{}
				c, server := connect(t, Protocol(protocol), r, remote.Config{})
				q := queue.New(queue.Config[*collector.ExportProfilesServiceRequest]{
					Name: "the collector", Send: c.Profiles, MaxBytes: 1 << 20, Timeout: fault.Timeout(),
					MinBackoff: time.Millisecond, MaxBackoff: 50 * time.Millisecond, Warn: t.Logf,
				})
				const windows = 20
				p := fixture.Small()
				requests := (&Encoder{}).Profiles(windowOf(p))
				require.Len(t, requests, 1)
				for i := range windows {
					switch i {
					case 5:
						require.Eventually(t, func() bool { return q.Stats().SentItems == 5 }, faults.Timeout, time.Millisecond)
						server.Fail(fault)
					case 15:
						require.Eventually(t, func() bool { return server.Refused.Load() >= 2 && q.Stats().Failures >= 2 }, faults.Timeout, time.Millisecond)
						require.EqualValues(t, 10, q.Stats().QueuedItems)
						server.Fail(faults.None)
					}
					q.Put(requests[0], int64(proto.Size(requests[0])))
				}
				ctx, cancel := context.WithTimeout(t.Context(), faults.Timeout)
				defer cancel()
				stats := q.Close(ctx)
				require.Zero(t, stats.Lost())
				require.EqualValues(t, windows, stats.SentItems)
				want := wanted(p, profile.AllocSpace)
				for n, v := range want {
					want[n] = [2]int64{v[0] * windows, v[1] * windows}
				}
				require.Equal(t, want, sums(r.stored(), "alloc_space bytes"))
			})
		}
	}
}

func TestAnswersOverHTTP(t *testing.T) {
	for _, c := range []struct {
		status         int
		isRejected     bool
		refusedAtStart string
	}{
		{status: 400, isRejected: true}, {status: 413, isRejected: true}, {status: 401, refusedAtStart: "requires other credentials"},
		{status: 403, refusedAtStart: "do not allow writing"}, {status: 404, refusedAtStart: "does not take OTLP profiles"},
		{status: 429}, {status: 500}, {status: 503}, {status: 307},
	} {
		t.Run(fmt.Sprint(c.status), func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Retry-After", "7")
				http.Error(w, "a\x1b[31m\nb"+strings.Repeat("c", 1000), c.status)
			}))
			defer server.Close()
			endpoint, err := remote.New(remote.Config{URL: server.URL})
			require.NoError(t, err)
			client, err := NewClient(HTTP, endpoint)
			require.NoError(t, err)
			err = client.Profiles(t.Context(), &collector.ExportProfilesServiceRequest{})
			var rejected *queue.RejectedError
			require.Equal(t, c.isRejected, errors.As(err, &rejected), err)
			var answered *queue.AnsweredError
			require.Equal(t, c.status == 429 || c.status == 500, errors.As(err, &answered), err)
			require.ErrorContains(t, err, fmt.Sprint(c.status))
			require.Less(t, len(err.Error()), 300)
			require.NotContains(t, err.Error(), "\x1b")
			var later *queue.LaterError
			if c.status == 429 {
				require.ErrorAs(t, err, &later)
			}
			_, refused := client.Check(t.Context())
			if c.refusedAtStart == "" {
				require.NoError(t, refused)
			} else {
				require.ErrorContains(t, refused, c.refusedAtStart)
			}
		})
	}
}

// The status of OTLP over HTTP is protobuf, and is reported as text.
func TestStatusOverHTTPIsText(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		body, err := proto.Marshal(status.New(codes.Unauthenticated, "no token").Proto())
		require.NoError(t, err)
		w.Header().Set("Content-Type", "application/x-protobuf")
		w.WriteHeader(http.StatusUnauthorized)
		_, _ = w.Write(body)
	}))
	defer server.Close()
	endpoint, err := remote.New(remote.Config{URL: server.URL})
	require.NoError(t, err)
	client, err := NewClient(HTTP, endpoint)
	require.NoError(t, err)
	require.EqualError(t, client.Profiles(t.Context(), &collector.ExportProfilesServiceRequest{}), "401 Unauthorized: no token")
}

func TestAnswersOverGRPC(t *testing.T) {
	const rejected, answered, away = "rejected", "answered", "away"
	for _, c := range []struct {
		code    codes.Code
		message string
		kind    string
		code2   code
	}{
		{codes.InvalidArgument, "bad", rejected, codeOther},
		{codes.Internal, "grpc: error unmarshalling request: proto: wrong wireType = 2 for field LinkIndex", rejected, codeOther},
		{codes.Internal, "stream terminated by RST_STREAM with error code: INTERNAL_ERROR", away, codeUnreachable},
		// A collector's answer to a permanent error of its pipeline without a status.
		{codes.Internal, "Permanent error: invalid label", answered, codeUnreachable},
		{codes.Unknown, "failed", answered, codeUnreachable},
		{codes.ResourceExhausted, "grpc: received message larger than max (16320007 vs. 4194304)", rejected, codeOther},
		{codes.ResourceExhausted, "slow down", answered, codeUnreachable},
		{codes.Unavailable, "away", away, codeUnreachable},
		{codes.DeadlineExceeded, "slow", away, codeUnreachable},
		{codes.Unauthenticated, "who", away, codeUnauthorized},
		{codes.PermissionDenied, "no", away, codeForbidden},
		{codes.Unimplemented, "unknown service", away, codeUnknownPath},
	} {
		got, err := grpcError(status.Error(c.code, c.message))
		var isRejected *queue.RejectedError
		var isAnswered *queue.AnsweredError
		require.Equal(t, c.kind == rejected, errors.As(err, &isRejected), c.message)
		require.Equal(t, c.kind == answered, errors.As(err, &isAnswered), c.message)
		require.Equal(t, c.code2, got, c.message)
		require.ErrorContains(t, err, c.message)
	}
}

func TestServerWithoutLogs(t *testing.T) {
	for _, status := range []int{http.StatusNotFound, http.StatusServiceUnavailable} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", status) }))
		defer server.Close()
		endpoint, err := remote.New(remote.Config{URL: server.URL})
		require.NoError(t, err)
		c, err := NewClient(HTTP, endpoint)
		require.NoError(t, err)
		hasNone := status == http.StatusNotFound
		require.Equal(t, !hasNone, c.TakesLogs(t.Context()))
		var rejected *queue.RejectedError
		require.Equal(t, hasNone, errors.As(c.Logs(t.Context(), (&Encoder{}).OOM(profile.OOM{})), &rejected))
	}
}

func TestPyroscopeRefusalOverHTTP(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "rpc error: code = InvalidArgument desc = missing profile metadata dictionary", http.StatusInternalServerError)
	}))
	defer server.Close()
	endpoint, err := remote.New(remote.Config{URL: server.URL})
	require.NoError(t, err)
	c, err := NewClient(HTTP, endpoint)
	require.NoError(t, err)
	var rejected *queue.RejectedError
	require.ErrorAs(t, c.Profiles(t.Context(), &collector.ExportProfilesServiceRequest{}), &rejected)
}

func TestPartlyRefusedIsCounted(t *testing.T) {
	for _, protocol := range Protocols {
		c, _ := connect(t, Protocol(protocol), &receiver{rejected: 3}, remote.Config{})
		err := c.Profiles(t.Context(), &collector.ExportProfilesServiceRequest{})
		var rejected *queue.RejectedError
		require.ErrorAs(t, err, &rejected)
		require.EqualError(t, err, "3 refused: too old")
	}
}

func TestServerThatIsNotUpYetIsNotARefusal(t *testing.T) {
	for _, protocol := range Protocols {
		endpoint, err := remote.New(remote.Config{URL: "http://127.0.0.1:1"})
		require.NoError(t, err)
		c, err := NewClient(Protocol(protocol), endpoint)
		require.NoError(t, err)
		defer c.Close()
		unreachable, refused := c.Check(t.Context())
		require.ErrorContains(t, unreachable, "connection refused")
		require.NoError(t, refused)
	}
	endpoint, err := remote.New(remote.Config{URL: "http://127.0.0.1:1/path"})
	require.NoError(t, err)
	_, err = NewClient(GRPC, endpoint)
	require.ErrorContains(t, err, "gRPC has no path /path")
}
