// SPDX-License-Identifier: Apache-2.0

package remote

import (
	"context"
	"crypto/tls"
	"net"

	"google.golang.org/grpc/credentials"
)

// Credentials are those of a gRPC client with TLS. The configuration is made again for each connection, from
// files as they are then: certificates are renewed while a program runs. An error fails that connection.
func Credentials(config func() (*tls.Config, error)) credentials.TransportCredentials {
	return renewed{credentials.NewTLS(&tls.Config{MinVersion: tls.VersionTLS12}), config}
}

// renewed has the handshake of the current configuration, and all else of TLS.
type renewed struct {
	credentials.TransportCredentials
	config func() (*tls.Config, error)
}

// ClientHandshake implements credentials.TransportCredentials.
func (r renewed) ClientHandshake(ctx context.Context, authority string, raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	c, err := r.config()
	if err != nil {
		return nil, nil, err
	}
	return credentials.NewTLS(c).ClientHandshake(ctx, authority, raw)
}

// Clone implements credentials.TransportCredentials.
func (r renewed) Clone() credentials.TransportCredentials {
	return renewed{r.TransportCredentials.Clone(), r.config}
}
