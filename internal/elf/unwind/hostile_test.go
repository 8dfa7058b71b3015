// SPDX-License-Identifier: Apache-2.0

package unwind

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const (
	codeAt  = 0x1000 // in the forged file and in memory
	tableAt = 0x2000 // .eh_frame_hdr
	frameAt = 0x3000 // .eh_frame
	cieAt   = frameAt
	fdeAt   = frameAt + 32
)

// forged is a file with one segment, in which code has the rules that edit leaves of a right table.
func forged(size int, edit func(b []byte)) []byte {
	b := make([]byte, size)
	le := binary.LittleEndian
	copy(b, elf.ELFMAG)
	b[elf.EI_CLASS], b[elf.EI_DATA] = byte(elf.ELFCLASS64), byte(elf.ELFDATA2LSB)
	le.PutUint16(b[18:], uint16(elf.EM_X86_64))
	le.PutUint64(b[32:], 64)
	le.PutUint16(b[54:], 56)
	le.PutUint16(b[56:], 2)
	segment := func(b []byte, kind elf.ProgType, at, size uint64) {
		le.PutUint32(b, uint32(kind))
		le.PutUint32(b[4:], uint32(elf.PF_X|elf.PF_R))
		le.PutUint64(b[8:], at)
		le.PutUint64(b[16:], at)
		le.PutUint64(b[32:], size)
	}
	segment(b[64:], elf.PT_LOAD, 0, uint64(size))
	segment(b[64+56:], elf.PT_GNU_EH_FRAME, tableAt, 20)
	copy(b[tableAt:], []byte{1, encodingSigned4 | encodingPCRelative, encodingUnsigned4, encodingSigned4 | encodingDataRelative})
	le.PutUint32(b[tableAt+8:], 1)
	putEntry(b, 0, codeAt, fdeAt)
	le.PutUint32(b[cieAt:], 20)
	copy(b[cieAt+8:], []byte{1, 'z', 'R', 0, 1, 0x78, 16, 1, encodingSigned4 | encodingPCRelative, // align 1, −8
		opDefineCFA, 7, 8, opOffset | 16, 1})
	putFDE(b, fdeAt, 24, codeAt, 256)
	if edit != nil {
		edit(b)
	}
	return b
}

// putEntry is the i-th entry of the table.
func putEntry(b []byte, i int, function, fde uint64) {
	at := tableAt + 12 + 8*i
	binary.LittleEndian.PutUint32(b[at:], uint32(function)-tableAt)
	binary.LittleEndian.PutUint32(b[at+4:], uint32(fde)-tableAt)
}

// putFDE is an FDE of n bytes after its length, of a function.
func putFDE(b []byte, at uint64, n uint32, function, size uint64) {
	le := binary.LittleEndian
	le.PutUint32(b[at:], n)
	le.PutUint32(b[at+4:], uint32(at+4-cieAt))
	le.PutUint32(b[at+8:], uint32(function-(at+8)))
	le.PutUint32(b[at+12:], uint32(size))
	b[at+16] = 0 // no augmentation data
}

// counted counts what is read.
type counted struct {
	*bytes.Reader
	bytes int
}

func (c *counted) ReadAt(b []byte, off int64) (int, error) {
	n, err := c.Reader.ReadAt(b, off)
	c.bytes += n
	return n, err
}

// rulesOf reads the rules of a page, within bounds of reads and of time.
func rulesOf(t *testing.T, b []byte) []Row {
	t.Helper()
	began := time.Now()
	r := &counted{Reader: bytes.NewReader(b)}
	f, err := Open(r, int64(len(b)))
	if err != nil {
		return nil
	}
	rows, err := f.Rows(codeAt, codeAt+1024)
	require.NoError(t, err)
	assert.LessOrEqual(t, r.bytes, maxReadOfCall+maxReadOfScan, "bytes read")
	assert.Less(t, time.Since(began), 5*time.Second)
	for i, row := range rows {
		assert.GreaterOrEqual(t, row.Offset, uint64(codeAt))
		assert.True(t, i == 0 || rows[i-1].Offset < row.Offset)
	}
	return rows
}

func TestForgedTablesGiveNoRules(t *testing.T) {
	right := []Row{{codeAt, Rule{Kind: FromSP, CFA: 8, RA: -8}, true}, {codeAt + 256, Rule{}, false}}
	require.Equal(t, right, rulesOf(t, forged(1<<20, nil)), "else nothing below is tested")
	le := binary.LittleEndian
	program := func(ops ...byte) func([]byte) { return func(b []byte) { copy(b[fdeAt+17:], ops) } }
	for name, edit := range map[string]func(b []byte){
		"a table that is longer than the file":     func(b []byte) { le.PutUint32(b[tableAt+8:], math.MaxUint32) },
		"a table outside the file":                 func(b []byte) { le.PutUint64(b[64+56+16:], 1<<40) },
		"an entry outside the file":                func(b []byte) { le.PutUint32(b[tableAt+16:], 1<<30) },
		"an entry of another function":             func(b []byte) { putEntry(b, 0, codeAt+8, fdeAt) },
		"an FDE that ends after the file":          func(b []byte) { le.PutUint32(b[fdeAt:], maxEntryBytes) },
		"an FDE that is too large":                 func(b []byte) { le.PutUint32(b[fdeAt:], maxEntryBytes+1) },
		"an FDE that is empty":                     func(b []byte) { le.PutUint32(b[fdeAt:], 0) },
		"an FDE that is its own CIE":               func(b []byte) { le.PutUint32(b[fdeAt+4:], 4) },
		"an FDE whose CIE is an FDE":               func(b []byte) { le.PutUint32(b[cieAt+4:], 4) },
		"an FDE whose CIE is outside the file":     func(b []byte) { le.PutUint32(b[fdeAt+4:], math.MaxUint32) },
		"a function of negative length":            func(b []byte) { le.PutUint32(b[fdeAt+12:], math.MaxUint32); le.PutUint32(b[fdeAt+8:], 0) },
		"augmentation data that is too long":       func(b []byte) { b[fdeAt+16] = 0x7f },
		"a CIE that ends early":                    func(b []byte) { le.PutUint32(b[cieAt:], 9) },
		"a CIE of another version":                 func(b []byte) { b[cieAt+8] = 77 },
		"an augmentation that is not known":        func(b []byte) { b[cieAt+9] = 'e' },
		"addresses by way of a pointer":            func(b []byte) { b[cieAt+16] |= encodingIndirect },
		"another register for the return address":  func(b []byte) { b[cieAt+14] = 3 },
		"a state that was not remembered":          program(opRestoreState),
		"an instruction that is not known":         program(0x3f),
		"an expression that is longer than itself": program(opDefineCFAExpr, 0x7f),
		"a frame by a register that is not kept":   program(opDefineCFA, 3, 8),
		"a frame that is 2 GiB away":               program(opDefineCFAOffset, 0x80, 0x80, 0x80, 0x80, 8),
		"a return address at the frame's begin":    program(opOffset|16, 0),
		"a return address that is far away":        program(opOffset|16, 0x80, 0x80, 4),
		"numbers without an end":                   func(b []byte) { copy(b[fdeAt+17:], bytes.Repeat([]byte{0x80}, 11)); b[fdeAt+17] = opDefineCFAOffset },
	} {
		rows := rulesOf(t, forged(1<<20, edit))
		for _, row := range rows {
			assert.Equal(t, Rule{}, row.Rule, "%s: at %#x", name, row.Offset)
		}
	}
}

// TestFilesThatAreCutShortGiveNoWrongRule: what is left of the table is right, or there is none.
func TestFilesThatAreCutShortGiveNoWrongRule(t *testing.T) {
	whole := forged(fdeAt+28, nil)
	right := Rule{Kind: FromSP, CFA: 8, RA: -8}
	ruled := 0
	for n := range len(whole) + 1 {
		if n > 200 && n < tableAt-64 || n > tableAt+64 && n < frameAt-64 {
			continue
		}
		for _, row := range rulesOf(t, whole[:n]) {
			if row.Rule != (Rule{}) {
				assert.Equal(t, right, row.Rule)
				ruled++
			}
		}
	}
	assert.NotZero(t, ruled)
}

// TestAnEntryOfManyFunctionsIsNotReadForEach: 4,096 functions, each with an entry of a MiB that is
// not the one that was read last.
func TestAnEntryOfManyFunctionsIsNotReadForEach(t *testing.T) {
	const functions, size = maxEntriesOfCall, maxEntryBytes
	b := forged(4*size, func(b []byte) {
		binary.LittleEndian.PutUint32(b[tableAt+8:], functions)
		for i, at := range []uint64{fdeAt, fdeAt + 2*size} {
			putFDE(b, at, size, codeAt+1, 256)
			for n := i; n < functions; n += 2 {
				putEntry(b, n, codeAt+1, at)
			}
		}
	})
	rulesOf(t, b)
}

// TestManyRulesAreBounded: programs with a row for each byte, over and over.
func TestManyRulesAreBounded(t *testing.T) {
	b := forged(4<<20, func(b []byte) {
		binary.LittleEndian.PutUint32(b[tableAt+8:], maxEntriesOfCall)
		putFDE(b, fdeAt, maxEntryBytes, codeAt+1, 1<<20)
		for n := range maxEntriesOfCall {
			putEntry(b, n, codeAt+1, fdeAt)
		}
		ops := b[fdeAt+17:]
		for i := 0; i+3 < maxEntryBytes-20; i += 3 {
			copy(ops[i:], []byte{opDefineCFAOffset, byte(8 + 8*(i&1)), opAdvance | byte(i%1000/999)})
		}
	})
	rows := rulesOf(t, b)
	assert.LessOrEqual(t, len(rows), maxRowsOfCall)
}
