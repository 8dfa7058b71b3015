// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"runtime/debug"

	"github.com/inspektor-gadget/inspektor-gadget/pkg/gadget-service/api"
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

// states knows how instances are; instancemanager.Manager does.
type states interface {
	InstanceState(id string) (*api.GadgetInstanceState, error)
}

// answered refuses to describe an instance that has failed. Inspektor Gadget v0.55.0 waits until it has
// started, whatever becomes of the request (GadgetInstance.GadgetInfo): one that failed before never does.
func answered(instances states) grpc.UnaryServerInterceptor {
	return func(ctx context.Context, request any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
		if r, ok := request.(*api.GetGadgetInfoRequest); ok && r.GetFlags()&api.GadgetInfoRequestFlagUseInstance != 0 {
			state, err := instances.InstanceState(r.GetImageName())
			if err == nil && state.GetStatus() == api.GadgetInstanceStatus_StatusError {
				return nil, status.Errorf(codes.FailedPrecondition, "the instance has failed: %s", state.GetMessage())
			}
		}
		return handler(ctx, request)
	}
}
