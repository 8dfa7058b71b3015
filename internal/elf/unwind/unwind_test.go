// SPDX-License-Identifier: Apache-2.0

package unwind

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"math/rand/v2"
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// ruleAt is the rule of the rows at a place of the file.
func ruleAt(rows []Row, off uint64) Rule {
	r := Rule{}
	for _, row := range rows {
		if row.Offset > off {
			break
		}
		r = row.Rule
	}
	return r
}

func TestPagesAgreeWithTheWholeFile(t *testing.T) {
	path := libraries(t)[0]
	rows, f := allRows(t, path)
	rng := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		i := rng.IntN(len(rows))
		at := rows[i].Offset
		page, err := f.Rows(at, at+1)
		require.NoError(t, err)
		require.Equal(t, []Row{rows[i]}, page, "at %#x", at)
		page, err = f.Rows(at&^(1<<16-1), at&^(1<<16-1)+1<<16)
		require.NoError(t, err)
		require.Equal(t, rows[i].Rule, ruleAt(page, at), "at %#x of a large page", at)
	}
}

func TestRowsAreSortedAndDiffer(t *testing.T) {
	_, f := allRows(t, libraries(t)[0])
	for _, l := range f.loads {
		if !l.exec {
			continue
		}
		rows, err := f.Rows(l.off, l.off+min(l.filesz, 1<<16))
		require.NoError(t, err)
		for i := range rows[1:] {
			require.Less(t, rows[i].Offset, rows[i+1].Offset)
			require.True(t, rows[i].Rule != rows[i+1].Rule || rows[i+1].Begins)
		}
	}
}

// symbolRule is the rule at a symbol + off of a program.
func symbolRule(t *testing.T, path, name string, off uint64) Rule {
	t.Helper()
	e, err := elf.Open(path)
	require.NoError(t, err)
	defer e.Close()
	symbols, err := e.Symbols()
	require.NoError(t, err)
	rows, f := allRows(t, path)
	for _, s := range symbols {
		if s.Name == name {
			at, ok := f.codeOffset(s.Value + off)
			require.True(t, ok)
			return ruleAt(rows, at)
		}
	}
	require.Fail(t, "no symbol "+name)
	return Rule{}
}

func TestAStackEndsAtTheProgramsEntry(t *testing.T) {
	path := compiled(t, "-O2")
	assert.Equal(t, Rule{Kind: Stop}, symbolRule(t, path, "_start", 10))
	assert.NotEqual(t, None, symbolRule(t, path, "main", 10).Kind)
}

func TestAStaticProgramHasRulesWithoutATable(t *testing.T) {
	path := compiled(t, "-O2", "-static")
	assert.Equal(t, Stop, symbolRule(t, path, "_start", 10).Kind)
	assert.NotEqual(t, None, symbolRule(t, path, "main", 10).Kind)
	assert.NotEqual(t, None, symbolRule(t, path, "malloc", 10).Kind)
}

func TestLinkageTablesAndSignalFrames(t *testing.T) {
	kinds := map[Kind]int{}
	for _, path := range append(libraries(t), compiled(t, "-O2", "-Wl,-z,lazy")) {
		rows, f := allRows(t, path)
		if f.machine != elf.EM_X86_64 {
			t.Skip("only x86-64 has an expression for its linkage tables")
		}
		for _, r := range rows {
			kinds[r.Rule.Kind]++
			if r.Rule.Kind == PLT {
				assert.Contains(t, []int32{5, 9, 10, 11}, r.Rule.CFA)
			}
		}
	}
	t.Log(kinds)
	assert.NotZero(t, kinds[PLT])
	assert.NotZero(t, kinds[Signal])
	assert.NotZero(t, kinds[Stop])
}

func TestOtherFilesAreRefused(t *testing.T) {
	_, err := Open(bytes.NewReader([]byte("#!/bin/sh\n")), 10)
	assert.ErrorIs(t, err, ErrNotELF)
	b, err := os.ReadFile(compiled(t, "-O2"))
	require.NoError(t, err)
	b[4] = byte(elf.ELFCLASS32)
	_, err = Open(bytes.NewReader(b), int64(len(b)))
	assert.ErrorIs(t, err, ErrNotELF)
}

// TestDamagedFilesGiveRulesOrNone: whatever the bytes are, no read is outside the file, and
// nothing takes long.
func TestDamagedFilesGiveRulesOrNone(t *testing.T) {
	whole, err := os.ReadFile(compiled(t, "-O2"))
	require.NoError(t, err)
	rng := rand.New(rand.NewPCG(3, 4))
	opened := 0
	for range 3000 {
		b := bytes.Clone(whole)
		for range 1 + rng.IntN(40) {
			b[rng.IntN(len(b))] = byte(rng.Uint32())
		}
		b = b[:len(b)-rng.IntN(len(b)/4)]
		opened += readAll(b)
	}
	assert.Greater(t, opened, 1000)
}

// readAll reads the rules of a file that may be anything.
func readAll(b []byte) int {
	f, err := Open(bytes.NewReader(b), int64(len(b)))
	if err != nil {
		return 0
	}
	for at := uint64(0); at < uint64(len(b)); at += 4096 {
		_, _ = f.Rows(at, at+4096)
	}
	return 1
}

func TestManyFunctionsWithoutATableAreRefused(t *testing.T) {
	path := compiled(t, "-O2", "-static")
	b, err := os.ReadFile(path)
	require.NoError(t, err)
	f, err := elf.Open(path)
	require.NoError(t, err)
	defer f.Close()
	s := f.Section(".eh_frame")
	require.NotNil(t, s)
	// All FDEs are one, over and over: shorter than any compiler writes.
	data := b[s.Offset : s.Offset+s.FileSize]
	cie := binary.LittleEndian.Uint32(data) + 4
	for at := cie; int(at)+24 <= len(data); at += 24 {
		binary.LittleEndian.PutUint32(data[at:], 20)
		binary.LittleEndian.PutUint32(data[at+4:], at+4)
	}
	_, err = Open(bytes.NewReader(b), int64(len(b)))
	assert.NoError(t, err) // fewer than the limit: sorted, and searched
}

func FuzzRows(f *testing.F) {
	f.Add(forged(fdeAt+64, nil))
	if b, err := os.ReadFile("/bin/true"); err == nil && len(b) < 1<<18 {
		f.Add(b)
	}
	f.Fuzz(func(_ *testing.T, b []byte) { readAll(b) })
}

func TestExpressionsOfFrames(t *testing.T) {
	for name, c := range map[string]struct {
		expr []byte
		want Rule
	}{
		"a linkage table":           {[]byte{0x77, 8, 0x80, 0, 0x3f, 0x1a, 0x3b, 0x2a, 0x33, 0x24, 0x22}, Rule{Kind: PLT, CFA: 11, RA: -8}},
		"a word below the pointer":  {[]byte{0x76, 0x78, 0x06}, Rule{Kind: FromWordAtFP, CFA: -8, RA: -8}},
		"a word on the stack, + 16": {[]byte{0x77, 8, 0x06, 0x23, 16}, Rule{Kind: FromWordAtSP, CFA: 8, Add: 16, RA: -8}},
		"a register":                {[]byte{0x77, 16}, Rule{Kind: FromSP, CFA: 16, RA: -8}},
		"another register":          {[]byte{0x7a, 0}, Rule{}},
		"something else":            {[]byte{0x77, 8, 0x06, 0x06}, Rule{}},
		"nothing":                   {nil, Rule{}},
	} {
		m := machine{regs: registersOf(elf.EM_X86_64)}
		m.now.ra = place{atCFA, -8}
		m.frameBy(c.expr)
		assert.Equal(t, c.want, m.rule(), name)
	}
}

func TestArm64KeepsReturnAddressesInARegister(t *testing.T) {
	m := machine{regs: registersOf(elf.EM_AARCH64)}
	m.frame(31, 32)
	assert.Equal(t, Rule{Kind: FromSP, CFA: 32}, m.rule())
	m.save(30, place{atCFA, -24})
	m.save(29, place{atCFA, -32})
	assert.Equal(t, Rule{Kind: FromSP, CFA: 32, Saved: AtCFA, FP: -32, RA: -24}, m.rule())
	m.save(30, place{how: undefined})
	assert.Equal(t, Rule{Kind: Stop}, m.rule())
}
