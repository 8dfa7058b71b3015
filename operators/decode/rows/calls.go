// SPDX-License-Identifier: Apache-2.0

package rows

import (
	"errors"
	"fmt"

	"github.com/inspektor-gadget/inspektor-gadget/pkg/datasource"

	"github.com/gpu-gadgets/gpu-gadgets/internal/profile"
	"github.com/gpu-gadgets/gpu-gadgets/internal/stack"
)

// callFields are the rows of cuda_kernel.
type callFields struct {
	processFields
	row, device, operation, direction, kernel, status datasource.FieldAccessor
	api                                               datasource.FieldAccessor // nil: of older gadgets
	calls, bytes, nanoseconds, onDevice               datasource.FieldAccessor
}

func bindCalls(ds datasource.DataSource) (callFields, error) {
	process, err := bindProcess(ds)
	if err != nil {
		return callFields{}, err
	}
	// The name was added by the operator kernels, or by the image's module.
	f := callFields{processFields: process, kernel: ds.GetField("kernel"), api: ds.GetField("api"), onDevice: ds.GetField("device_ns")}
	for name, to := range map[string]*datasource.FieldAccessor{
		"row": &f.row, "device": &f.device, "operation": &f.operation, "direction": &f.direction, "status": &f.status,
		"calls": &f.calls, "bytes": &f.bytes, "host_ns": &f.nanoseconds,
	} {
		if *to = ds.GetField(name); *to == nil {
			err = errors.Join(err, fmt.Errorf("data source %s has no %s", ds.Name(), name))
		}
	}
	return f, err
}

func (f *callFields) ID(d datasource.Data) profile.RowID {
	process, _ := number(f.id, d)
	stackID, _ := number(f.stackID, d)
	row, _ := number(f.row, d)
	device, _ := number(f.device, d)
	id := profile.RowID{Process: process, StackID: stackID, Row: row, Device: int32(device), Kind: text(f.operation, d)}
	if direction := text(f.direction, d); direction != "" {
		id.Kind += " " + direction
	}
	f.span(&id, d)
	return id
}

// IsKernel reports whether an operation is not a call but a kernel on the GPU.
func IsKernel(operation string) bool { return operation == "kernel" || operation == "unseen" }

func (f *callFields) Values(d datasource.Data) profile.Values {
	if IsKernel(text(f.operation, d)) {
		return profile.Values{Kernels: value(f.calls, d), DeviceNanoseconds: value(f.onDevice, d)}
	}
	v := profile.Values{Calls: value(f.calls, d), HostNanoseconds: value(f.nanoseconds, d)}
	status, _ := number(f.status, d)
	switch operation := text(f.operation, d); {
	case operation == "wait":
		v.WaitNanoseconds = v.HostNanoseconds
	case status != 0:
		// Nothing was done.
	case operation == "launch", operation == "graph":
		v.Launches = v.Calls
	case operation == "copy", operation == "prefetch":
		v.CopiedBytes = value(f.bytes, d)
		if profile.IsWait(operation, text(f.direction, d), text(f.api, d)) {
			v.WaitNanoseconds = v.HostNanoseconds
		}
	}
	return v
}

func (f *callFields) Kernel(d datasource.Data) string { return text(f.kernel, d) }

func (f *callFields) Version(d datasource.Data, stack uint64) uint64 {
	return version(f.kernel, d, f.processFields.Version(d, stack))
}

// notSeen is shown instead of the stack of a kernel whose launch was not seen.
const notSeen = "[launch not seen]"

// Stack returns the stack of a row of a profile: that of the caller, and the kernel on top.
func Stack(id profile.RowID, kernel string, s stack.Stack) stack.Stack {
	if id.Kind == "unseen" {
		s = stack.Stack{{Kind: stack.KindUnknown, Function: notSeen}}
	}
	return Leaf(kernel, s)
}

// Leaf puts a kernel on top of the stack of the call that launched it; "" leaves the
// stack as it is. The argument is not changed.
func Leaf(kernel string, s stack.Stack) stack.Stack {
	if kernel == "" {
		return s
	}
	return append(stack.Stack{{Kind: stack.KindKernel, Function: kernel}}, s...)
}
