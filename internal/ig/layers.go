// SPDX-License-Identifier: Apache-2.0

package ig

import (
	"github.com/inspektor-gadget/inspektor-gadget/pkg/gadget-service/api"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/operators"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2"
)

// OperatorAnnotation on a layer of a gadget's image names the data operator that replaces
// the layer: if it is registered, the layer is not instantiated. An ig without our
// operators ignores the annotation and runs the layer.
const OperatorAnnotation = "io.gpu-gadgets.operator"

// mediaTypeWASM is that of ig's pkg/operators/wasm.
const mediaTypeWASM = "application/vnd.gadget.wasm.program.v1+binary"

// SkipReplacedModules keeps ig from running WASM modules that a registered operator
// replaces. Call it once, after ig's operators were imported; it does nothing without
// ig's WASM operator.
func SkipReplacedModules() {
	if inner, ok := operators.GetImageOperatorForMediaType(mediaTypeWASM); ok {
		operators.RegisterOperatorForMediaType(mediaTypeWASM, skipper{inner})
	}
}

type skipper struct{ operators.ImageOperator }

// InstantiateImageOperator returns nil for a skipped layer, as ig documents it for
// operators that do not take part.
func (s skipper) InstantiateImageOperator(gc operators.GadgetContext, target oras.ReadOnlyTarget,
	layer ocispec.Descriptor, values api.ParamValues,
) (operators.ImageOperatorInstance, error) {
	if name := layer.Annotations[OperatorAnnotation]; name != "" {
		if _, ok := operators.GetDataOperators()[name]; ok {
			gc.Logger().Debugf("WASM module skipped: the operator %s does its work", name)
			return nil, nil
		}
	}
	return s.ImageOperator.InstantiateImageOperator(gc, target, layer, values)
}
