// SPDX-License-Identifier: Apache-2.0

package module

import (
	"debug/elf"
	"encoding/binary"
	"fmt"
)

// dynamicTable finds the exported symbols as the dynamic linker does, without
// sections. The table itself has no length: it is that of the hash table.
func (m *Module) dynamicTable() (table, error) {
	var t table
	tags, err := m.dynamicTags()
	if err != nil {
		return t, err
	}
	symtab, strtab, hash := tags[elf.DT_SYMTAB], tags[elf.DT_STRTAB], tags[elf.DT_HASH]
	gnuHash, versym := tags[elf.DT_GNU_HASH], tags[elf.DT_VERSYM]
	t.stringBytes = tags[elf.DT_STRSZ]
	var ok, ok2 bool
	if t.off, ok = m.FileOffset(symtab); !ok {
		return t, ErrNoSymbols
	}
	if t.strings, ok2 = m.FileOffset(strtab); !ok2 {
		return t, ErrNoSymbols
	}
	if versym != 0 {
		t.versions, _ = m.FileOffset(versym)
	}
	switch {
	case hash != 0:
		t.count, err = m.hashCount(hash)
	case gnuHash != 0:
		t.count, err = m.gnuHashCount(gnuHash)
	default:
		return t, ErrNoSymbols
	}
	return t, err
}

// dynamicTags reads the entries for the dynamic linker; of a tag that is there twice
// the last. ErrNoSymbols for a file that is linked statically.
func (m *Module) dynamicTags() (map[elf.DynTag]uint64, error) {
	if m.dynamic.filesz == 0 {
		return nil, ErrNoSymbols
	}
	const entry = 16 // Elf64_Dyn
	b, err := m.bytes(m.dynamic.off, min(m.dynamic.filesz, maxDynamicEntries*entry))
	if err != nil {
		return nil, fmt.Errorf("read dynamic segment: %w", err)
	}
	le := binary.LittleEndian
	tags := map[elf.DynTag]uint64{}
	for ; len(b) >= entry && elf.DynTag(le.Uint64(b)) != elf.DT_NULL; b = b[entry:] {
		tags[elf.DynTag(le.Uint64(b))] = le.Uint64(b[8:])
	}
	return tags, nil
}

// hashCount: the second word of DT_HASH is the number of symbols.
func (m *Module) hashCount(addr uint64) (uint64, error) {
	b, err := m.at(addr, 8)
	if err != nil {
		return 0, fmt.Errorf("read DT_HASH: %w", err)
	}
	return uint64(binary.LittleEndian.Uint32(b[4:])), nil
}

// gnuHashCount: the symbols of a bucket are neighbours, the last one marked by
// bit 0 of its hash; so the last symbol ends the bucket that starts highest.
func (m *Module) gnuHashCount(addr uint64) (uint64, error) {
	h, err := m.at(addr, 16)
	if err != nil {
		return 0, fmt.Errorf("read DT_GNU_HASH: %w", err)
	}
	le := binary.LittleEndian
	buckets, first := uint64(le.Uint32(h)), uint64(le.Uint32(h[4:]))
	bloom := uint64(le.Uint32(h[8:]))
	if buckets > maxSymbols || bloom > maxSymbols {
		return 0, &LimitError{"hash buckets", max(buckets, bloom), maxSymbols}
	}
	at := addr + 16 + bloom*8
	b, err := m.at(at, buckets*4)
	if err != nil {
		return 0, fmt.Errorf("read DT_GNU_HASH buckets: %w", err)
	}
	last := uint64(0)
	for ; len(b) >= 4; b = b[4:] {
		last = max(last, uint64(le.Uint32(b)))
	}
	if last < first {
		return first, nil // all buckets are empty: only imports
	}
	chain := at + buckets*4
	for batch := uint64(256); last-first < maxSymbols; batch = min(2*batch, maxSymbols) { // few reads, however many there are
		b, err := m.words(chain+(last-first)*4, batch)
		if err != nil {
			return 0, fmt.Errorf("read DT_GNU_HASH chain: %w", err)
		}
		for ; len(b) >= 4; b = b[4:] {
			last++
			if le.Uint32(b)&1 != 0 {
				return last, nil
			}
		}
	}
	return 0, &LimitError{"symbols", last, maxSymbols}
}

// words reads up to n words at an address, fewer at the end of the file.
func (m *Module) words(addr, n uint64) ([]byte, error) {
	if off, ok := m.FileOffset(addr); ok && off < uint64(m.size) {
		n = max(1, min(n, (uint64(m.size)-off)/4))
	}
	return m.at(addr, 4*n)
}

// at reads n bytes at an address.
func (m *Module) at(addr, n uint64) ([]byte, error) {
	off, ok := m.FileOffset(addr)
	if !ok {
		return nil, fmt.Errorf("%w: no bytes at %#x", ErrMalformed, addr)
	}
	return m.bytes(off, n)
}
