// SPDX-License-Identifier: Apache-2.0

package profile

// KindTensor is the kind of blocks that PyTorch's caching allocator allocates.
const KindTensor = "tensor"

// Layer is the allocator of the memory. PyTorch's blocks lie in segments that the driver
// allocated, so that the same bytes are in rows of both, and no sum may have both:
// each layer has sample types of its own, for which the other's rows are 0.
type Layer uint8

const (
	Driver Layer = iota
	Torch
)

// String is the layer's name in tables, files and metrics.
func (l Layer) String() string {
	if l == Torch {
		return "torch"
	}
	return "driver"
}

// LayerOf is the layer of a kind of memory.
func LayerOf(kind string) Layer {
	if kind == KindTensor {
		return Torch
	}
	return Driver
}

// Layer is that of the row's kind.
func (r *Row) Layer() Layer { return LayerOf(r.Kind) }

// Layer is whose values a type shows.
func (t Type) Layer() Layer {
	if t >= TensorAllocObjects {
		return Torch
	}
	return Driver
}

// Get is the value of the type; 0 if the type belongs to the other layer.
func (r *Row) Get(t Type) int64 {
	if t.Layer() != r.Layer() {
		return 0
	}
	return r.Values.Get(t)
}

// TensorTypes are the sample types of a profile of memory with rows of Torch, in the
// order of the files, behind those of the subject.
func TensorTypes() []Type {
	return []Type{TensorAllocObjects, TensorAllocSpace, TensorInuseObjects, TensorInuseSpace}
}

// DeviceTypes are the sample types of a profile of calls with rows of what the GPU ran,
// in the order of the files, behind those of the subject.
func DeviceTypes() []Type { return []Type{Kernels, DeviceTime} }

// PeakTypes are the sample types of a profile of memory whose rows know their peak, one
// for each layer.
func PeakTypes() []Type { return []Type{PeakSpace, TensorPeakSpace} }

// WasteTypes are the sample types of a profile whose rows of Torch know what the pool loses.
func WasteTypes() []Type { return []Type{TensorRoundingSpace, TensorFragmentedSpace} }

// Types are those that the profile's rows have values of, in the order of the files.
func (p *Profile) Types() []Type {
	var hasTensors, hasWaste, hasKernels bool
	var hasPeak [2]bool // by layer
	for i := range p.Rows {
		r := &p.Rows[i]
		hasTensors = hasTensors || r.Layer() == Torch
		hasWaste = hasWaste || r.Layer() == Torch && (r.RoundingBytes != 0 || r.FragmentedBytes != 0)
		hasKernels = hasKernels || r.Kernels != 0
		hasPeak[r.Layer()] = hasPeak[r.Layer()] || r.AtPeakBytes != 0
	}
	types := p.Subject.Types()
	if hasPeak[Driver] {
		types = append(types, PeakSpace)
	}
	if hasTensors {
		types = append(types, TensorTypes()...)
	}
	if hasPeak[Torch] {
		types = append(types, TensorPeakSpace)
	}
	if hasWaste {
		types = append(types, WasteTypes()...)
	}
	if hasKernels {
		types = append(types, DeviceTypes()...)
	}
	return types
}
