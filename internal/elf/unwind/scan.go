// SPDX-License-Identifier: Apache-2.0

package unwind

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"fmt"
	"slices"
)

// scan makes the table of functions of a file that has none, by reading all of .eh_frame: ld
// writes no table for static programs. h is the file's header.
func (f *File) scan(h []byte) error {
	begin, size, err := f.section(h, ".eh_frame")
	if err != nil {
		return err
	}
	f.header = 0
	for at := begin; at-begin+4 < size; {
		b, err := f.view(at, 8)
		if err != nil || f.failed != nil {
			break
		}
		n, isFDE := binary.LittleEndian.Uint32(b), binary.LittleEndian.Uint32(b[4:]) != 0
		if n < 4 || n > maxEntryBytes {
			break
		}
		if isFDE {
			if len(f.scanned) == maxScanned {
				return fmt.Errorf("%w: more than %d functions without a table", ErrNoRules, maxScanned)
			}
			if e, err := f.fde(at); err == nil {
				f.scanned = append(f.scanned, entry{e.begin, at})
			}
		}
		at += 4 + uint64(n)
	}
	if len(f.scanned) == 0 {
		return ErrNoRules
	}
	slices.SortFunc(f.scanned, func(a, b entry) int { return cmp.Compare(a.function, b.function) })
	f.entries = uint64(len(f.scanned))
	return nil
}

// section is where a section is in memory, by the section headers.
func (f *File) section(h []byte, name string) (addr, size uint64, err error) {
	le := binary.LittleEndian
	const bytesEach = 64
	at, each, count, names := le.Uint64(h[40:]), le.Uint16(h[58:]), le.Uint16(h[60:]), le.Uint16(h[62:])
	if each != bytesEach || count == 0 || count > maxSections || names >= count {
		return 0, 0, fmt.Errorf("%w, and %d section headers", ErrNoRules, count)
	}
	table := make([]byte, bytesEach*int(count))
	if err := f.readAt(table, at); err != nil {
		return 0, 0, fmt.Errorf("read section headers: %w", err)
	}
	of := table[bytesEach*int(names):]
	text := make([]byte, min(le.Uint64(of[32:]), maxNameBytes))
	if err := f.readAt(text, le.Uint64(of[24:])); err != nil {
		return 0, 0, fmt.Errorf("read names of sections: %w", err)
	}
	for ; len(table) > 0; table = table[bytesEach:] {
		i := le.Uint32(table)
		if uint64(i) < uint64(len(text)) && bytes.HasPrefix(text[i:], append([]byte(name), 0)) {
			return le.Uint64(table[16:]), le.Uint64(table[32:]), nil
		}
	}
	return 0, 0, ErrNoRules
}
