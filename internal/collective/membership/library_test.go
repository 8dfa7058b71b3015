// SPDX-License-Identifier: Apache-2.0

package membership

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestNamesOfLibraries: a plugin of NCCL, which has none of its functions, is not one.
func TestNamesOfLibraries(t *testing.T) {
	for path, want := range map[string]bool{
		"/x/nvidia/nccl/lib/libnccl.so.2": true, "/usr/lib/libnccl.so": true, "/x/libnccl-0123abcd.so.2": true,
		"/x/torch/lib/libtorch_cuda.so": true, "/opt/rocm/lib/librccl.so.1": true, "/x/libnccl-net.so": false,
		"/x/libncclx.so": false, "/x/libnccl": false, "/x/libcuda.so.1": false, "/x/libnccl.py": false,
	} {
		require.Equal(t, want, IsLibrary(path), path)
	}
}
