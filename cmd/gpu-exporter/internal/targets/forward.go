// SPDX-License-Identifier: Apache-2.0

package targets

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/transport/spdy"
	"k8s.io/streaming/pkg/httpstream"
)

// forward connects to a port of a pod through the API server, by the protocol of kubectl
// port-forward (client-go's tools/portforward, which would listen on a local port, open
// to all users of this machine).
func forward(ctx context.Context, config *rest.Config, namespace, pod string, port uint16) (net.Conn, error) {
	config = rest.CopyConfig(config)
	config.GroupVersion = &corev1.SchemeGroupVersion
	config.APIPath = "/api"
	config.NegotiatedSerializer = scheme.Codecs.WithoutConversion()
	client, err := rest.RESTClientFor(config)
	if err != nil {
		return nil, err
	}
	url := client.Post().Resource("pods").Namespace(namespace).Name(pod).SubResource("portforward").URL()
	transport, upgrader, err := spdy.RoundTripperFor(config)
	if err != nil {
		return nil, err
	}
	// The dialer takes no context: if the caller gives up, it ends by itself later.
	type result struct {
		conn net.Conn
		err  error
	}
	done := make(chan result, 1)
	go func() {
		conn, err := dialStreams(spdy.NewDialerForStreaming(upgrader, &http.Client{Transport: transport}, http.MethodPost, url), port)
		done <- result{conn, err}
	}()
	select {
	case r := <-done:
		if r.err != nil {
			return nil, fmt.Errorf("forward port %d of pod %s/%s: %w", port, namespace, pod, r.err)
		}
		return r.conn, nil
	case <-ctx.Done():
		go func() {
			if r := <-done; r.err == nil {
				r.conn.Close()
			}
		}()
		return nil, ctx.Err()
	}
}

func dialStreams(dialer httpstream.Dialer, port uint16) (net.Conn, error) {
	connection, _, err := dialer.Dial(portforward.PortForwardProtocolV1Name)
	if err != nil {
		return nil, err
	}
	header := http.Header{}
	header.Set(corev1.StreamType, corev1.StreamTypeError)
	header.Set(corev1.PortHeader, strconv.Itoa(int(port)))
	header.Set(corev1.PortForwardRequestIDHeader, "0")
	refusals, err := connection.CreateStream(header)
	if err != nil {
		connection.Close()
		return nil, fmt.Errorf("open the stream of errors: %w", err)
	}
	refusals.Close() // for writing
	header.Set(corev1.StreamType, corev1.StreamTypeData)
	data, err := connection.CreateStream(header)
	if err != nil {
		connection.Close()
		return nil, fmt.Errorf("open the stream of data: %w", err)
	}
	c := &streamConn{Stream: data, connection: connection, port: port, finished: make(chan struct{})}
	go func() {
		defer close(c.finished)
		// The kubelet reports here why it cannot connect.
		text, err := io.ReadAll(io.LimitReader(refusals, 4<<10))
		if err == nil && len(text) > 0 {
			c.refused = fmt.Errorf("the kubelet says: %s", text)
		}
	}()
	go func() {
		if <-c.finished; c.refused != nil {
			connection.Close()
		}
	}()
	return c, nil
}

// streamConn is a stream as a connection. Deadlines do nothing: gRPC sets one for the
// handshake only, and closes connections that take too long.
type streamConn struct {
	httpstream.Stream
	connection httpstream.Connection
	port       uint16
	finished   chan struct{} // closed when the kubelet's error stream has ended
	refused    error         // its error, if any; read after finished is closed
}

func (c *streamConn) Read(b []byte) (int, error) {
	n, err := c.Stream.Read(b)
	return n, c.cause(err)
}

func (c *streamConn) Write(b []byte) (int, error) {
	n, err := c.Stream.Write(b)
	return n, c.cause(err)
}

// cause returns why a stream of data has failed. The kubelet's message, which is more
// specific, arrives on another stream and possibly a little later.
func (c *streamConn) cause(err error) error {
	if err == nil {
		return nil
	}
	select {
	case <-c.finished:
		if c.refused != nil {
			return c.refused
		}
	case <-time.After(time.Second):
	}
	return err
}

func (c *streamConn) Close() error {
	return errors.Join(c.Stream.Close(), c.connection.Close())
}

func (*streamConn) SetDeadline(time.Time) error      { return nil }
func (*streamConn) SetReadDeadline(time.Time) error  { return nil }
func (*streamConn) SetWriteDeadline(time.Time) error { return nil }
func (c *streamConn) LocalAddr() net.Addr            { return podAddr("this side") }
func (c *streamConn) RemoteAddr() net.Addr           { return podAddr("port " + strconv.Itoa(int(c.port))) }

type podAddr string

func (podAddr) Network() string  { return "portforward" }
func (a podAddr) String() string { return string(a) }
