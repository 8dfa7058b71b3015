// SPDX-License-Identifier: Apache-2.0

package profile

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestHoldersOfOneLineAreAddedUp(t *testing.T) {
	require.Equal(t, "9.00 KiB f (x.py:1); 7.00 KiB g (x.py:2); 1.00 KiB h (x.py:3)", HeldByLine([]LineHeld{
		{"g (x.py:2)", 7 << 10}, {"f (x.py:1)", 5 << 10}, {"f (x.py:1)", 4 << 10}, {"h (x.py:3)", 1 << 10},
	}))
	require.Empty(t, HeldByLine(nil))
}

// What a GPU does not support, or a kernel's error before, does not mean that there is no memory.
func TestOnlyALackOfMemoryIsOutOfMemory(t *testing.T) {
	for _, err := range []string{"CUDA_ERROR_OUT_OF_MEMORY", "hipErrorOutOfMemory", "hipErrorRuntimeMemory", "2", "-1", "4294967295"} {
		require.True(t, IsOutOfMemory(err), err)
	}
	for _, err := range []string{"", "0", "800", "CUDA_ERROR_NOT_PERMITTED", "CUDA_ERROR_NOT_SUPPORTED", "CUDA_ERROR_ILLEGAL_ADDRESS", "hipErrorStreamCaptureUnsupported"} {
		require.False(t, IsOutOfMemory(err), err)
	}
}

// Of several GPUs it is said which one was full. Pinned memory is the host's, wherever a thread pins it.
func TestARequestNamesItsGPU(t *testing.T) {
	require.Equal(t, "cuMemAlloc_v2 of 26.0 MiB on GPU 3", Request("cuMemAlloc_v2", 26<<20, RefusedOn("device", 3)))
	require.Equal(t, "cuMemAlloc_v2 of 26.0 MiB", Request("cuMemAlloc_v2", 26<<20, UnknownDevice))
	require.Equal(t, "cuMemAllocHost_v2 of 26.0 MiB", Request("cuMemAllocHost_v2", 26<<20, RefusedOn("host", 3)))
	require.Equal(t, "cuDevicePrimaryCtxRetain on GPU 0", Request("cuDevicePrimaryCtxRetain", 0, 0), "the driver chooses its size")
}

// What PyTorch's pool had before ig-gpu attached is in its own account only. Rows of sampled tensors may have more than that.
func TestAPoolHoldsWhatItSaysItDoes(t *testing.T) {
	held := Held{API: PoolAPI, Device: 3, RowsBytes: 2 << 30, PoolBytes: 78 << 30}
	require.Equal(t, "it held 78.0 GiB on that GPU; the lines of 76.0 GiB of it are unknown", held.String())
	held.Holders, held.RowsBytes = "78.0 GiB f (x.py:1)", 78<<30
	require.Equal(t, "it held 78.0 GiB on that GPU: 78.0 GiB f (x.py:1)", held.String())
	held.RowsBytes = 80 << 30
	require.Equal(t, "it held 78.0 GiB on that GPU: 78.0 GiB f (x.py:1)", held.String())
	held.RowsBytes = 75 << 30
	require.Equal(t, "it held 78.0 GiB on that GPU: 78.0 GiB f (x.py:1)", held.String(), "an estimate is some percent off")
	held.PoolBytes, held.RowsBytes = 0, 1<<30
	require.Equal(t, "it held 1.00 GiB on that GPU of what was allocated after ig-gpu attached: 78.0 GiB f (x.py:1)", held.String())
	require.Equal(t, "it held 1.00 GiB of what was allocated after ig-gpu attached", Held{API: "cuMemAlloc_v2", Device: UnknownDevice, RowsBytes: 1 << 30, PoolBytes: 5}.String())
}
