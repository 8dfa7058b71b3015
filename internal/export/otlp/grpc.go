// SPDX-License-Identifier: Apache-2.0

package otlp

import (
	"context"
	"fmt"
	"strings"
	"time"

	logs "go.opentelemetry.io/proto/otlp/collector/logs/v1"
	collector "go.opentelemetry.io/proto/otlp/collector/profiles/v1development"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding/gzip"
	"google.golang.org/grpc/status"

	"github.com/gpu-gadgets/gpu-gadgets/internal/export/queue"
	"github.com/gpu-gadgets/gpu-gadgets/internal/export/remote"
)

type grpcExporter struct {
	connection *grpc.ClientConn
	profilesTo collector.ProfilesServiceClient
	logsTo     logs.LogsServiceClient
}

func newGRPC(e *remote.Endpoint) (*grpcExporter, error) {
	secure := insecure.NewCredentials()
	port := "80"
	if e.IsTLS() {
		secure, port = remote.Credentials(e.TLS), "443"
	}
	target := e.URL.Host
	if e.URL.Port() == "" {
		target += ":" + port
	}
	connection, err := grpc.NewClient("dns:///"+target,
		grpc.WithTransportCredentials(secure),
		grpc.WithPerRPCCredentials(headers{e}),
		grpc.WithDefaultCallOptions(grpc.UseCompressor(gzip.Name)),
		// gRPC's own backoff between connections is short, because ours is added
		// to it. Its default grows to 2 minutes.
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: 2 * time.Second},
			MinConnectTimeout: 5 * time.Second,
		}))
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", target, err)
	}
	return &grpcExporter{connection, collector.NewProfilesServiceClient(connection), logs.NewLogsServiceClient(connection)}, nil
}

// headers are read for each request, as those of HTTP.
type headers struct{ endpoint *remote.Endpoint }

func (h headers) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	header, err := h.endpoint.Header()
	if err != nil {
		return nil, err
	}
	m := map[string]string{}
	for name, values := range header {
		m[strings.ToLower(name)] = strings.Join(values, ",")
	}
	return m, nil
}

func (headers) RequireTransportSecurity() bool { return false }

func (g *grpcExporter) close() { _ = g.connection.Close() }

func (g *grpcExporter) profiles(ctx context.Context, r *collector.ExportProfilesServiceRequest) (code, error) {
	answer, err := g.profilesTo.Export(ctx, r)
	if err != nil {
		return grpcError(err)
	}
	return codeOK, partial(answer.GetPartialSuccess().GetRejectedProfiles(), answer.GetPartialSuccess().GetErrorMessage())
}

func (g *grpcExporter) logs(ctx context.Context, r *logs.ExportLogsServiceRequest) (code, error) {
	answer, err := g.logsTo.Export(ctx, r)
	if err != nil {
		return grpcError(err)
	}
	return codeOK, partial(answer.GetPartialSuccess().GetRejectedLogRecords(), answer.GetPartialSuccess().GetErrorMessage())
}

func grpcError(err error) (code, error) {
	s := status.Convert(err)
	err = fmt.Errorf("%s: %s", s.Code(), oneLine(s.Message()))
	isAnswer := false // to this request, and another one may be accepted
	switch s.Code() {
	case codes.InvalidArgument, codes.FailedPrecondition:
		return codeOther, &queue.RejectedError{Err: err}
	case codes.Internal:
		// A message that cannot be decoded, one that failed in the server's pipeline and a
		// connection that broke in the middle of one have the same code.
		if strings.Contains(s.Message(), "unmarshal") || strings.Contains(s.Message(), "proto: ") || strings.Contains(s.Message(), "wireType") {
			return codeOther, &queue.RejectedError{Err: err}
		}
		isAnswer = !strings.Contains(s.Message(), "RST_STREAM")
	case codes.ResourceExhausted:
		// Too large has the same status as too much.
		if strings.Contains(s.Message(), "larger than max") {
			return codeOther, &queue.RejectedError{Err: err}
		}
		isAnswer = true
	case codes.Unknown, codes.Aborted, codes.OutOfRange, codes.DataLoss:
		isAnswer = true
	case codes.Unauthenticated:
		return codeUnauthorized, err
	case codes.PermissionDenied:
		return codeForbidden, err
	case codes.Unimplemented, codes.NotFound:
		return codeUnknownPath, err
	}
	for _, detail := range s.Details() {
		if info, ok := detail.(*errdetails.RetryInfo); ok && info.GetRetryDelay().AsDuration() > 0 {
			err = &queue.LaterError{Err: err, After: info.GetRetryDelay().AsDuration()}
		}
	}
	if isAnswer {
		err = &queue.AnsweredError{Err: err}
	}
	return codeUnreachable, err
}
