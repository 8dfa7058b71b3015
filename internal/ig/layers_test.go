// SPDX-License-Identifier: Apache-2.0

package ig

import (
	"testing"

	gadgetcontext "github.com/inspektor-gadget/inspektor-gadget/pkg/gadget-context"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/gadget-service/api"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/operators"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/operators/simple"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/stretchr/testify/require"
	"oras.land/oras-go/v2"
)

// modules replaces ig's WASM operator.
type modules struct{ run int }

func (*modules) Name() string { return "wasm" }

func (m *modules) InstantiateImageOperator(operators.GadgetContext, oras.ReadOnlyTarget, ocispec.Descriptor, api.ParamValues) (operators.ImageOperatorInstance, error) {
	m.run++
	return nil, nil
}

func TestModulesThatAnOperatorReplacesAreSkipped(t *testing.T) {
	inner := &modules{}
	operators.RegisterOperatorForMediaType(mediaTypeWASM, inner)
	operators.RegisterDataOperator(simple.New("names"))
	SkipReplacedModules()
	outer, ok := operators.GetImageOperatorForMediaType(mediaTypeWASM)
	require.True(t, ok)
	require.Equal(t, "wasm", outer.Name())

	gc := gadgetcontext.New(t.Context(), "")
	for _, c := range []struct {
		operator string
		run      int
	}{{"names", 0}, {"not registered", 1}, {"", 2}} {
		layer := ocispec.Descriptor{Annotations: map[string]string{OperatorAnnotation: c.operator}}
		_, err := outer.InstantiateImageOperator(gc, nil, layer, nil)
		require.NoError(t, err)
		require.Equal(t, c.run, inner.run, c.operator)
	}
	_, err := outer.InstantiateImageOperator(gc, nil, ocispec.Descriptor{}, nil)
	require.NoError(t, err)
	require.Equal(t, 3, inner.run, "modules of others")
}
