// SPDX-License-Identifier: Apache-2.0

package unwind

import "encoding/binary"

// maxStarts bounds the functions of a file; libtorch_cpu has 600,000.
const maxStarts = 4 << 20

// Starts are the addresses at which functions with unwind information begin, as the file has them:
// in ascending order. Stripped files have them, too. Nil: none, or too many.
func (f *File) Starts() []uint64 {
	if f.scanned != nil {
		all := make([]uint64, len(f.scanned))
		for i, e := range f.scanned {
			all[i] = e.function
		}
		return all
	}
	if f.entries == 0 || f.entries > maxStarts {
		return nil
	}
	for _, l := range f.loads {
		if f.header < l.addr || f.header+12-l.addr+8*f.entries > l.filesz {
			continue
		}
		b := make([]byte, 8*f.entries)
		if f.readAt(b, l.off+f.header+12-l.addr) != nil {
			return nil
		}
		all := make([]uint64, f.entries)
		for i := range all {
			all[i] = f.header + uint64(int64(int32(binary.LittleEndian.Uint32(b[8*i:]))))
		}
		return all
	}
	return nil
}
