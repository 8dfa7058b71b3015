// SPDX-License-Identifier: Apache-2.0

package names

import (
	"encoding/binary"
	"strconv"
	"strings"
	"unicode"
)

// Of bpf/launch/names.h: the size of struct kernel_name, where its text begins, and the
// bits of a kernel's number.
const (
	kernelNameBytes = 8 + 2048
	kernelText      = 8
	kernelNamed     = 1 << 63
	kernelBits      = 1<<62 - 1
)

const (
	// shownKernel is how much of a name is shown: it is as its module has it, and
	// those of templates are long.
	shownKernel = 256
	// keptKernels bounds the names that are remembered.
	keptKernels = 1024
)

// Kernels gives kernels the names that their modules have for them, not demangled.
type Kernels struct {
	lookup func(function uint64, value []byte) bool
	known  map[uint64]string
	value  [kernelNameBytes]byte
}

// NewKernels reads struct kernel_name by lookup.
func NewKernels(lookup func(uint64, []byte) bool) *Kernels {
	return &Kernels{lookup: lookup, known: map[uint64]string{}}
}

// Name of a kernel; [kernel 0x…] where only its handle, or the function that launches
// it, is known; "" for 0.
func (k *Kernels) Name(function uint64) string {
	if function == 0 {
		return ""
	}
	if name, ok := k.known[function]; ok {
		return name
	}
	if function&kernelNamed == 0 || !k.lookup(function, k.value[:]) {
		return "[kernel 0x" + strconv.FormatUint(function&kernelBits, 16) + "]"
	}
	length := min(int(binary.NativeEndian.Uint32(k.value[:])), shownKernel)
	name := strings.Map(func(r rune) rune {
		if r == unicode.ReplacementChar || !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, string(k.value[kernelText:kernelText+length]))
	if len(k.known) >= keptKernels {
		clear(k.known)
	}
	k.known[function] = name
	return name
}
