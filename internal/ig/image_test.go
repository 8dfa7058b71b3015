// SPDX-License-Identifier: Apache-2.0

package ig

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestImagesForOldKernels(t *testing.T) {
	for image, want := range map[string][2]string{
		"cuda_alloc":                         {"cuda_alloc", "cuda_alloc_linux_5_10"},
		"r.example:5000/gpu/cuda_alloc":      {"cuda_alloc", "r.example:5000/gpu/cuda_alloc_linux_5_10"},
		"r.example:5000/gpu/cuda_alloc:v1":   {"cuda_alloc", "r.example:5000/gpu/cuda_alloc_linux_5_10:v1"},
		"gpu/cuda_alloc_linux_5_10:v1":       {"cuda_alloc", "gpu/cuda_alloc_linux_5_10:v1"},
		"gpu/cuda_alloc_linux_5_10@sha256:0": {"cuda_alloc", "gpu/cuda_alloc_linux_5_10@sha256:0"},
		"gpu/cuda_alloc:v1@sha256:0":         {"cuda_alloc", ""},
	} {
		require.Equal(t, want, [2]string{GadgetName(image), ForOldKernels(image)}, image)
	}
}
