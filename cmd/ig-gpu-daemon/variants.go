// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"slices"

	gadgetcontext "github.com/inspektor-gadget/inspektor-gadget/pkg/gadget-context"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/gadget-service/api"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/params"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/runtime"
	log "github.com/sirupsen/logrus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/gpu-gadgets/gpu-gadgets/cmd/internal/machine"
	"github.com/gpu-gadgets/gpu-gadgets/internal/ig"
)

// compiledTwice are our gadgets with an image for old kernels; needsSleep has none (build.yaml).
var compiledTwice = []string{"cuda_alloc", "cuda_kernel", "hip_alloc", "hip_kernel", "nccl_trace"}

const needsSleep = "py_stack"

// variants is a runtime that on kernels whose uprobe programs may not sleep runs the images of our
// gadgets that are compiled for these. An instance names one image for all nodes of a cluster, and
// their kernels can differ.
type variants struct {
	runtime.Runtime
	machine machine.Machine
	isOld   bool
}

// variantsFor loads a program to learn what the kernel can.
func variantsFor(inner runtime.Runtime, m machine.Machine) *variants {
	v := &variants{Runtime: inner, machine: m, isOld: m.CannotSleep()}
	if v.isOld {
		log.Infof("this kernel's probes cannot wait for a page that is not in memory: the gadgets' images for Linux 5.10 (NAME%s) run here; "+
			"stacks that lack frames for it are counted as python_unreadable", ig.OldKernels)
	}
	return v
}

// image is the image to run for one that was requested.
func (v *variants) image(requested string) (string, error) {
	name := ig.GadgetName(requested)
	switch {
	case !v.isOld:
		return requested, nil
	case name == needsSleep:
		return "", v.machine.NeedsSleep(name)
	case !slices.Contains(compiledTwice, name):
		return requested, nil
	}
	image := ig.ForOldKernels(requested)
	if image == "" {
		return "", fmt.Errorf("this kernel (%s) needs another image, which cannot be derived from one with a digest (%s): name the image of %s%s",
			v.machine.Release, requested, name, ig.OldKernels)
	}
	return image, nil
}

// RunGadget runs instances. An image is part of a context and cannot be changed, so it makes another one, which
// ends with the first.
func (v *variants) RunGadget(gc runtime.GadgetContext, global *params.Params, values api.ParamValues) error {
	image, err := v.image(gc.ImageName())
	if err != nil {
		return err
	}
	if image == gc.ImageName() {
		return v.Runtime.RunGadget(gc, global, values)
	}
	return v.Runtime.RunGadget(gadgetcontext.New(gc.Context(), image,
		gadgetcontext.WithLogger(gc.Logger()), gadgetcontext.WithDataOperators(gc.DataOperators()...),
		gadgetcontext.WithAsRemoteCall(gc.IsRemoteCall()), gadgetcontext.WithTimeout(gc.Timeout()),
		gadgetcontext.WithName(gc.Name()), gadgetcontext.WithID(gc.ID()),
	), global, values)
}

// intercept does the same for clients, whose gadgets Inspektor Gadget's service runs in a runtime of its own. That a
// gadget is only described takes no kernel, and it may run on another node than the one that describes it.
func (v *variants) intercept() []grpc.ServerOption {
	if !v.isOld {
		return nil
	}
	return []grpc.ServerOption{grpc.ChainStreamInterceptor(v.run)}
}

func (v *variants) run(server any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	return handler(server, requests{stream, v})
}

// requests are those of a client.
type requests struct {
	grpc.ServerStream
	variants *variants
}

// RecvMsg implements grpc.ServerStream.
func (r requests) RecvMsg(message any) error {
	if err := r.ServerStream.RecvMsg(message); err != nil {
		return err
	}
	request, ok := message.(*api.GadgetControlRequest)
	if !ok || request.GetRunRequest() == nil {
		return nil
	}
	run := request.GetRunRequest()
	image, err := r.variants.image(run.ImageName)
	if err != nil {
		return status.Error(codes.FailedPrecondition, err.Error())
	}
	run.ImageName = image
	return nil
}
