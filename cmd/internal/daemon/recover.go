// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"runtime/debug"

	log "github.com/sirupsen/logrus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// recovered keeps a client's request from ending the daemon. Inspektor Gadget v0.55.0
// dereferences a nil pointer when a client attaches to an instance that has not started,
// or failed to (GadgetInstance.AddClient, before it takes its lock).
func recovered(server any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) (err error) {
	defer func() {
		if cause := recover(); cause != nil {
			log.Errorf("%s: %v", info.FullMethod, cause)
			log.Debugf("%s", debug.Stack())
			err = status.Error(codes.FailedPrecondition, "the daemon could not do that: clients cannot attach to an instance that has not started")
		}
	}()
	return handler(server, stream)
}
