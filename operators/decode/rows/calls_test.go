// SPDX-License-Identifier: Apache-2.0

package rows

import (
	"testing"

	"github.com/inspektor-gadget/inspektor-gadget/pkg/datasource"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/gadget-service/api"
	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/internal/profile"
	"github.com/gpu-gadgets/gpu-gadgets/internal/stack"
)

// TestCallsAreCountedByWhatTheyDid: launches are those that went well, bytes those of
// copies, and all have their time.
func TestCallsAreCountedByWhatTheyDid(t *testing.T) {
	ds, err := datasource.New(datasource.TypeArray, "calls")
	require.NoError(t, err)
	fields := map[string]datasource.FieldAccessor{}
	proc, err := ds.AddField("proc", api.Kind_Invalid, datasource.WithFlags(datasource.FieldFlagEmpty))
	require.NoError(t, err)
	fields["pid"], err = proc.AddSubField("pid", api.Kind_Uint32)
	require.NoError(t, err)
	for _, name := range []string{"process", "stack_id", "row", "calls", "bytes", "host_ns", "device_ns"} {
		fields[name], err = ds.AddField(name, api.Kind_Uint64)
		require.NoError(t, err)
	}
	for _, name := range []string{"status", "device"} {
		fields[name], err = ds.AddField(name, api.Kind_Int32)
		require.NoError(t, err)
	}
	for _, name := range []string{"operation", "direction", "kernel", "labels", "api"} {
		fields[name], err = ds.AddField(name, api.Kind_String)
		require.NoError(t, err)
	}
	require.NotNil(t, Find(map[string]datasource.DataSource{"calls": ds}))
	source, err := Bind(ds)
	require.NoError(t, err)
	require.Equal(t, profile.Calls, source.Subject)

	for _, c := range []struct {
		operation, direction, api string
		status, device            int32
		want                      profile.Values
	}{
		{"launch", "", "", 0, 0, profile.Values{Calls: 3, Launches: 3, HostNanoseconds: 50}},
		{"graph", "", "", 0, 1, profile.Values{Calls: 3, Launches: 3, HostNanoseconds: 50}},
		{"launch", "", "", 700, 0, profile.Values{Calls: 3, HostNanoseconds: 50}},
		{"captured", "", "", 0, 0, profile.Values{Calls: 3, HostNanoseconds: 50}},
		{"copy", "HtoD", "cuMemcpyHtoD_v2", 0, profile.UnknownDevice, profile.Values{Calls: 3, CopiedBytes: 4096, HostNanoseconds: 50}},
		{"copy", "HtoD", "hipMemcpyWithStream", 0, 1, profile.Values{Calls: 3, CopiedBytes: 4096, HostNanoseconds: 50, WaitNanoseconds: 50}},
		{"copy", "HtoD", "hipMemcpyWithStream", 1, 1, profile.Values{Calls: 3, HostNanoseconds: 50}},
		{"set", "", "", 0, 7, profile.Values{Calls: 3, HostNanoseconds: 50}},
		{"kernel", "", "", 0, 1, profile.Values{Kernels: 3, DeviceNanoseconds: 60}},
		{"unseen", "", "", 0, 1, profile.Values{Kernels: 3, DeviceNanoseconds: 60}},
		{"wait", "", "", 700, 0, profile.Values{Calls: 3, HostNanoseconds: 50, WaitNanoseconds: 50}},
	} {
		packet, err := ds.NewPacketArray()
		require.NoError(t, err)
		d := packet.New()
		for name, v := range map[string]uint64{"process": 7, "stack_id": 8, "row": 9, "calls": 3, "bytes": 4096, "host_ns": 50, "device_ns": 60} {
			require.NoError(t, fields[name].PutUint64(d, v))
		}
		require.NoError(t, fields["status"].PutInt32(d, c.status))
		require.NoError(t, fields["device"].PutInt32(d, c.device))
		require.NoError(t, fields["operation"].PutString(d, c.operation))
		require.NoError(t, fields["direction"].PutString(d, c.direction))
		require.NoError(t, fields["api"].PutString(d, c.api))
		require.EqualValues(t, 5, source.Version(d, 5))
		require.NoError(t, fields["kernel"].PutString(d, "gemm"))
		require.NotEqualValues(t, 5, source.Version(d, 5), "the name came later")
		require.NotEqual(t, source.Version(d, 6), source.Version(d, 5))
		before := source.Version(d, 5)
		require.NoError(t, fields["labels"].PutString(d, "vllm=Worker_TP0"))
		require.NotEqual(t, before, source.Version(d, 5), "the title came later")
		require.Equal(t, c.want, source.Values(d), c.operation)
		id := source.ID(d)
		require.Equal(t, profile.RowID{Process: 7, StackID: 8, Row: 9, Device: c.device, Kind: id.Kind}, id)
		if c.direction != "" {
			require.Equal(t, "copy HtoD", id.Kind)
		}
		require.Equal(t, "gemm", source.Kernel(d))
	}
}

func TestTheKernelIsTheLeaf(t *testing.T) {
	below := stack.Stack{{Kind: stack.KindPython, Function: "step"}}
	require.Equal(t, below, Leaf("", below))
	require.Equal(t, []string{"gemm", "step"}, []string{Leaf("gemm", below)[0].Function, Leaf("gemm", below)[1].Function})
	require.Len(t, below, 1)
}

// TestAKernelWithoutALaunchIsMarked in place of a stack that it does not have.
func TestAKernelWithoutALaunchIsMarked(t *testing.T) {
	below := stack.Stack{{Kind: stack.KindPython, Function: "step"}}
	require.Equal(t, Leaf("gemm", below), Stack(profile.RowID{Kind: "kernel"}, "gemm", below))
	unseen := Stack(profile.RowID{Kind: "unseen"}, "gemm", stack.UnknownStack())
	require.Equal(t, []string{"gemm", "[launch not seen]"}, []string{unseen[0].Function, unseen[1].Function})
}
