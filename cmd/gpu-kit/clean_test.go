// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/cmd/gpu-kit/internal/taps"
	"github.com/gpu-gadgets/gpu-gadgets/test/support/bpftest"
)

func TestObjectsThatAreLeftAreFound(t *testing.T) {
	bpftest.RequireRoot(t)
	m, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: 4, MaxEntries: 1})
	require.NoError(t, err)
	info, err := m.Info()
	require.NoError(t, err)
	id, ok := info.ID()
	require.True(t, ok)
	object := fmt.Sprintf("map %d", id)
	require.True(t, exists(object))
	m.Close()
	k := &kit{objects: map[string]bool{object: true}}
	require.Empty(t, k.left(t.Context()), "the kernel frees it some time after it was closed")
}

func TestIoctlsAreCountedByRequest(t *testing.T) {
	local := taps.Ioctl{Path: "/dev/nvidiactl", Name: "NV_ESC_RM_ALLOC", Class: "NV01_MEMORY_LOCAL_USER", Bytes: 2 << 20}
	counts, bytes := ioctlTable([]taps.Ioctl{
		local, local,
		{Path: "/dev/nvidiactl", Name: "NV_ESC_RM_ALLOC", Class: "NV01_MEMORY_SYSTEM", Bytes: 4096},
		{Path: "/dev/nvidia-uvm", Name: "0x21", Failed: true},
		{Path: "/dev/null", Name: "0x21"},
	})
	require.Equal(t, "nvidia-uvm 0x21 (parameters unreadable) 1, nvidiactl NV_ESC_RM_ALLOC NV01_MEMORY_LOCAL_USER 2097152 bytes 2, "+
		"nvidiactl NV_ESC_RM_ALLOC NV01_MEMORY_SYSTEM 4096 bytes 1", listed(counts))
	require.EqualValues(t, 4<<20, bytes)
}
