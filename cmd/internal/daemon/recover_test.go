// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/inspektor-gadget/inspektor-gadget/pkg/gadget-service/api"
	instancemanager "github.com/inspektor-gadget/inspektor-gadget/pkg/gadget-service/instance-manager"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/operators"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/params"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/runtime"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// failing is a runtime whose gadgets do not start.
type failing struct{ runtime.Runtime }

func (failing) ParamDescs() params.ParamDescs { return nil }
func (failing) RunGadget(runtime.GadgetContext, *params.Params, api.ParamValues) error {
	return errors.New("no such image")
}

// noOperators is a service.
type noOperators struct{}

func (noOperators) GetOperatorMap() map[operators.DataOperator]*params.Params { return nil }

// A request for the description of an instance that has failed would never end.
func TestAnInstanceThatHasFailedIsNotWaitedFor(t *testing.T) {
	manager, err := instancemanager.New(failing{})
	require.NoError(t, err)
	manager.Service = noOperators{}
	manager.RunGadget(&api.GadgetInstance{Id: "1", Name: "kernels", GadgetConfig: &api.GadgetRunRequest{ImageName: "cuda_kernel", Version: api.VersionGadgetRunProtocol}})
	var handled int
	request := func(r any) error {
		_, err := answered(manager)(t.Context(), r, nil, func(context.Context, any) (any, error) {
			handled++
			return nil, nil
		})
		return err
	}
	of := func(name string) *api.GetGadgetInfoRequest {
		return &api.GetGadgetInfoRequest{ImageName: name, Flags: api.GadgetInfoRequestFlagUseInstance}
	}
	require.Eventually(t, func() bool { return status.Code(request(of("kernels"))) == codes.FailedPrecondition }, 10*time.Second, time.Millisecond)
	require.ErrorContains(t, request(of("1")), "the instance has failed: no such image")

	handled = 0
	require.NoError(t, request(of("2")))
	require.NoError(t, request(&api.GetGadgetInfoRequest{ImageName: "kernels"}), "an image")
	require.NoError(t, request(&api.InfoRequest{}))
	require.Equal(t, 3, handled)
}
