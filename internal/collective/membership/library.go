// SPDX-License-Identifier: Apache-2.0

package membership

import (
	"slices"

	"github.com/gpu-gadgets/gpu-gadgets/internal/process/procmaps"
)

// Libraries that have the functions of collectives, by their names up to ".so".
const (
	NCCL  = "libnccl"
	RCCL  = "librccl"       // AMD's
	Torch = "libtorch_cuda" // a build of PyTorch may have NCCL inside
)

// Libraries are all of them.
var Libraries = []string{NCCL, RCCL, Torch}

// IsLibrary reports whether a file is one of them, by its name.
func IsLibrary(path string) bool {
	return slices.ContainsFunc(Libraries, func(name string) bool { return procmaps.IsLibrary(path, name) })
}
