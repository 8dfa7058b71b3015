// SPDX-License-Identifier: Apache-2.0

package module

import (
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
)

// Access is how the address of a thread-local variable is found in a process.
type Access uint8

const (
	// AccessStatic means that Address is the variable's offset from the thread pointer.
	AccessStatic Access = iota + 1
	// AccessOffset means that the dynamic linker puts that offset into the word at Address
	// (R_X86_64_TPOFF64, R_AARCH64_TLS_TPREL).
	AccessOffset
	// AccessIndex means that it puts the number of the module into the word at Address
	// (R_X86_64_DTPMOD64, R_AARCH64_TLS_DTPMOD).
	AccessIndex
	// AccessDescriptor means that it puts a descriptor into the two words at Address
	// (R_X86_64_TLSDESC, R_AARCH64_TLSDESC).
	AccessDescriptor
)

// OffsetBeside is the Offset of a variable whose offset in the module is in the word
// behind the one with the module's number.
const OffsetBeside = ^uint64(0)

// ThreadLocal says where a process has the address of a thread-local variable.
type ThreadLocal struct {
	Access  Access
	Address uint64 // in the file's own numbering, except AccessStatic
	Offset  uint64 // of AccessIndex: in the module's block, or OffsetBeside
	// IsProgram: an executable defines it, and not a library.
	IsProgram bool
}

// ErrNoAccess means that the file defines the variable, and nothing in it says how to find it.
var ErrNoAccess = errors.New("no relocation for the thread-local variable")

const (
	// maxChain bounds the symbols with one hash; linkers aim at fewer than ten.
	maxChain = 4 << 10
	// maxRelocations: libtorch_cuda of PyTorch 2.6 has about 400,000.
	maxRelocations = 8 << 20

	symbolEntry     = 24 // Elf64_Sym
	relocationEntry = 24 // Elf64_Rela
)

// relocations of thread-local variables by machine, in the order of Access from
// AccessOffset on: System V ABI for x86-64, table 4.9; ELF for the Arm 64-bit
// architecture, "Dynamic thread-local relocations".
var threadRelocations = map[elf.Machine][3]uint32{
	elf.EM_X86_64:  {uint32(elf.R_X86_64_TPOFF64), uint32(elf.R_X86_64_DTPMOD64), uint32(elf.R_X86_64_TLSDESC)},
	elf.EM_AARCH64: {uint32(elf.R_AARCH64_TLS_TPREL64), uint32(elf.R_AARCH64_TLS_DTPMOD64), uint32(elf.R_AARCH64_TLSDESC)},
}

// ThreadLocal finds an exported thread-local variable that this file defines. The
// error is ErrNoSymbols where it does not, which takes two small reads of most files.
func (m *Module) ThreadLocal(name string) (ThreadLocal, error) {
	tags, err := m.dynamicTags()
	if err != nil {
		return ThreadLocal{}, err
	}
	index, value, err := m.findThreadLocal(tags, name)
	if err != nil {
		return ThreadLocal{}, fmt.Errorf("look %s up: %w", name, err)
	}
	const pie = 0x08000000 // DF_1_PIE
	v := ThreadLocal{IsProgram: m.program || tags[elf.DT_FLAGS_1]&pie != 0}
	if err := m.accessOf(tags, index, value, &v); err != nil {
		return ThreadLocal{}, fmt.Errorf("find %s: %w", name, err)
	}
	if v.Access != 0 {
		return v, nil
	}
	if !v.IsProgram {
		return ThreadLocal{}, ErrNoAccess
	}
	v.Access = AccessStatic
	if v.Address, err = m.staticOffset(value); err != nil {
		return ThreadLocal{}, err
	}
	return v, nil
}

// ThreadLocalBlock is where a process has the thread-local variables of a library.
type ThreadLocalBlock struct {
	Variable ThreadLocal // one of them
	Offset   uint64      // of it in the block
	Size     uint64
}

// ThreadLocalBlock finds a library's own thread-local variables, exported or not: by a
// relocation without a symbol, which the code has for those that are not.
func (m *Module) ThreadLocalBlock() (ThreadLocalBlock, error) {
	tags, err := m.dynamicTags()
	if err != nil {
		return ThreadLocalBlock{}, err
	}
	types, ok := threadRelocations[m.machine]
	if !ok {
		return ThreadLocalBlock{}, fmt.Errorf("%w: machine %v", ErrUnsupported, m.machine)
	}
	b := ThreadLocalBlock{Size: m.tls.memsz}
	take := func(r []byte) {
		le := binary.LittleEndian
		info, addend := le.Uint64(r[8:]), le.Uint64(r[16:])
		for i, typ := range types {
			if info>>32 != 0 || uint32(info) != typ || b.Variable.Access != 0 || addend >= b.Size {
				continue
			}
			b.Variable = ThreadLocal{Access: AccessOffset + Access(i), Address: le.Uint64(r)}
			b.Offset = addend
		}
	}
	if err := m.eachDynamicRelocation(tags, take); err != nil {
		return ThreadLocalBlock{}, err
	}
	if b.Variable.Access == 0 {
		return ThreadLocalBlock{}, ErrNoAccess
	}
	return b, nil
}

// findThreadLocal gives a symbol's number and value.
func (m *Module) findThreadLocal(tags map[elf.DynTag]uint64, name string) (index, value uint64, err error) {
	symtab, strtab := tags[elf.DT_SYMTAB], tags[elf.DT_STRTAB]
	if symtab == 0 || strtab == 0 {
		return 0, 0, ErrNoSymbols
	}
	// is: the symbol is the requested one, and is defined here.
	is := func(i uint64) (bool, error) {
		b, err := m.at(symtab+i*symbolEntry, symbolEntry)
		if err != nil {
			return false, fmt.Errorf("read symbol: %w", err)
		}
		le := binary.LittleEndian
		if elf.ST_TYPE(b[4]) != elf.STT_TLS || elf.SectionIndex(le.Uint16(b[6:])) == elf.SHN_UNDEF {
			return false, nil
		}
		value = le.Uint64(b[8:])
		text, err := m.at(strtab+uint64(le.Uint32(b)), uint64(len(name)+1))
		return err == nil && string(text) == name+"\x00", nil // near the end: another name
	}
	switch {
	case tags[elf.DT_GNU_HASH] != 0:
		index, err = m.gnuLookup(tags[elf.DT_GNU_HASH], name, is)
	case tags[elf.DT_HASH] != 0:
		index, err = m.hashLookup(tags[elf.DT_HASH], name, is)
	default:
		err = ErrNoSymbols
	}
	return index, value, err
}

// gnuLookup finds a name by DT_GNU_HASH.
func (m *Module) gnuLookup(addr uint64, name string, is func(uint64) (bool, error)) (uint64, error) {
	le := binary.LittleEndian
	h, err := m.at(addr, 16)
	if err != nil {
		return 0, fmt.Errorf("read DT_GNU_HASH: %w", err)
	}
	buckets, first := uint64(le.Uint32(h)), uint64(le.Uint32(h[4:]))
	words, shift := uint64(le.Uint32(h[8:])), le.Uint32(h[12:])
	if buckets == 0 || words == 0 {
		return 0, ErrNoSymbols
	}
	hash := uint32(5381)
	for _, c := range []byte(name) {
		hash = hash*33 + uint32(c)
	}
	bloom, err := m.at(addr+16+uint64(hash)/64%words*8, 8)
	if err != nil {
		return 0, fmt.Errorf("read DT_GNU_HASH: %w", err)
	}
	if w := le.Uint64(bloom); w>>(hash%64)&1 == 0 || w>>((hash>>(shift&31))%64)&1 == 0 {
		return 0, ErrNoSymbols
	}
	at := addr + 16 + words*8
	b, err := m.at(at+uint64(hash)%buckets*4, 4)
	if err != nil {
		return 0, fmt.Errorf("read DT_GNU_HASH: %w", err)
	}
	i := uint64(le.Uint32(b))
	if i < first || i == 0 {
		return 0, ErrNoSymbols
	}
	for range maxChain {
		b, err := m.at(at+buckets*4+(i-first)*4, 4)
		if err != nil {
			return 0, fmt.Errorf("read DT_GNU_HASH: %w", err)
		}
		link := le.Uint32(b)
		if link|1 == hash|1 {
			if found, err := is(i); found || err != nil {
				return i, err
			}
		}
		if link&1 != 0 {
			return 0, ErrNoSymbols
		}
		i++
	}
	return 0, &LimitError{"symbols of one hash", maxChain + 1, maxChain}
}

// hashLookup finds a name by DT_HASH.
func (m *Module) hashLookup(addr uint64, name string, is func(uint64) (bool, error)) (uint64, error) {
	le := binary.LittleEndian
	h, err := m.at(addr, 8)
	if err != nil {
		return 0, fmt.Errorf("read DT_HASH: %w", err)
	}
	buckets, count := uint64(le.Uint32(h)), uint64(le.Uint32(h[4:]))
	if buckets == 0 {
		return 0, ErrNoSymbols
	}
	hash := uint32(0)
	for _, c := range []byte(name) {
		hash = hash<<4 + uint32(c)
		hash ^= hash >> 24 & 0xf0
		hash &= 0x0fffffff
	}
	next := addr + 8 + uint64(hash)%buckets*4
	for range maxChain {
		b, err := m.at(next, 4)
		if err != nil {
			return 0, fmt.Errorf("read DT_HASH: %w", err)
		}
		i := uint64(le.Uint32(b))
		if i == 0 || i >= count {
			return 0, ErrNoSymbols
		}
		if found, err := is(i); found || err != nil {
			return i, err
		}
		next = addr + 8 + buckets*4 + i*4
	}
	return 0, &LimitError{"symbols of one hash", maxChain + 1, maxChain}
}

// accessOf looks for the words that the dynamic linker fills in for the variable: by
// its name, since another module may define it, too, and be found first. A relocation
// without a symbol is the module's own (local-dynamic), of the variable with the value
// that is added. Of several the one that costs least to read wins.
func (m *Module) accessOf(tags map[elf.DynTag]uint64, index, value uint64, v *ThreadLocal) error {
	types, ok := threadRelocations[m.machine]
	if !ok {
		return fmt.Errorf("%w: machine %v", ErrUnsupported, m.machine)
	}
	const named = 10
	preference := map[Access]int{AccessOffset: 3, AccessDescriptor: 2, AccessIndex: 1}
	best := 0
	take := func(b []byte) {
		le := binary.LittleEndian
		info, addend := le.Uint64(b[8:]), le.Uint64(b[16:])
		for i, typ := range types {
			access := AccessOffset + Access(i)
			symbol, rank := info>>32, preference[access]
			if symbol == index {
				rank += named
			}
			// The one of the module itself has the module's number only.
			own := symbol == 0 && (access == AccessIndex || addend == value)
			if uint32(info) != typ || rank <= best || symbol != index && !own {
				continue
			}
			best = rank
			v.Access, v.Address, v.Offset = access, le.Uint64(b), 0
			switch {
			case access == AccessIndex && own:
				v.Offset = value
			case access == AccessIndex:
				v.Offset = OffsetBeside
			}
		}
	}
	return m.eachDynamicRelocation(tags, take)
}

func (m *Module) eachDynamicRelocation(tags map[elf.DynTag]uint64, take func([]byte)) error {
	if err := m.eachRelocation(tags[elf.DT_RELA], tags[elf.DT_RELASZ], take); err != nil {
		return err
	}
	if elf.DynTag(tags[elf.DT_PLTREL]) != elf.DT_RELA {
		return nil
	}
	return m.eachRelocation(tags[elf.DT_JMPREL], tags[elf.DT_PLTRELSZ], take)
}

func (m *Module) eachRelocation(addr, size uint64, take func([]byte)) error {
	count := size / relocationEntry
	if count > maxRelocations {
		return &LimitError{"relocations", count, maxRelocations}
	}
	const batch = 4096
	for addr != 0 && count > 0 {
		n := min(count, batch)
		b, err := m.at(addr, n*relocationEntry)
		if err != nil {
			return fmt.Errorf("read relocations: %w", err)
		}
		for ; len(b) >= relocationEntry; b = b[relocationEntry:] {
			take(b)
		}
		addr, count = addr+n*relocationEntry, count-n
	}
	return nil
}

// staticOffset is a program's own variable as linkers place it, from the thread
// pointer on: below it on x86-64, above two reserved words on arm64 (TLS variants II
// and I of Drepper's "ELF Handling For Thread-Local Storage").
func (m *Module) staticOffset(value uint64) (uint64, error) {
	align := max(m.align, 1)
	if m.tls.memsz == 0 || align&(align-1) != 0 {
		return 0, fmt.Errorf("%w: thread-local segment", ErrMalformed)
	}
	if m.machine == elf.EM_AARCH64 {
		const reserved = 16
		return value + reserved + (m.tls.addr-reserved)&(align-1), nil
	}
	return value - m.tls.memsz - (-m.tls.addr-m.tls.memsz)&(align-1), nil
}

// Bias is the difference between a process's addresses and the file's own, by the start and the
// offset of a mapping of code; false when no segment of the file is mapped so.
func (m *Module) Bias(start, offset uint64) (uint64, bool) {
	const page = 64 << 10 // the largest
	for _, l := range m.loads {
		if l.exec && offset >= l.off&^(page-1) && offset < l.off+l.filesz {
			return start - offset + l.off - l.addr, true
		}
	}
	return 0, false
}
