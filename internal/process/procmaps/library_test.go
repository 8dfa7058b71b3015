// SPDX-License-Identifier: Apache-2.0

package procmaps

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestIsLibrary(t *testing.T) {
	for path, want := range map[string]bool{
		"libcuda.so": true, "/usr/lib/libcuda.so.1": true, "/x/libcuda.so.550.163.01": true,
		"/x/torch.libs/libcuda-0123abcd.so.1": true, "/x/libcudart.so.12": false, "/x/libcuda.so1": false,
		"/x/libcuda.software": false, "/x/libcuda": false, "/x/xlibcuda.so": false, "/x/libcuda-0123abcx.so": false,
		"/x/libcuda-net.so": false, "/libcuda.so/other": false, "": false,
	} {
		require.Equal(t, want, IsLibrary(path, "libcuda"), path)
	}
}
