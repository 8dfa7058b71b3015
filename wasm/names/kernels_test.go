// SPDX-License-Identifier: Apache-2.0

package names

import (
	"encoding/binary"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestKernelsHaveTheNamesOfTheirModules(t *testing.T) {
	const named = uint64(kernelNamed)
	names := map[uint64]string{named | 1: "_Z4gemmPf", named | 2: "\xff\x1b[2J", named | 3: strings.Repeat("k", 2047)}
	reads := 0
	k := NewKernels(func(function uint64, value []byte) bool {
		reads++
		name, ok := names[function]
		binary.NativeEndian.PutUint32(value, uint32(len(name)))
		copy(value[kernelText:], name)
		return ok
	})
	for range 2 {
		for function, want := range map[uint64]string{
			0: "", named | 1: "_Z4gemmPf", named | 2: "??[2J", named | 3: strings.Repeat("k", shownKernel),
			0x5c40: "[kernel 0x5c40]", 1<<62 | 0x1000: "[kernel 0x1000]", named | 9: "[kernel 0x9]",
		} {
			require.Equal(t, want, k.Name(function))
		}
	}
	require.Equal(t, 5, reads, "three once, and what is not known each time")
}
