// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"debug/elf"
	"encoding/hex"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestOffset(t *testing.T) {
	for name, c := range map[string]struct {
		code string
		want uint64
	}{
		"libcuda's stub: cmpl; je; jmp *table": {
			"81 3d 11 22 33 44 00 01 00 00 | 74 0c | ff 25 11 22 33 44", 10},
		"push %rbp":                        {"55 | 48 89 e5", 0},
		"push %r12":                        {"41 54 | 55", 0},
		"endbr64; push %rbp":               {"f3 0f 1e fa | 55 | 48 89 e5", 4},
		"endbr64; push %r15":               {"f3 0f 1e fa | 41 57", 4},
		"endbr64; sub $8,%rsp; push":       {"f3 0f 1e fa | 48 83 ec 08 | 53", 0},
		"endbr64; jmp *plt":                {"f3 0f 1e fa | ff 25 00 00 00 00", 0},
		"xor %eax,%eax; ret":               {"31 c0 | c3", 0},
		"xor %eax,%eax; push %rbx":         {"31 c0 | 53", 2},
		"xor %edi,%edi changes argument 0": {"31 ff | 53", 0},
		"mov %rsp,%rax; push":              {"48 89 e0 | 53", 3},
		"lea 8(%rsp),%r10; and; push":      {"4c 8d 54 24 08 | 48 83 e4 f0 | 41 ff 72 f8", 0},
		"store to memory; push":            {"48 89 7c 24 f8 | 53", 0},
		"test %rdi,%rdi; je":               {"48 85 ff | 74 05 | c3", 3},
		"test; jne with 32 bits":           {"48 85 ff | 0f 85 00 01 00 00", 3},
		"loop back to the comparison":      {"31 c0 | 80 3c 07 00 | 74 05 | 48 ff c0 | eb f5 | c3", 0},
		"loop back to the entry":           {"80 3f 00 | 74 05 | 48 ff c7 | eb f6 | c3", 3},
		"call first (-pg)":                 {"e8 00 00 00 00 | 55", 0},
		"multi-byte nop then push":         {"0f 1f 44 00 00 | 53", 5},
		"multi-byte nop then sub":          {"0f 1f 44 00 00 | 48 83 ec 08", 0},
		"cut in the middle of je":          {"81 3d 11 22 33 44 00 01 00 00 74", 0},
		"nothing":                          {"", 0},
		"not code":                         {"06 06 06", 0},
		"hlt":                              {"f4 | 53", 0},
		"comparison too long before je":    {strings.Repeat("48 85 ff ", 10) + "74 05", 0},
	} {
		t.Run(name, func(t *testing.T) {
			code, err := hex.DecodeString(strings.NewReplacer(" ", "", "|", "").Replace(c.code))
			require.NoError(t, err)
			require.Equal(t, c.want, Offset(elf.EM_X86_64, code))
			require.Zero(t, Offset(elf.EM_AARCH64, code), "arm64 always probes the entry")
		})
	}
}

func FuzzOffset(f *testing.F) {
	f.Add([]byte{0x81, 0x3d, 1, 2, 3, 4, 0, 1, 0, 0, 0x74, 0x0c})
	f.Fuzz(func(t *testing.T, code []byte) {
		if off := Offset(elf.EM_X86_64, code); off > maxOffset {
			t.Fatalf("offset %d", off)
		}
	})
}
