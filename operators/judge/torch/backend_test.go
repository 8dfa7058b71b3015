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
		"PYTORCH_NO_CUDA_MEMORY_CACHING=\x00PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True\x00": "PYTORCH_NO_CUDA_MEMORY_CACHING",
	} {
		got := withoutPool([]byte(environ))
		if want == "" {
			require.Empty(t, got, "%q", environ)
		} else {
			require.Regexp(t, "^"+want+": ", got, "%q", environ)
		}
	}
}
