// SPDX-License-Identifier: Apache-2.0

package unwinder

import (
	"bytes"
	"debug/elf"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/internal/elf/unwind"
	"github.com/gpu-gadgets/gpu-gadgets/internal/elf/vdso"
)

// TestEachFunctionOfTheKernelsCodeHasRules: in every process, also where it is first interrupted.
func TestEachFunctionOfTheKernelsCodeHasRules(t *testing.T) {
	image := vdso.Image()
	require.NotEmpty(t, image)
	f, err := elf.NewFile(bytes.NewReader(image))
	require.NoError(t, err)
	symbols, err := f.DynamicSymbols()
	require.NoError(t, err)
	rules := (&Unwinder{}).kernels().rules
	require.NotNil(t, rules)
	functions := 0
	for _, s := range symbols {
		if elf.ST_TYPE(s.Info) != elf.STT_FUNC || s.Size == 0 {
			continue
		}
		functions++
		rows, err := rules.Rows(s.Value, s.Value+s.Size)
		require.NoError(t, err)
		for _, row := range rows {
			assert.NotEqual(t, unwind.None, row.Rule.Kind, "%s + %d", s.Name, row.Offset-s.Value)
		}
	}
	assert.NotZero(t, functions)
}
