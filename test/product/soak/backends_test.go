// SPDX-License-Identifier: Apache-2.0

package soak

import (
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	_ "google.golang.org/grpc/encoding/gzip" // as it is sent
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/gpu-gadgets/gpu-gadgets/test/support/loopback"
)

// backends accept all that is sent to them, and count it.
type backends struct {
	otlp, pyroscope string

	mu       sync.Mutex
	requests map[string]int // by method or path
}

func startBackends(t *testing.T) *backends {
	t.Helper()
	b := &backends{requests: map[string]int{}}
	b.pyroscope = loopback.Serve(t, "/", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", r.Header.Get("Content-Type"))
		b.count(r.URL.Path)
	}))
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	b.otlp = "http://" + listener.Addr().String()
	// The answers of OTLP's services are empty messages.
	server := grpc.NewServer(grpc.MaxRecvMsgSize(64<<20), grpc.UnknownServiceHandler(func(_ any, stream grpc.ServerStream) error {
		if err := stream.RecvMsg(&emptypb.Empty{}); err != nil {
			return err
		}
		method, _ := grpc.MethodFromServerStream(stream)
		b.count(method)
		return stream.SendMsg(&emptypb.Empty{})
	}))
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)
	return b
}

func (b *backends) count(method string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.requests[method]++
}

// requireAll: each export was used.
func (b *backends) requireAll(t *testing.T) {
	t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	t.Logf("requests: %v", b.requests)
	for _, part := range []string{"ProfilesService", "MetricsService", "push"} {
		found := 0
		for method, n := range b.requests {
			if strings.Contains(method, part) {
				found += n
			}
		}
		require.NotZero(t, found, part)
	}
}
