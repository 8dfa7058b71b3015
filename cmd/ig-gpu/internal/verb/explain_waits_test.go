// SPDX-License-Identifier: Apache-2.0

package verb

import (
	"testing"

	"github.com/inspektor-gadget/inspektor-gadget/pkg/datasource"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/gadget-service/api"
	"github.com/stretchr/testify/require"
)

// TestExplainCountsCopiesThatWait: loss.item() is one call on ROCm, which copies and waits; CuPy's get() waits in an
// asynchronous copy. One that fails waits for nothing.
func TestExplainCountsCopiesThatWait(t *testing.T) {
	ds, err := datasource.New(datasource.TypeArray, "calls")
	require.NoError(t, err)
	texts, numbers := map[string]datasource.FieldAccessor{}, map[string]datasource.FieldAccessor{}
	for _, name := range []string{"user_frame", "operation", "direction", "api"} {
		texts[name], err = ds.AddField(name, api.Kind_String)
		require.NoError(t, err)
	}
	for _, name := range []string{"calls", "host_ns", "bytes"} {
		numbers[name], err = ds.AddField(name, api.Kind_Uint64)
		require.NoError(t, err)
	}
	status, err := ds.AddField("status", api.Kind_Int32)
	require.NoError(t, err)
	packet, err := ds.NewPacketArray()
	require.NoError(t, err)
	copied := func(line, function string, code int32) datasource.Data {
		row := packet.New()
		for name, text := range map[string]string{"user_frame": line, "operation": "copy", "direction": "DtoH", "api": function} {
			require.NoError(t, texts[name].PutString(row, text))
		}
		for name, n := range map[string]uint64{"calls": 3, "host_ns": 500, "bytes": 12} {
			require.NoError(t, numbers[name].PutUint64(row, n))
		}
		require.NoError(t, status.PutInt32(row, code))
		return row
	}
	f := newFacts([]uint32{7}, 0)
	f.calls(ds, []datasource.Data{
		copied("step (train.py:7)", "hipMemcpyWithStream", 0), copied("get (x.py:1)", "cuMemcpyDtoHAsync_v2", 0), copied("bad (x.py:2)", "cuMemcpyDtoH_v2", 1),
	})
	require.Equal(t, &waiting{frame: "step (train.py:7)", hostNS: 500, waitNS: 500, waits: 3, copied: 12}, f.waits["step (train.py:7)"])
	require.Equal(t, uint64(500), f.waits["get (x.py:1)"].waitNS)
	require.Zero(t, f.waits["bad (x.py:2)"].waitNS)
}
