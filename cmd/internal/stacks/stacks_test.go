// SPDX-License-Identifier: Apache-2.0

package stacks

import (
	"errors"
	"testing"

	"github.com/inspektor-gadget/inspektor-gadget/pkg/gadget-service/api"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/operators"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/operators/simple"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/params"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/runtime"
	"github.com/stretchr/testify/require"
)

func TestBesideIsTheSameRegistryAndTag(t *testing.T) {
	for image, want := range map[string]string{
		"nccl_trace":    "py_stack",
		"nccl_trace:v1": "py_stack:v1",
		"registry.example:5000/gpu/nccl_trace:v1":   "registry.example:5000/gpu/py_stack:v1",
		"registry.example:5000/gpu/nccl_trace":      "registry.example:5000/gpu/py_stack",
		"registry.example/gpu/nccl_trace@sha256:00": "",
		"": "",
	} {
		got, ok := Beside(image)
		require.Equal(t, want, got)
		require.Equal(t, want != "", ok)
	}
}

// requested records the image that is run.
type requested struct{ image string }

var errRun = errors.New("not here")

func (a *requested) RunGadget(gc runtime.GadgetContext, _ *params.Params, _ api.ParamValues) error {
	a.image = gc.ImageName()
	return errRun
}

func TestWhichImageIsRun(t *testing.T) {
	for _, name := range needed {
		operators.RegisterDataOperator(simple.New(name))
	}
	a := &requested{}
	_, err := New(a)(t.Context(), "registry.example/nccl_trace:v1", []uint32{1})
	require.ErrorIs(t, err, errRun)
	require.Equal(t, "py_stack", a.image)
	_, err = NewBeside(a)(t.Context(), "registry.example/nccl_trace:v1", []uint32{1})
	require.ErrorIs(t, err, errRun)
	require.Equal(t, "registry.example/py_stack:v1", a.image)
	_, err = NewBeside(a)(t.Context(), "registry.example/nccl_trace@sha256:00", []uint32{1})
	require.ErrorContains(t, err, "digest")
}
