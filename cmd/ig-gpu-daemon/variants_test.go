// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"os"
	"regexp"
	"testing"

	gadgetcontext "github.com/inspektor-gadget/inspektor-gadget/pkg/gadget-context"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/gadget-service/api"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/operators/simple"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/params"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/runtime"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/gpu-gadgets/gpu-gadgets/cmd/internal/machine"
)

// inner is a runtime that keeps the context it was given.
type inner struct {
	runtime.Runtime
	gc runtime.GadgetContext
}

func (i *inner) RunGadget(gc runtime.GadgetContext, _ *params.Params, _ api.ParamValues) error {
	i.gc = gc
	return nil
}

func kernel(loads error) machine.Machine {
	return machine.Machine{Release: "5.15.0-generic", LoadSleepable: func() error { return loads }}
}

// client sends one request.
type client struct {
	grpc.ServerStream
	image string
}

func (c client) RecvMsg(message any) error {
	message.(*api.GadgetControlRequest).Event = &api.GadgetControlRequest_RunRequest{RunRequest: &api.GadgetRunRequest{ImageName: c.image}}
	return nil
}

func TestOldKernelsRunTheImagesForThem(t *testing.T) {
	for _, c := range []struct {
		kernel          error
		image, want, no string
	}{
		{nil, "r/cuda_alloc:v1", "r/cuda_alloc:v1", ""},
		{nil, "r/py_stack:v1@sha256:0", "r/py_stack:v1@sha256:0", ""},
		{unix.EINVAL, "r/cuda_alloc:v1", "r/cuda_alloc_linux_5_10:v1", ""},
		{unix.EINVAL, "r/cuda_alloc_linux_5_10@sha256:0", "r/cuda_alloc_linux_5_10@sha256:0", ""},
		{unix.EINVAL, "trace_exec:latest", "trace_exec:latest", ""},
		{unix.EINVAL, "r/py_stack:v1", "", "py_stack needs Linux 6.1 or newer, this is 5.15.0-generic"},
		{unix.EINVAL, "r/cuda_alloc:v1@sha256:0", "", "name the image of cuda_alloc_linux_5_10"},
	} {
		t.Run(c.want+c.no, func(t *testing.T) {
			in := &inner{}
			v := variantsFor(in, kernel(c.kernel))
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			gc := gadgetcontext.New(ctx, c.image, gadgetcontext.WithAsRemoteCall(true), gadgetcontext.WithName("memory"),
				gadgetcontext.WithID("7"), gadgetcontext.WithDataOperators(simple.New("one")))
			err := v.RunGadget(gc, nil, nil)
			request := &api.GadgetControlRequest{}
			runErr := v.run(nil, client{image: c.image}, nil, func(_ any, stream grpc.ServerStream) error { return stream.RecvMsg(request) })
			if c.no != "" {
				require.ErrorContains(t, err, c.no)
				require.ErrorContains(t, runErr, c.no)
				require.Equal(t, codes.FailedPrecondition, status.Code(runErr))
				return
			}
			require.NoError(t, err)
			require.NoError(t, runErr)
			require.Equal(t, c.want, request.GetRunRequest().ImageName)
			require.Equal(t, []string{c.want, "memory", "7"}, []string{in.gc.ImageName(), in.gc.Name(), in.gc.ID()})
			require.True(t, in.gc.IsRemoteCall())
			require.Len(t, in.gc.DataOperators(), 1)
			gc.Cancel()
			require.ErrorIs(t, in.gc.Context().Err(), context.Canceled, "it ends with the instance")
		})
	}
}

func TestAllVariantsAreKnown(t *testing.T) {
	text, err := os.ReadFile("../../build.yaml")
	require.NoError(t, err)
	var names []string
	for _, found := range regexp.MustCompile(`(?m)^  - name: (\w+)_linux_5_10$`).FindAllStringSubmatch(string(text), -1) {
		names = append(names, found[1])
	}
	require.ElementsMatch(t, names, compiledTwice)
}
