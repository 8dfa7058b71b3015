// SPDX-License-Identifier: Apache-2.0

package attachpoint

import (
	"encoding/binary"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"github.com/stretchr/testify/require"
)

func row(library, symbol string, cookie, flags uint32) []byte {
	b := make([]byte, rowSize)
	copy(b, library)
	copy(b[librarySize:], symbol)
	binary.NativeEndian.PutUint32(b[rowSize-8:], cookie)
	binary.NativeEndian.PutUint32(b[rowSize-4:], flags)
	return b
}

// layout is clang's layout of the struct in bpf/call/attach_point.h.
func layout() *btf.Struct {
	char := &btf.Int{Name: "char", Size: 1}
	u32 := &btf.Typedef{Name: "__u32", Type: &btf.Int{Name: "unsigned int", Size: 4}}
	return &btf.Struct{Name: "attach_point", Size: 168, Members: []btf.Member{
		{Name: "library", Type: &btf.Array{Type: char, Nelems: 32}, Offset: 0},
		{Name: "symbol", Type: &btf.Array{Type: char, Nelems: 128}, Offset: 32 * 8},
		{Name: "cookie", Type: u32, Offset: 160 * 8},
		{Name: "flags", Type: u32, Offset: 164 * 8},
	}}
}

func table(s *btf.Struct, rows ...[]byte) *ebpf.MapSpec {
	var b []byte
	for _, r := range rows {
		b = append(b, r...)
	}
	array := &btf.Const{Type: &btf.Array{Type: s, Nelems: uint32(len(rows))}}
	return &ebpf.MapSpec{
		Contents: []ebpf.MapKV{{Key: uint32(0), Value: b}},
		Value: &btf.Datasec{Vars: []btf.VarSecinfo{
			{Type: &btf.Var{Name: "points", Type: array}, Size: uint32(len(b))},
		}},
	}
}

func TestParse(t *testing.T) {
	points, err := Parse(table(layout(), row("libcuda", "cuMemAlloc_v2", 2, 1), row("libnccl", "ncclSend", 3, 0), row("libc10", "f", 1, 2), row("libcupti", "a:b", 0, 4), row("libtorch_cpu", "g", 255, 66), row("libvgpu", "cuMemAlloc_v2", 258, 129)))
	require.NoError(t, err)
	require.Equal(t, []Point{
		{Library: "libcuda", Symbol: "cuMemAlloc_v2", Cookie: 2, Exit: true},
		{Library: "libnccl", Symbol: "ncclSend", Cookie: 3},
		{Library: "libc10", Symbol: "f", Cookie: 1, EntrySleeps: true},
		{Library: "libcupti", Symbol: "a:b", USDT: true},
		{Library: "libtorch_cpu", Symbol: "g", Cookie: 255, EntrySleeps: true, ThreadLocals: true},
		{Library: "libvgpu", Symbol: "cuMemAlloc_v2", Cookie: 258, Exit: true, Beside: true},
	}, points)
}

func TestATableOfAnotherLayoutIsAnError(t *testing.T) {
	good := row("libcuda", "f", 1, 0)
	larger := layout()
	larger.Size = 176
	renamed := layout()
	renamed.Members[2].Name = "id"
	swapped := layout()
	swapped.Members[2].Offset, swapped.Members[3].Offset = swapped.Members[3].Offset, swapped.Members[2].Offset
	fewer := layout()
	fewer.Members = fewer.Members[:3]
	other := layout()
	other.Name = "point"
	noBTF := table(layout(), good)
	noBTF.Value = nil
	for name, c := range map[string]struct {
		spec *ebpf.MapSpec
		want string
	}{
		"larger struct":    {table(larger, good), "not struct attach_point of 168 bytes"},
		"renamed member":   {table(renamed, good), "unexpected member id"},
		"swapped members":  {table(swapped, good), "unexpected member"},
		"missing member":   {table(fewer, good), "1 members are missing"},
		"other struct":     {table(other, good), "not struct attach_point"},
		"no BTF":           {noBTF, "no BTF"},
		"half a row":       {table(layout(), good[:100]), "no table of 168-byte rows"},
		"no symbol":        {table(layout(), row("libcuda", "", 1, 0)), "empty or unterminated"},
		"long symbol":      {table(layout(), row("libcuda", strings.Repeat("x", 128), 1, 0)), "empty or unterminated"},
		"flag of tomorrow": {table(layout(), row("libcuda", "f", 1, 1<<15)), "newer than this program"},
		"no fact":          {table(layout(), row("libcuda", "f", 1, 8)), "needs a fact"},
		"not on demand":    {table(layout(), row("libcuda", "f", 1, 1<<16)), "needs a fact"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Parse(c.spec)
			require.ErrorContains(t, err, c.want)
		})
	}
}
