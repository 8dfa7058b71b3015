// SPDX-License-Identifier: Apache-2.0

package ig

import (
	"github.com/inspektor-gadget/inspektor-gadget/pkg/gadget-service/api"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/operators"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2"
)

// OperatorAnnotation on a layer of a gadget's image names the data operator that
// does the layer's work better: where it is registered, the layer is not to be
// instantiated. An ig without our operators does not know the annotation, and
// runs the layer.
const OperatorAnnotation = "io.gpu-gadgets.operator"

// mediaTypeWASM is that of ig's pkg/operators/wasm.
const mediaTypeWASM = "application/vnd.gadget.wasm.program.v1+binary"

// SkipReplacedModules keeps ig from running WASM modules that say that a
// registered operator replaces them. To be called once, after ig's operators were
// imported; without ig's WASM operator there is nothing to do.
func SkipReplacedModules() {
	if inner, ok := operators.GetImageOperatorForMediaType(mediaTypeWASM); ok {
		operators.RegisterOperatorForMediaType(mediaTypeWASM, skipper{inner})
	}
}

type skipper struct{ operators.ImageOperator }

// InstantiateImageOperator gives nil for a layer that is skipped, as ig documents
// it for operators that stay out.
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
