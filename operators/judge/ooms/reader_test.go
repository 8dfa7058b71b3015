// SPDX-License-Identifier: Apache-2.0

package ooms

import (
	"testing"

	"github.com/inspektor-gadget/inspektor-gadget/pkg/datasource"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/gadget-service/api"
	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/internal/profile"
)

// read makes an event of a data source with these fields, and reads it.
func read(t *testing.T, kind string, device int32) Failure {
	t.Helper()
	ds, err := datasource.New(datasource.TypeSingle, dataSource)
	require.NoError(t, err)
	kinds, err := ds.AddField("kind", api.Kind_String)
	require.NoError(t, err)
	devices, err := ds.AddField("device", api.Kind_Int32)
	require.NoError(t, err)
	p, err := ds.NewPacketSingle()
	require.NoError(t, err)
	require.NoError(t, kinds.PutString(p, kind))
	require.NoError(t, devices.PutInt32(p, device))
	return NewReader(ds).Read(p)
}

func TestAFailureHasItsDevice(t *testing.T) {
	require.EqualValues(t, 3, read(t, "device", 3).Device)
	require.EqualValues(t, 0, read(t, "tensor", 0).Device)
	require.EqualValues(t, profile.UnknownDevice, read(t, "device", -1).Device)
	require.EqualValues(t, profile.UnknownDevice, read(t, "host", 3).Device, "it takes no room on a GPU")
}

func TestAFieldThatIsMissingIsEmpty(t *testing.T) {
	ds, err := datasource.New(datasource.TypeSingle, dataSource)
	require.NoError(t, err)
	_, err = ds.AddField("other", api.Kind_String)
	require.NoError(t, err)
	p, err := ds.NewPacketSingle()
	require.NoError(t, err)
	require.Equal(t, Failure{Device: profile.UnknownDevice}, NewReader(ds).Read(p))
}
