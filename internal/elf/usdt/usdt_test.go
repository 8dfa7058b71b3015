// SPDX-License-Identifier: Apache-2.0

package usdt

import (
	"debug/elf"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestOperandsAreRead(t *testing.T) {
	for text, want := range map[string][]Argument{
		"4@-44(%rbp) -4@-64(%rbp) 8@-40(%rbp)": {
			{Kind: Memory, Value: -44, Base: 32, Index: NoIndex, Bytes: 4},
			{Kind: Memory, Value: -64, Base: 32, Index: NoIndex, Bytes: 4, Signed: true},
			{Kind: Memory, Value: -40, Base: 32, Index: NoIndex, Bytes: 8},
		},
		"8@%rax -4@%r15d 2@%si 1@%dil": {
			{Kind: Register, Base: 80, Index: NoIndex, Bytes: 8},
			{Kind: Register, Base: 0, Index: NoIndex, Bytes: 4, Signed: true},
			{Kind: Register, Base: 104, Index: NoIndex, Bytes: 2},
			{Kind: Register, Base: 112, Index: NoIndex, Bytes: 1},
		},
		"-4@$-5 8@$0xffffffffffffffff": {
			{Kind: Constant, Value: -5, Index: NoIndex, Bytes: 4, Signed: true},
			{Kind: Constant, Value: -1, Index: NoIndex, Bytes: 8},
		},
		"8@16(%rax,%rcx,8)  4@(%rsp)": {
			{Kind: Memory, Value: 16, Base: 80, Index: 88, Shift: 3, Bytes: 8},
			{Kind: Memory, Base: 152, Index: NoIndex, Bytes: 4},
		},
		"": nil,
	} {
		got, err := Parse(elf.EM_X86_64, text)
		require.NoError(t, err, text)
		require.Equal(t, want, got, text)
	}
	got, err := Parse(elf.EM_AARCH64, "4@[sp, 60] 8@x0 -4@w30 8@[x2, x3] 4@17 8@[x19]")
	require.NoError(t, err)
	require.Equal(t, []Argument{
		{Kind: Memory, Value: 60, Base: 248, Index: NoIndex, Bytes: 4},
		{Kind: Register, Base: 0, Index: NoIndex, Bytes: 8},
		{Kind: Register, Base: 240, Index: NoIndex, Bytes: 4, Signed: true},
		{Kind: Memory, Base: 16, Index: 24, Bytes: 8},
		{Kind: Constant, Value: 17, Index: NoIndex, Bytes: 4},
		{Kind: Memory, Base: 152, Index: NoIndex, Bytes: 8},
	}, got)
}

// TestWhatIsNotKnownIsAnError: a wrong argument would be worse than none.
func TestWhatIsNotKnownIsAnError(t *testing.T) {
	for _, text := range []string{
		"4", "@%rax", "x@%rax", "3@%rax", "16@%xmm0", "8@%xmm0", "8@%ah", "8@%rip", "8@symbol(%rip)", "8@(%rax",
		"8@%rax)", "8@(%rax,%rcx,3)", "8@(%rax,%rcx,)", "8@(%rax,%rcx,2 4)", "8@(%rax,%rcx,4,1)", "8@$", "8@$x", "8@", "8@%",
		"128@%rax", "-128@%rax", "8@()", "8@5()", strings.Repeat("8@%rax ", 9), "f@%rax",
	} {
		_, err := Parse(elf.EM_X86_64, text)
		require.Error(t, err, "%q", text)
		require.Less(t, len(err.Error()), 200)
	}
	for _, text := range []string{"8@x31", "8@x+1", "8@[sp, 60", "8@[]", "8@[sp, v0]", "8@v0", "8@[x0, x1, lsl 3]", "8@d0"} {
		_, err := Parse(elf.EM_AARCH64, text)
		require.Error(t, err, "%q", text)
	}
	_, err := Parse(elf.EM_RISCV, "8@x0")
	require.Error(t, err)
}

func FuzzParse(f *testing.F) {
	f.Add("4@-44(%rbp) -4@%eax 8@$5 8@16(%rax,%rcx,8)")
	f.Add("4@[sp, 60] 8@x0 4@17 8@[x2, x3]")
	f.Fuzz(func(t *testing.T, text string) {
		for machine, last := range map[elf.Machine]uint16{elf.EM_X86_64: 152, elf.EM_AARCH64: 248} {
			all, err := Parse(machine, text)
			if err != nil && all != nil {
				t.Fatal("both")
			}
			if len(all) > MaxArguments {
				t.Fatal("too many")
			}
			for _, a := range all {
				if a.Base > last || a.Base%8 != 0 || a.Index != NoIndex && a.Index > last || a.Shift > 3 || a.Kind < Constant || a.Kind > Memory {
					t.Fatalf("%+v", a)
				}
			}
		}
	})
}
