// SPDX-License-Identifier: Apache-2.0

package profile

import (
	"fmt"
)

// Values are one row's counters since the row exists. Bytes and objects (calls
// that returned memory) go in pairs. They are signed so that the difference of
// two is a Values, too.
type Values struct {
	AllocBytes, AllocObjects int64
	FreedBytes, FreedObjects int64
	// Implicit: freed by the end of the process or of its CUDA context.
	ImplicitBytes, ImplicitObjects int64
	// In use = alloc − freed − implicit.
	InuseBytes, InuseObjects int64
	// PeakBytes is the highest InuseBytes so far. Rows merged into one may
	// have peaked at different times: their sum is an upper bound.
	PeakBytes int64
	// AtPeakBytes was in use at the moment at which the process held the most
	// on the row's device (Peaks), or of pinned memory of the host: the rows of a
	// process and device add up to that.
	AtPeakBytes int64
	// Of InuseBytes, what PyTorch's pool added to requests; and, beside InuseBytes, the part
	// of its segments that no tensor uses, by the rows whose blocks keep them. 0: not recorded.
	RoundingBytes, FragmentedBytes int64

	// Samples is how often a stack was met, GILSamples how often its thread
	// held the GIL then, Nanoseconds the time that the samples stand for.
	Samples, GILSamples int64
	Nanoseconds         int64

	// Calls of the driver: all of them, those that launched a kernel or a graph, the
	// bytes of copies, the time that all took on the CPU's side, and of it what threads
	// waited for the device.
	Calls, Launches, CopiedBytes     int64
	HostNanoseconds, WaitNanoseconds int64

	// Kernels that the GPU is known to have run, and for how long; of a part of the
	// launches, from CUPTI in the process.
	Kernels, DeviceNanoseconds int64
}

// Add is the sum, field by field.
func (v Values) Add(w Values) Values {
	v.AllocBytes += w.AllocBytes
	v.AllocObjects += w.AllocObjects
	v.FreedBytes += w.FreedBytes
	v.FreedObjects += w.FreedObjects
	v.ImplicitBytes += w.ImplicitBytes
	v.ImplicitObjects += w.ImplicitObjects
	v.InuseBytes += w.InuseBytes
	v.InuseObjects += w.InuseObjects
	v.PeakBytes += w.PeakBytes
	v.AtPeakBytes += w.AtPeakBytes
	v.RoundingBytes += w.RoundingBytes
	v.FragmentedBytes += w.FragmentedBytes
	v.Samples += w.Samples
	v.GILSamples += w.GILSamples
	v.Nanoseconds += w.Nanoseconds
	v.Calls += w.Calls
	v.Launches += w.Launches
	v.CopiedBytes += w.CopiedBytes
	v.HostNanoseconds += w.HostNanoseconds
	v.WaitNanoseconds += w.WaitNanoseconds
	v.Kernels += w.Kernels
	v.DeviceNanoseconds += w.DeviceNanoseconds
	return v
}

// Sub is the difference, field by field.
func (v Values) Sub(w Values) Values {
	return v.Add(Values{
		AllocBytes: -w.AllocBytes, AllocObjects: -w.AllocObjects,
		FreedBytes: -w.FreedBytes, FreedObjects: -w.FreedObjects,
		ImplicitBytes: -w.ImplicitBytes, ImplicitObjects: -w.ImplicitObjects,
		InuseBytes: -w.InuseBytes, InuseObjects: -w.InuseObjects,
		PeakBytes: -w.PeakBytes, AtPeakBytes: -w.AtPeakBytes,
		RoundingBytes: -w.RoundingBytes, FragmentedBytes: -w.FragmentedBytes,
		Samples: -w.Samples, GILSamples: -w.GILSamples, Nanoseconds: -w.Nanoseconds,
		Calls: -w.Calls, Launches: -w.Launches, CopiedBytes: -w.CopiedBytes,
		HostNanoseconds: -w.HostNanoseconds, WaitNanoseconds: -w.WaitNanoseconds,
		Kernels: -w.Kernels, DeviceNanoseconds: -w.DeviceNanoseconds,
	})
}

// Check reports whether the counters of a snapshot agree with each other.
func (v Values) Check() error {
	if v.InuseBytes != v.AllocBytes-v.FreedBytes-v.ImplicitBytes {
		return fmt.Errorf("in use %d bytes is not allocated %d − freed %d − freed implicitly %d",
			v.InuseBytes, v.AllocBytes, v.FreedBytes, v.ImplicitBytes)
	}
	if v.InuseObjects != v.AllocObjects-v.FreedObjects-v.ImplicitObjects {
		return fmt.Errorf("in use %d objects is not allocated %d − freed %d − freed implicitly %d",
			v.InuseObjects, v.AllocObjects, v.FreedObjects, v.ImplicitObjects)
	}
	if v.InuseBytes < 0 || v.InuseObjects < 0 || v.PeakBytes < v.InuseBytes {
		return fmt.Errorf("in use %d bytes, %d objects, peak %d bytes", v.InuseBytes, v.InuseObjects, v.PeakBytes)
	}
	return nil
}

// Type is a sample type that a flame graph can show, in the order of the files.
type Type uint8

const (
	AllocObjects Type = iota
	AllocSpace
	InuseObjects
	InuseSpace
	// PeakSpace is AtPeakBytes; see PeakTypes.
	PeakSpace
	Samples
	CPUTime
	WallTime
	Launches
	Copied
	Wait
	HostTime
	// Kernels and DeviceTime are there where they are known; see DeviceTypes.
	Kernels
	DeviceTime
	// TensorAllocObjects and those below are of rows of the layer Torch; see TensorTypes.
	TensorAllocObjects
	TensorAllocSpace
	TensorInuseObjects
	TensorInuseSpace
	TensorPeakSpace
	// TensorRoundingSpace and TensorFragmentedSpace are waste of the pool; see WasteTypes.
	TensorRoundingSpace
	TensorFragmentedSpace
)

// String is pprof's name of the type.
func (t Type) String() string {
	return [...]string{"alloc_objects", "alloc_space", "inuse_objects", "inuse_space", "peak_space",
		"samples", "cpu", "wall", "launches", "copied", "wait", "host_time", "kernels", "device",
		"tensor_alloc_objects", "tensor_alloc_space", "tensor_inuse_objects", "tensor_inuse_space", "tensor_peak_space",
		"tensor_rounding_space", "tensor_fragmented_space"}[t]
}

// Unit is pprof's unit of the type.
func (t Type) Unit() string {
	switch t {
	case AllocSpace, InuseSpace, PeakSpace, Copied, TensorAllocSpace, TensorInuseSpace, TensorPeakSpace,
		TensorRoundingSpace, TensorFragmentedSpace:
		return "bytes"
	case CPUTime, WallTime, Wait, HostTime, DeviceTime:
		return "nanoseconds"
	default:
		return "count"
	}
}

// Subject is the subject of a profile, which decides its sample types.
type Subject uint8

const (
	Memory Subject = iota
	CPU
	Wall
	// Calls are those of the CUDA driver and its libraries.
	Calls
)

// Subjects are all of them.
func Subjects() []Subject { return []Subject{Memory, CPU, Wall, Calls} }

// Types are those of a pprof file; the position is the column.
func (s Subject) Types() []Type {
	switch s {
	case CPU:
		return []Type{Samples, CPUTime}
	case Wall:
		return []Type{Samples, WallTime}
	case Calls:
		return []Type{Launches, Copied, Wait, HostTime}
	default:
		return []Type{AllocObjects, AllocSpace, InuseObjects, InuseSpace}
	}
}

// Types are those of memory.
func Types() []Type { return Memory.Types() }

// Default is the type that is shown first.
func (s Subject) Default() Type {
	types := s.Types()
	return types[len(types)-1]
}

// Get is the value of the type.
func (v Values) Get(t Type) int64 {
	switch t {
	case AllocObjects, TensorAllocObjects:
		return v.AllocObjects
	case AllocSpace, TensorAllocSpace:
		return v.AllocBytes
	case InuseObjects, TensorInuseObjects:
		return v.InuseObjects
	case InuseSpace, TensorInuseSpace:
		return v.InuseBytes
	case PeakSpace, TensorPeakSpace:
		return v.AtPeakBytes
	case TensorRoundingSpace:
		return v.RoundingBytes
	case TensorFragmentedSpace:
		return v.FragmentedBytes
	case Samples:
		return v.Samples
	case Launches:
		return v.Launches
	case Copied:
		return v.CopiedBytes
	case Wait:
		return v.WaitNanoseconds
	case HostTime:
		return v.HostNanoseconds
	case Kernels:
		return v.Kernels
	case DeviceTime:
		return v.DeviceNanoseconds
	default:
		return v.Nanoseconds
	}
}
