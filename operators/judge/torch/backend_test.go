// SPDX-License-Identifier: Apache-2.0

package torch

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestWhoHasNoPoolIsKnownByItsSettings(t *testing.T) {
	for environ, want := range map[string]string{
		"":                        "",
		"PATH=/bin\x00HOME=/\x00": "",
		"PYTORCH_CUDA_ALLOC_CONF=max_split_size_mb:64,backend:native\x00":                         "",
		"PYTORCH_CUDA_ALLOC_CONF=backend:cudaMallocAsync\x00":                                     "backend:cudaMallocAsync",
		"A=b\x00PYTORCH_ALLOC_CONF=max_split_size_mb:64, backend: cudaMallocAsync\x00C=d\x00":     "backend:cudaMallocAsync",
		"MY_PYTORCH_CUDA_ALLOC_CONF=backend:cudaMallocAsync\x00":                                  "",
		"NOTE=PYTORCH_CUDA_ALLOC_CONF=backend:cudaMallocAsync\x00":                                "",
		"PYTORCH_NO_CUDA_MEMORY_CACHING=1\x00":                                                    "PYTORCH_NO_CUDA_MEMORY_CACHING",
		"PYTORCH_NO_HIP_MEMORY_CACHING=1\x00":                                                     "PYTORCH_NO_HIP_MEMORY_CACHING",
		"PYTORCH_HIP_ALLOC_CONF=backend:hipMallocAsync\x00":                                       "backend:hipMallocAsync",
		"PYTORCH_NO_CUDA_MEMORY_CACHING=\x00PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True\x00": "",
		"PYTORCH_NO_CUDA_MEMORY_CACHING=0\x00":                                                    "",
	} {
		got, _ := withoutPool([]byte(environ))
		if want == "" {
			require.Empty(t, got, "%q", environ)
		} else {
			require.Regexp(t, "^"+want+": ", got, "%q", environ)
		}
	}
}

// Versions differ in whether values other than 1 turn the pool off.
func TestASettingThatMayTurnThePoolOffIsNamedOnceNothingIsReported(t *testing.T) {
	for _, setting := range []string{"PYTORCH_NO_CUDA_MEMORY_CACHING=0", "PYTORCH_NO_CUDA_MEMORY_CACHING=", "PYTORCH_NO_CUDA_MEMORY_CACHING=\x1b[2J\nERROR"} {
		why, doubt := withoutPool([]byte("A=b\x00" + setting + "\x00"))
		require.Empty(t, why)
		require.Equal(t, "PYTORCH_NO_CUDA_MEMORY_CACHING", doubt, "its value is the process's")
		var q quiet
		q.find(7, "python3", doubt)
		var lines []string
		for range quietReadings {
			q.read()
			lines = q.see(map[uint32]uint64{7: quietAfter})
		}
		require.Len(t, lines, 1)
		require.Contains(t, lines[0], "PYTORCH_NO_CUDA_MEMORY_CACHING may turn its pool off, or another allocator may replace it")
	}
	_, doubt := withoutPool([]byte("PYTORCH_NO_CUDA_MEMORY_CACHING=1\x00"))
	require.Empty(t, doubt)
}
