// SPDX-License-Identifier: Apache-2.0

package unwind

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
)

// overlapping is a file of a MiB without .eh_frame_hdr, with a function for each of 1,024 CIEs that begin every 16 bytes and
// have as many bytes as they may, and as the file has.
func overlapping(most uint32) []byte {
	const region, base, functions = 1<<20 - 64, 0x1000, 1024
	const fdes = base + 16*functions
	le := binary.LittleEndian
	b := make([]byte, base+region)
	copy(b, elf.ELFMAG)
	b[elf.EI_CLASS], b[elf.EI_DATA] = byte(elf.ELFCLASS64), byte(elf.ELFDATA2LSB)
	le.PutUint16(b[18:], uint16(elf.EM_X86_64))
	le.PutUint64(b[32:], 64)  // program headers
	le.PutUint64(b[40:], 256) // section headers
	for at, n := range map[int]uint16{54: 56, 56: 1, 58: 64, 60: 2, 62: 1} {
		le.PutUint16(b[at:], n)
	}
	segment := b[64:]
	le.PutUint32(segment, uint32(elf.PT_LOAD))
	le.PutUint32(segment[4:], uint32(elf.PF_X|elf.PF_R))
	le.PutUint64(segment[8:], base)
	le.PutUint64(segment[16:], base)
	le.PutUint64(segment[32:], region)
	rules, names := b[256:], b[256+64:]
	le.PutUint32(rules, 1)
	le.PutUint64(rules[16:], fdes)
	le.PutUint64(rules[32:], 24*functions)
	le.PutUint64(names[24:], 512)
	le.PutUint64(names[32:], 32)
	copy(b[513:], ".eh_frame\x00")
	for i := range functions {
		at, fde := base+16*i, fdes+24*i
		le.PutUint32(b[at:], min(most, uint32(region-16*i-4)))
		copy(b[at+8:], []byte{1, 0, 1, 0x78, 16}) // version 1, no augmentation, align 1 and −8
		le.PutUint32(b[fde:], 20)
		le.PutUint32(b[fde+4:], uint32(fde+4-at))
		le.PutUint64(b[fde+8:], uint64(at))
		le.PutUint64(b[fde+16:], 16)
	}
	return b
}

func TestWhatIsKeptOfCIEsIsBounded(t *testing.T) {
	for most, isRead := range map[uint32]bool{maxEntryBytes: false, maxCIEBytes + 1: false, maxCIEBytes: true} {
		b := overlapping(most)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		f, err := Open(bytes.NewReader(b), int64(len(b)))
		runtime.ReadMemStats(&after)
		kept := 0
		for _, e := range f.cies {
			kept += len(e.program)
		}
		require.LessOrEqual(t, kept, 4<<20, "CIEs of up to %d bytes", most)
		require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(16<<20), "bytes allocated for a file of a MiB")
		if isRead {
			require.NoError(t, err)
			require.Len(t, f.cies, 1024, "else nothing is tested")
		} else {
			require.ErrorIs(t, err, ErrNoRules)
		}
	}
}
