// SPDX-License-Identifier: Apache-2.0

package module

import (
	"debug/elf"
	"testing"

	"github.com/stretchr/testify/require"
)

// countedReads counts how often it is read.
type countedReads struct {
	sparse
	n int
}

func (c *countedReads) ReadAt(b []byte, at int64) (int, error) {
	c.n++
	return c.sparse.ReadAt(b, at)
}

// The file system of a file may take its time for each read.
func TestReadsOfAFileAreFew(t *testing.T) {
	const many = 20000
	sections := newBuilder().sections(many).u16(62, 1)
	for i := range many {
		sections.sectionAt(i, elf.SHT_PROGBITS, 0, 0, 4096)
	}
	notes := newBuilder().programs(maxProgramHeaders)
	for i := range maxProgramHeaders {
		notes.program(i, elf.PT_NOTE, elf.PF_R, 0, 0, 16, 16)
	}
	// A chain of zeroes, whose symbols never end.
	const size = 64 << 20
	hash := newBuilder().programs(2).
		program(0, elf.PT_LOAD, elf.PF_R|elf.PF_X, 0, 0, size, size).
		program(1, elf.PT_DYNAMIC, elf.PF_R, 512, 512, 256, 256).
		dyn(0, elf.DT_SYMTAB, 2048).dyn(1, elf.DT_STRTAB, 2048).dyn(2, elf.DT_GNU_HASH, 3072).
		u32(3072, 1).u32(3072+16, 1) // one bucket, which begins with symbol 1
	for name, file := range map[string]sparse{
		"sections":   {sections.b, int64(len(sections.b))},
		"notes":      {notes.b, int64(len(notes.b))},
		"hash table": {hash.b, size},
	} {
		r := &countedReads{sparse: file}
		m, err := Open(r, file.size)
		require.NoError(t, err, name)
		_, err = m.Functions(nil)
		require.Error(t, err, name)
		_, _, ok := m.DebugLink()
		require.False(t, ok, name)
		_, err = m.Probes("nccl")
		require.NoError(t, err, name)
		require.Less(t, r.n, 40, name)
	}
}
