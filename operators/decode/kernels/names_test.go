// SPDX-License-Identifier: Apache-2.0

package kernels

import (
	"encoding/binary"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/internal/stack"
)

// value is struct kernel_name with a text in it.
func value(text string, cut uint32) []byte {
	b := make([]byte, nameText+2048)
	binary.NativeEndian.PutUint32(b[nameLength:], uint32(len(text)))
	binary.NativeEndian.PutUint32(b[nameCut:], cut)
	copy(b[nameText:], text)
	return b
}

// addresses are those of a process that have a name.
type addresses struct{ functions, variables map[uint64]string }

func (s addresses) Frame(_ uint64, _ uint32, address uint64, _ bool) stack.Frame {
	if f, ok := s.functions[address]; ok {
		return stack.Frame{Function: f}
	}
	return stack.Frame{Function: fmt.Sprintf("%#x", address)}
}

func (s addresses) Variable(_ uint64, _ uint32, address uint64) (string, bool) {
	name, ok := s.variables[address]
	return name, ok
}

func TestNames(t *testing.T) {
	table := map[uint64][]byte{
		numberNamed | 1: value("_Z6vecAddPKfS0_Pfi", 0),
		numberNamed | 2: value("\xff\xfe\x1b[31mred", 0),
		numberNamed | 3: value(strings.Repeat("k", 2047), 1),
		numberNamed | 4: value("größe", 0),
		numberNamed | 5: {1, 2, 3},
	}
	n := newNames(func(f uint64) ([]byte, bool) { b, ok := table[f]; return b, ok },
		addresses{
			functions: map[uint64]string{
				0x1000: "vecAdd(float const*, int)",
				0x2000: "__device_stub__Z4gemmPf(float*)",
				0x2100: "void ns::__device_stub__gemm<float>(float*)",
				0x2200: "__device_stub__plain",
				0x2300: "__device_stub__Zoom(int)",
			},
			variables: map[uint64]string{
				0x2000: "not reached",
				0x4000: "(anonymous namespace)::scale(float*, int)",
				0x4100: "\x1b[31mred",
			},
		})
	for function, want := range map[uint64]string{
		0:                   "",
		numberNamed | 1:     "vecAdd(float const*, float const*, float*, int)",
		numberNamed | 2:     `\xff\xfe\u001b[31mred`,
		numberNamed | 3:     strings.Repeat("k", maxShown) + ellipsis + ellipsis,
		numberNamed | 4:     "größe",
		numberNamed | 5:     "[kernel #5]",
		numberNamed | 0xabc: "[kernel #abc]",
		numberStub | 0x1000: "vecAdd(float const*, int)",
		numberStub | 0x2000: "gemm(float*)",
		numberStub | 0x2100: "void ns::gemm<float>(float*)",
		numberStub | 0x2200: "plain",
		numberStub | 0x2300: "Zoom(int)",
		numberStub | 0x3000: "[kernel 0x3000]",
		numberStub | 0x4000: "(anonymous namespace)::scale(float*, int)",
		numberStub | 0x4100: `\u001b[31mred`,
		0x5c0000000040:      "[kernel 0x5c0000000040]",
	} {
		require.Equal(t, want, n.Name(7, 1, function, false), "%#x", function)
	}
	require.Equal(t, "[function 0x3000]", n.Name(7, 1, numberStub|0x3000, true))

	delete(table, numberNamed|1)
	require.Contains(t, n.Name(8, 2, numberNamed|1, false), "vecAdd", "a name is the same in all processes, and kept")
	table[numberNamed|0xabc] = value("late", 0)
	require.Equal(t, "late", n.Name(7, 1, numberNamed|0xabc, false), "what is not known is asked for again")
}

func FuzzShownNamesAreText(f *testing.F) {
	f.Add([]byte("_ZN7cutlass4gemmIfEEvPT_i"), uint32(0))
	f.Add([]byte("\xff\x00\x1b"), uint32(1))
	f.Fuzz(func(t *testing.T, text []byte, cut uint32) {
		shown := decode(value(string(text[:min(len(text), 2047)]), cut))
		require.True(t, utf8.ValidString(shown))
		require.LessOrEqual(t, len(shown), maxShown+16)
		require.NotContains(t, shown, "\x1b")
	})
}

func TestExtentLeavesOnesOut(t *testing.T) {
	for want, n := range map[string][]uint32{"80": {80, 1, 1}, "80,2": {80, 2, 1}, "80,1,3": {80, 1, 3}, "1": {1, 1, 1}} {
		require.Equal(t, want, extent(n))
	}
}
