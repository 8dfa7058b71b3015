// SPDX-License-Identifier: Apache-2.0

package module

import (
	"bytes"
	"cmp"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
)

const (
	sectionSize = 64 // Elf64_Shdr
	symbolSize  = 24 // Elf64_Sym
)

// section is an Elf64_Shdr.
type section struct {
	name, typ, link, info  uint32
	flags, addr, off, size uint64
}

func (m *Module) section(i uint64) (section, error) {
	var s section
	b, err := m.bytes(m.sectionsAt+i*sectionSize, sectionSize)
	if err != nil {
		return s, fmt.Errorf("read section header %d: %w", i, err)
	}
	parseSection(b, &s)
	return s, nil
}

func parseSection(b []byte, s *section) {
	le := binary.LittleEndian
	s.name, s.typ = le.Uint32(b), le.Uint32(b[4:])
	s.flags = le.Uint64(b[8:])
	s.addr, s.off, s.size = le.Uint64(b[16:]), le.Uint64(b[24:]), le.Uint64(b[32:])
	s.link, s.info = le.Uint32(b[40:]), le.Uint32(b[44:])
}

// symbol is a Symbol as one table has it.
type symbol struct {
	Symbol
	// rank orders several symbols of one name or one address: smaller is
	// better. A default version before a hidden one, dynamic before static
	// table, global before weak before local.
	rank     uint8
	resolver bool // IFUNC: the address is that of the function that picks one
}

const (
	rankWeak   = 1
	rankLocal  = 2
	rankStatic = 4
	rankHidden = 8 // not the default version: name@VERSION
)

// Functions returns the functions of .symtab, .dynsym (through the dynamic
// segment when there are no sections) and .gnu_debugdata, and of the .symtab of
// a debug file that describes the module (nil: none), sorted by address, then best
// name first. Every call reads the files again; the slice is the
// caller's. ErrNoSymbols when there are none; an error comes with no functions.
//
// A function that the tables have no size of, as assembly often is, ends where
// the next one begins, by the tables or by the unwind information, which has those without a
// symbol, or where its section ends; one that lies inside of another with a size is a label of
// that, and left out.
func (m *Module) Functions(debug *Module) ([]Symbol, error) {
	all, err := m.symbols(debug, isFunction)
	if err != nil {
		return nil, err
	}
	if all = m.bounded(all); len(all) == 0 {
		return nil, ErrNoSymbols
	}
	return all, nil
}

// Pointers returns the variables that are as large as a pointer, from the same tables as Functions
// and in the same order. The address of such a variable is how HIP knows a kernel: clang gives it
// the kernel's name, and the kernel's host function as its value.
func (m *Module) Pointers(debug *Module) ([]Symbol, error) {
	return m.symbols(debug, isPointer)
}

// symbols returns those that is accepts, sorted by address, then best name first.
func (m *Module) symbols(debug *Module, is isWanted) ([]Symbol, error) {
	all, err := m.readSymbols(is, nil)
	if debug != nil {
		// One that cannot be read is none: what the module has itself remains.
		if more, err2 := debug.static(is); err2 == nil && len(more) > 0 {
			all, err = append(all, more...), nil
		}
	}
	if err != nil {
		return nil, err
	}
	slices.SortFunc(all, func(a, b symbol) int {
		return cmp.Or(cmp.Compare(a.Address, b.Address), cmp.Compare(a.rank, b.rank),
			strings.Compare(a.Name, b.Name))
	})
	out := make([]Symbol, 0, len(all))
	for _, s := range all {
		if n := len(out); n > 0 && out[n-1].Address == s.Address && out[n-1].Name == s.Name {
			continue
		}
		out = append(out, s.Symbol)
	}
	return out, nil
}

// Lookup returns the addresses of those symbols that the module defines as
// functions, as Find does.
func (m *Module) Lookup(symbols []string) (map[string]uint64, error) {
	found, err := m.Find(symbols)
	if err != nil {
		return nil, err
	}
	addresses := make(map[string]uint64, len(found))
	for name, s := range found {
		addresses[name] = s.Address
	}
	return addresses, nil
}

// Find returns those symbols that the module defines as functions, by name, with the
// sizes of the table. An exported symbol is preferred to a static one of the same name,
// and the default version to others. Indirect functions (IFUNC) are left out:
// their address is that of a resolver, which runs once. None of them is an
// empty map; ErrNoSymbols is for a module without any symbol table.
func (m *Module) Find(symbols []string) (map[string]Symbol, error) {
	rank := make(map[string]uint8, len(symbols))
	for _, s := range symbols {
		rank[s] = 255
	}
	all, err := m.readSymbols(isFunction, rank)
	if err != nil {
		return nil, err
	}
	found := map[string]Symbol{}
	for _, s := range all {
		if !s.resolver && s.rank < rank[s.Name] {
			rank[s.Name], found[s.Name] = s.rank, s.Symbol
		}
	}
	return found, nil
}

// readSymbols takes what it can get: an unreadable table counts only when no
// other could be read. With wanted, only symbols of these names are returned,
// and .gnu_debugdata, which has no exported functions, is not unpacked.
func (m *Module) readSymbols(is isWanted, wanted map[string]uint8) ([]symbol, error) {
	var out []symbol
	var firstErr error
	tables := 0
	keep := func(t table, err error) bool {
		var got []symbol
		if err == nil {
			got, err = m.readTable(t, is, wanted)
		}
		switch {
		case err == nil:
			tables++
			out = append(out, got...)
		case firstErr == nil && !errors.Is(err, ErrNoSymbols):
			firstErr = err
		}
		return err == nil
	}
	sections, err := m.sections()
	if err != nil {
		firstErr = err
	}
	// The ELF specification allows one table of each type.
	dynamic := false
	if s, ok := firstOf(sections, elf.SHT_DYNSYM); ok {
		t, err := sectionTable(sections, s)
		if v, ok := firstOf(sections, elf.SHT_GNU_VERSYM); ok {
			t.versions = v.off
		}
		dynamic = keep(t, err)
	}
	if !dynamic {
		keep(m.dynamicTable())
	}
	if s, ok := firstOf(sections, elf.SHT_SYMTAB); ok {
		t, err := sectionTable(sections, s)
		t.rank = rankStatic
		keep(t, err)
	}
	if wanted == nil {
		if got, err := m.debugdata(sections, is); err == nil && len(got) > 0 {
			tables++
			out = append(out, got...)
		} else if firstErr == nil {
			firstErr = err
		}
	}
	switch {
	case tables > 0 && (len(out) > 0 || wanted != nil):
		return out, nil
	case firstErr != nil:
		return nil, fmt.Errorf("%w: %w", ErrNoSymbols, firstErr)
	}
	return nil, ErrNoSymbols
}

func firstOf(sections []section, typ elf.SectionType) (section, bool) {
	for _, s := range sections {
		if elf.SectionType(s.typ) == typ {
			return s, true
		}
	}
	return section{}, false
}

// sections reads the section headers; none is not an error.
func (m *Module) sections() ([]section, error) {
	if m.sectionsAt == 0 || m.sectionCount == 0 {
		return nil, nil
	}
	if m.sectionCount > maxSections {
		return nil, &LimitError{"sections", m.sectionCount, maxSections}
	}
	b, err := m.bytes(m.sectionsAt, m.sectionCount*sectionSize)
	if err != nil {
		return nil, fmt.Errorf("read section headers: %w", err)
	}
	out := make([]section, m.sectionCount)
	for i := range out {
		parseSection(b[i*sectionSize:], &out[i])
	}
	return out, nil
}

// table says where a symbol table and its strings lie in the file.
type table struct {
	off, count           uint64
	strings, stringBytes uint64
	versions             uint64 // position of the version numbers; 0: none
	rank                 uint8
}

func sectionTable(all []section, s section) (table, error) {
	if uint64(s.link) >= uint64(len(all)) {
		return table{}, fmt.Errorf("%w: strings in section %d of %d", ErrMalformed, s.link, len(all))
	}
	str := all[s.link]
	return table{off: s.off, count: s.size / symbolSize, strings: str.off, stringBytes: str.size}, nil
}

// isWanted decides by the entry of a table whether its symbol is read.
type isWanted func(entry []byte) bool

func isFunction(b []byte) bool {
	typ := elf.ST_TYPE(b[4])
	return (typ == elf.STT_FUNC || typ == elf.STT_GNU_IFUNC) && isDefined(b)
}

func isPointer(b []byte) bool {
	const pointerSize = 8
	return elf.ST_TYPE(b[4]) == elf.STT_OBJECT && isDefined(b) && binary.LittleEndian.Uint64(b[16:]) == pointerSize
}

func isDefined(b []byte) bool {
	le := binary.LittleEndian
	return elf.SectionIndex(le.Uint16(b[6:])) != elf.SHN_UNDEF && le.Uint64(b[8:]) != 0
}

// readTable reads the symbols of a table that is accepts, or of those only the wanted
// ones.
func (m *Module) readTable(t table, is isWanted, wanted map[string]uint8) ([]symbol, error) {
	if t.count > maxSymbols {
		return nil, &LimitError{"symbols", t.count, maxSymbols}
	}
	if t.stringBytes > maxStringBytes {
		return nil, &LimitError{"bytes of symbol names", t.stringBytes, maxStringBytes}
	}
	syms, err := m.bytes(t.off, t.count*symbolSize)
	if err != nil {
		return nil, fmt.Errorf("read symbols: %w", err)
	}
	names, err := m.bytes(t.strings, t.stringBytes)
	if err != nil {
		return nil, fmt.Errorf("read symbol names: %w", err)
	}
	var versions []byte
	if t.versions != 0 {
		versions, _ = m.bytes(t.versions, t.count*2) // no versions: all are default
	}
	le := binary.LittleEndian
	var out []symbol
	budget := maxStringBytes // many symbols can share one long name
	for i := 0; i*symbolSize < len(syms); i++ {
		b := syms[i*symbolSize:]
		at := uint64(le.Uint32(b))
		if !is(b) || at >= uint64(len(names)) {
			continue
		}
		tail := names[at:min(at+maxSymbolName, uint64(len(names)))]
		end := bytes.IndexByte(tail, 0)
		if end <= 0 {
			continue
		}
		if budget -= end; budget < 0 {
			return nil, &LimitError{"bytes of symbol names", maxStringBytes + 1, maxStringBytes}
		}
		tail, _, _ = bytes.Cut(tail[:end], []byte("@")) // .symtab writes name@@VERSION
		if _, ok := wanted[string(tail)]; !ok && wanted != nil {
			continue
		}
		s := symbol{rank: t.rank, resolver: elf.ST_TYPE(b[4]) == elf.STT_GNU_IFUNC}
		// The name is a copy, so that the table of all names is freed.
		s.Symbol = Symbol{string(tail), le.Uint64(b[8:]), le.Uint64(b[16:])}
		switch elf.ST_BIND(b[4]) {
		case elf.STB_LOCAL:
			s.rank |= rankLocal
		case elf.STB_WEAK:
			s.rank |= rankWeak
		}
		const hiddenVersion = 0x8000
		if len(versions) >= 2*i+2 && le.Uint16(versions[2*i:])&hiddenVersion != 0 {
			s.rank |= rankHidden
		}
		out = append(out, s)
	}
	return out, nil
}
