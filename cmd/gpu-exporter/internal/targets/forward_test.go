// SPDX-License-Identifier: Apache-2.0

package targets

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/streaming/pkg/httpstream"
	"k8s.io/streaming/pkg/httpstream/spdy"
)

// kubelet forwards ports to address, or reports that it cannot.
func kubelet(t *testing.T, address string) *httptest.Server {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost || r.URL.Path != "/api/v1/namespaces/gadget/pods/gadget-a/portforward" {
			http.NotFound(w, r)
			return
		}
		if _, err := httpstream.Handshake(r, w, []string{"portforward.k8s.io"}); err != nil {
			t.Errorf("handshake: %v", err)
			return
		}
		streams := make(chan httpstream.Stream, 2)
		connection := spdy.NewResponseUpgrader().UpgradeResponse(w, r, func(s httpstream.Stream, _ <-chan struct{}) error {
			streams <- s
			return nil
		})
		if connection == nil {
			return
		}
		defer connection.Close()
		refusals, data := <-streams, <-streams
		if refusals.Headers().Get(corev1.StreamType) != "error" || data.Headers().Get(corev1.StreamType) != "data" || data.Headers().Get(corev1.PortHeader) != "8080" {
			t.Errorf("streams %v, %v", refusals.Headers(), data.Headers())
		}
		out, err := net.Dial("tcp", address)
		if err != nil {
			fmt.Fprint(refusals, "no one listens on port 8080")
			refusals.Close()
			<-connection.CloseChan()
			return
		}
		defer out.Close()
		go func() { _, _ = io.Copy(out, data) }()
		_, _ = io.Copy(data, out)
	}))
	t.Cleanup(server.Close)
	return server
}

func client(t *testing.T, api *httptest.Server) grpc_health_v1.HealthClient {
	t.Helper()
	connection, err := grpc.NewClient("passthrough:///pod", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			return forward(ctx, &rest.Config{Host: api.URL}, "gadget", "gadget-a", 8080)
		}))
	require.NoError(t, err)
	t.Cleanup(func() { connection.Close() })
	return grpc_health_v1.NewHealthClient(connection)
}

func TestPodsAreReachedThroughTheAPIServer(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	daemon := grpc.NewServer()
	grpc_health_v1.RegisterHealthServer(daemon, health.NewServer())
	go func() { _ = daemon.Serve(listener) }()
	t.Cleanup(daemon.Stop)
	api := kubelet(t, listener.Addr().String())
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	answer, err := client(t, api).Check(ctx, &grpc_health_v1.HealthCheckRequest{})
	require.NoError(t, err)
	require.Equal(t, grpc_health_v1.HealthCheckResponse_SERVING, answer.Status)
}

// The reason arrives on another stream than the one that fails, before or after it: hence
// the repetitions.
func TestAPodThatDoesNotListenIsReported(t *testing.T) {
	api := kubelet(t, "127.0.0.1:1")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for range 60 {
		_, err := client(t, api).Check(ctx, &grpc_health_v1.HealthCheckRequest{})
		require.ErrorContains(t, err, "no one listens on port 8080")
	}
}
