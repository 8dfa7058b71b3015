// SPDX-License-Identifier: Apache-2.0

package module

import (
	"bytes"
	"debug/elf"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestAFunctionWithoutSizeEndsAtTheNextOrItsSection(t *testing.T) {
	f := newBuilder().programs(1).program(0, elf.PT_LOAD, elf.PF_R|elf.PF_X, 0, 0, 0x1000, 0x1000)
	f.sections(3).sectionAt(1, elf.SHT_PROGBITS, 0, 0, 0x40).sectionAt(2, elf.SHT_PROGBITS, 0, 0, 0x100)
	for i, addr := range []uint64{0x100, 0x200} {
		at := sectionsAt + 64*(i+1)
		f.u64(at+8, uint64(elf.SHF_EXECINSTR)).u64(at+16, addr)
	}
	m, err := Open(bytes.NewReader(f.grown(0x1000).b), 0x1000)
	require.NoError(t, err)
	require.Equal(t, []Symbol{
		{"asm", 0x100, 0x10}, {"sized", 0x110, 0x10}, {"last of its section", 0x130, 0x10},
		{"outer", 0x200, 0x40}, {"alias", 0x200, 0x40}, {"behind", 0x280, 0x80}, {"the same", 0x280, 0x80},
	}, m.bounded([]Symbol{
		{"before all sections", 0x80, 0}, {"asm", 0x100, 0}, {"sized", 0x110, 0x10}, {"last of its section", 0x130, 0},
		{"between sections", 0x180, 0}, {"outer", 0x200, 0x40}, {"alias", 0x200, 0x40}, {"unsized alias", 0x200, 0},
		{"label", 0x210, 0}, {"behind", 0x280, 0}, {"the same", 0x280, 0}, {"outside", 0x400, 0},
	}))
	// Segments, where there are no sections.
	bare, err := Open(bytes.NewReader(f.u64(40, 0).u16(60, 0).b), 0x1000)
	require.NoError(t, err)
	require.Equal(t, []Symbol{{"f", 0x280, 0xd80}}, bare.bounded([]Symbol{{"f", 0x280, 0}}))
}

// TestManyNamesOfOneAddressTakeNoTime: a file can claim millions.
func TestManyNamesOfOneAddressTakeNoTime(t *testing.T) {
	m := &Module{loads: []load{{addr: 0, filesz: 1 << 30, exec: true}}}
	many := make([]Symbol, maxSymbols)
	for i := range many {
		many[i] = Symbol{"f", 1, 0}
	}
	began := time.Now()
	require.Len(t, m.bounded(many), maxSymbols)
	require.Less(t, time.Since(began), 30*time.Second) // quadratic, it would be hours
}

func TestTheNameOfADebugLinkLeadsNowhereElse(t *testing.T) {
	for name, want := range map[string]bool{
		"libx.debug": true, "../../etc/passwd": false, "/etc/passwd": false, "..": false, ".": false, "": false,
	} {
		f := newBuilder().sections(3).sectionAt(1, elf.SHT_PROGBITS, 0, 2048, uint64(len(name)+4)&^3+4).
			sectionAt(2, elf.SHT_STRTAB, 0, 3072, 64).u16(62, 2).u32(sectionsAt+64, 1).grown(4096)
		copy(f.b[2048:], name)
		copy(f.b[3073:], ".gnu_debuglink")
		m, err := Open(bytes.NewReader(f.b), int64(len(f.b)))
		require.NoError(t, err)
		got, _, ok := m.DebugLink()
		require.Equal(t, want, ok, name)
		if ok {
			require.Equal(t, name, got)
		}
	}
}
