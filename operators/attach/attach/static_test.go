// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"debug/elf"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/internal/ig/attachpoint"
)

func TestStaticProbesAreTakenOffTheTable(t *testing.T) {
	function := attachpoint.Point{Library: "libcuda", Symbol: "cuInit", Cookie: 1}
	static, rest, err := splitStatic([]attachpoint.Point{
		{Library: "libparcagpucupti", Symbol: "parcagpu:kernel_executed", Cookie: 1, USDT: true}, function,
	})
	require.NoError(t, err)
	require.Equal(t, []staticPoint{{"libparcagpucupti", "parcagpu", "kernel_executed", 1}}, static)
	require.Equal(t, []attachpoint.Point{function}, rest)
	_, _, err = splitStatic([]attachpoint.Point{{Symbol: "kernel_executed", USDT: true}})
	require.ErrorContains(t, err, "not PROVIDER:NAME")
}

// TestPlacesWithTheSameArgumentsAreOne, and a file cannot make us write without end.
func TestPlacesWithTheSameArgumentsAreOne(t *testing.T) {
	written := map[uint32][]byte{}
	refuse := false
	s := &sites{most: 3, known: map[string]uint32{}, put: func(n uint32, b []byte) error {
		if refuse {
			return errors.New("refused")
		}
		written[n] = b
		return nil
	}}
	number := func(text string) uint64 {
		t.Helper()
		n, err := s.number(elf.EM_X86_64, text)
		require.NoError(t, err)
		return n
	}
	require.EqualValues(t, 0, number("8@%rax"))
	require.EqualValues(t, 1, number("4@%eax"))
	require.EqualValues(t, 0, number(" 8@%rax "))
	require.Len(t, written, 2)
	require.NotEqual(t, written[0], written[1])
	refuse = true
	_, err := s.number(elf.EM_X86_64, "8@%rbx")
	require.ErrorContains(t, err, "refused")
	refuse = false
	require.EqualValues(t, 2, number("8@%rbx"), "what could not be written was not known")
	for n := range 5 {
		_, err := s.number(elf.EM_X86_64, fmt.Sprintf("8@%d(%%rax)", n))
		require.ErrorIs(t, err, errSites)
	}
	_, err = s.number(elf.EM_X86_64, "8@%xmm0")
	require.ErrorContains(t, err, "not known")
	require.EqualValues(t, 1, number("4@%eax"))
}
