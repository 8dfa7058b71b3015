// SPDX-License-Identifier: Apache-2.0

package symbols

import (
	"bytes"
	"compress/flate"
	"fmt"
	"io"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/internal/elf/module"
)

func TestTableFindsEveryFunctionAndNothingElse(t *testing.T) {
	for seed := range uint64(50) {
		r := rand.New(rand.NewPCG(seed, 0))
		var functions []module.Symbol
		at := r.Uint64N(1 << 40)
		for i := range r.IntN(500) {
			at += 1 + r.Uint64N(100)
			size := 1 + r.Uint64N(200)
			functions = append(functions, module.Symbol{Name: fmt.Sprintf("_ZN5torch%dEv", i), Address: at, Size: size})
			at += size
		}
		table, err := NewTable(functions)
		require.NoError(t, err)
		require.Equal(t, len(functions), table.Len())
		for _, f := range functions {
			for _, address := range []uint64{f.Address, f.Address + f.Size/2, f.Address + f.Size - 1} {
				name, ok := table.Lookup(address)
				require.True(t, ok)
				require.Equal(t, f.Name, name)
			}
			_, ok := table.Lookup(f.Address + f.Size)
			require.False(t, ok, "the byte after a function")
		}
		if len(functions) > 0 {
			_, ok := table.Lookup(functions[0].Address - 1)
			require.False(t, ok)
			_, ok = table.Lookup(functions[0].Address + 1<<33)
			require.False(t, ok)
		}
	}
}

// A library chooses how long its names are, up to 16 KiB; with one, all of its block are unpacked.
func TestBlocksOfLongNamesAreBounded(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 0))
	var functions []module.Symbol
	for i := range 500 {
		name := make([]byte, 1+r.IntN(16<<10))
		for at := range name {
			name[at] = byte('a' + r.IntN(26))
		}
		functions = append(functions, module.Symbol{Name: string(name), Address: uint64(i) * 16, Size: 16})
	}
	table, err := NewTable(functions)
	require.NoError(t, err)
	for i, f := range functions {
		name, ok := table.Lookup(f.Address + 1)
		require.True(t, ok)
		if len(f.Name) <= maxMangled {
			require.Equal(t, f.Name, name, i)
		} else {
			require.Equal(t, f.Name[:maxMangled]+cutMark, name, i)
		}
	}
	for b := range table.first {
		plain, err := io.ReadAll(flate.NewReader(bytes.NewReader(table.names[table.block[b]:table.block[b+1]])))
		require.NoError(t, err)
		require.LessOrEqual(t, len(plain), int(maxBlockBytes))
	}
}

func TestTableTakesTheFirstNameOfAnAddress(t *testing.T) {
	table, err := NewTable([]module.Symbol{{Name: "best", Address: 8, Size: 4}, {Name: "alias", Address: 8, Size: 4}})
	require.NoError(t, err)
	name, _ := table.Lookup(9)
	require.Equal(t, "best", name)
}

func TestFunctionWithoutSizeReachesToTheNext(t *testing.T) {
	table, err := NewTable([]module.Symbol{{Name: "asm", Address: 8}, {Name: "next", Address: 100, Size: 4}})
	require.NoError(t, err)
	name, _ := table.Lookup(99)
	require.Equal(t, "asm", name)
	name, _ = table.Lookup(100)
	require.Equal(t, "next", name)
}

func TestEmptyTable(t *testing.T) {
	table, err := NewTable(nil)
	require.NoError(t, err)
	_, ok := table.Lookup(0)
	require.False(t, ok)
}

func TestDemangle(t *testing.T) {
	for in, want := range map[string]string{
		"cuMemAlloc_v2": "cuMemAlloc_v2",
		"_ZN3c104cuda20CUDACachingAllocator10raw_deleteEPv":    "c10::cuda::CUDACachingAllocator::raw_delete(void*)",
		"_RNvCs1234_7mycrate3foo":                              "mycrate::foo",
		"_ZN4core3fmt9Formatter9write_str17h0123456789abcdefE": "core::fmt::Formatter::write_str",
		"_Zbroken": "_Zbroken",
	} {
		require.Equal(t, want, Demangle(in))
	}
}

// As large as libtorch_cpu: the figures say whether ig-gpu stays small.
func BenchmarkLargeTable(b *testing.B) {
	functions := make([]module.Symbol, 200_000)
	plain := 0
	for i := range functions {
		functions[i] = module.Symbol{
			Name:    fmt.Sprintf("_ZN2at6native%d_GLOBAL__N_1%dkernel_implERKNS_6TensorES%d_N3c108ArrayRefIlEENS5_8optionalINS5_10ScalarTypeEEENS7_INS5_6LayoutEEE", i%97, i%1013, i),
			Address: uint64(i) * 320, Size: 300,
		}
		plain += len(functions[i].Name)
	}
	var t *Table
	for b.Loop() {
		t, _ = NewTable(functions)
	}
	b.ReportMetric(float64(t.Bytes()), "table-bytes")
	b.ReportMetric(float64(plain), "name-bytes")
}
