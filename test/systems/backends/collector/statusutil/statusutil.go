// SPDX-License-Identifier: Apache-2.0

// Package statusutil replaces the collector's internal package of that name,
// with the two functions that the OTLP receiver and the OTLP exporter over HTTP call.
package statusutil

import (
	"net/http"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// codeByHTTP has the codes of the OTLP specification ("Failures", "OTLP/HTTP
// Response") and else those of gRPC's own mapping of HTTP statuses.
var codeByHTTP = map[int]codes.Code{
	http.StatusBadRequest:         codes.InvalidArgument,
	http.StatusUnauthorized:       codes.Unauthenticated,
	http.StatusForbidden:          codes.PermissionDenied,
	http.StatusNotFound:           codes.Unimplemented,
	http.StatusTooManyRequests:    codes.ResourceExhausted,
	http.StatusBadGateway:         codes.Unavailable,
	http.StatusServiceUnavailable: codes.Unavailable,
	http.StatusGatewayTimeout:     codes.Unavailable,
}

// NewStatusFromMsgAndHTTPCode makes a gRPC status of an HTTP answer.
func NewStatusFromMsgAndHTTPCode(message string, httpStatus int) *status.Status {
	code, ok := codeByHTTP[httpStatus]
	if !ok {
		code = codes.Unknown
	}
	return status.New(code, message)
}

// GetRetryInfo returns the retry delay of the server; nil: there is none.
func GetRetryInfo(s *status.Status) *errdetails.RetryInfo {
	for _, detail := range s.Details() {
		if info, ok := detail.(*errdetails.RetryInfo); ok {
			return info
		}
	}
	return nil
}
