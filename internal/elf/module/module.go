// SPDX-License-Identifier: Apache-2.0

// Package module reads what a probe or a profiler needs from an executable or a
// shared library: its build id, its functions, and where an address lies in the
// file. The file belongs to the observed process and may be hostile: nothing is
// allocated by a size that a header claims before that many bytes were read or
// shown to exist, and every loop and table has a named limit.
//
// Only 64-bit little-endian ELF is read: CUDA has nothing else.
package module

import (
	"debug/elf"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
)

// Limits. A file beyond one gives a *LimitError. For scale: libtorch_cpu of
// PyTorch 2.6 exports about 200,000 symbols with 30 MiB of names.
const (
	maxProgramHeaders = 1 << 10
	maxSections       = 1 << 17
	maxSectionNames   = 1 << 20 // bytes that are searched; a library has less than a KiB
	maxNotes          = 1 << 4  // segments that are searched for the build id; a library has two
	maxNoteBytes      = 1 << 16
	maxDynamicEntries = 1 << 12
	maxSymbols        = 2 << 20
	maxStringBytes    = 128 << 20
	maxSymbolName     = 16 << 10
	maxBuildID        = 64
	maxDebugdata      = 64 << 20 // .gnu_debugdata, compressed or not
	maxCode           = 4 << 10
)

var (
	// ErrNotELF means that the file does not start like an ELF file.
	ErrNotELF = errors.New("not an ELF file")
	// ErrUnsupported means an ELF file of another class, byte order or type.
	ErrUnsupported = errors.New("unsupported ELF file")
	// ErrMalformed means that a header contradicts the file or itself.
	ErrMalformed = errors.New("malformed ELF file")
	// ErrNoSymbols means that the file has no symbol table, or none that can be read.
	ErrNoSymbols = errors.New("no symbols")
)

// LimitError says that a file has more of something than this package reads.
type LimitError struct {
	What       string
	Got, Limit uint64
}

func (e *LimitError) Error() string {
	return fmt.Sprintf("%d %s, more than %d", e.Got, e.What, e.Limit)
}

// Is makes a LimitError an ErrMalformed too.
func (e *LimitError) Is(target error) bool { return target == ErrMalformed }

// Symbol is a function or a variable of a module.
type Symbol struct {
	// Name is as in the symbol table, not demangled, without version.
	Name string
	// Address is the virtual address in the file's own numbering (st_value).
	Address uint64
	// Size is in bytes; 0 where the table has none.
	Size uint64
}

// Module is an open ELF file. It is safe for concurrent use as far as its
// reader is.
type Module struct {
	r       io.ReaderAt
	size    int64
	machine elf.Machine
	loads   []load
	dynamic load   // PT_DYNAMIC; filesz 0: none
	tls     load   // PT_TLS; memsz 0: none
	align   uint64 // of tls
	program bool   // a program, not a library
	buildID string

	sectionsAt                  uint64
	sectionCount, sectionNamesI uint64
}

// load is a segment of the file.
type load struct {
	off, addr, filesz, memsz uint64
	exec, write              bool
}

// Open reads the headers of an ELF file of size bytes. The module reads r on
// demand; the caller closes what is behind r when the module is no longer used.
func Open(r io.ReaderAt, size int64) (*Module, error) {
	m := &Module{r: r, size: size}
	var h [64]byte
	if _, err := r.ReadAt(h[:], 0); err != nil {
		if err == io.EOF || errors.Is(err, io.ErrUnexpectedEOF) {
			return nil, fmt.Errorf("%w: %d bytes", ErrNotELF, size)
		}
		return nil, fmt.Errorf("read ELF header: %w", err)
	}
	if string(h[:4]) != elf.ELFMAG {
		return nil, ErrNotELF
	}
	le := binary.LittleEndian
	typ := elf.Type(le.Uint16(h[16:]))
	if elf.Class(h[elf.EI_CLASS]) != elf.ELFCLASS64 || elf.Data(h[elf.EI_DATA]) != elf.ELFDATA2LSB ||
		(typ != elf.ET_EXEC && typ != elf.ET_DYN) {
		return nil, fmt.Errorf("%w: class %d, data %d, type %v", ErrUnsupported,
			h[elf.EI_CLASS], h[elf.EI_DATA], typ)
	}
	m.machine = elf.Machine(le.Uint16(h[18:]))
	m.program = typ == elf.ET_EXEC
	phoff, phentsize := le.Uint64(h[32:]), uint64(le.Uint16(h[54:]))
	phnum := uint64(le.Uint16(h[56:]))
	m.sectionsAt, m.sectionCount = le.Uint64(h[40:]), uint64(le.Uint16(h[60:]))
	m.sectionNamesI = uint64(le.Uint16(h[62:]))
	if le.Uint16(h[58:]) != sectionSize {
		m.sectionsAt = 0 // sections are optional: a stripped file works without
	}
	// Counts that do not fit 16 bits are in the first section header.
	if m.sectionsAt != 0 && (m.sectionCount == 0 || phnum == 0xffff || m.sectionNamesI == 0xffff) {
		if first, err := m.section(0); err == nil {
			if m.sectionCount == 0 {
				m.sectionCount = first.size
			}
			if phnum == 0xffff {
				phnum = uint64(first.info)
			}
			if m.sectionNamesI == 0xffff {
				m.sectionNamesI = uint64(first.link)
			}
		}
	}
	if phnum > maxProgramHeaders {
		return nil, &LimitError{"program headers", phnum, maxProgramHeaders}
	}
	if phnum > 0 && phentsize != 56 {
		return nil, fmt.Errorf("%w: program headers of %d bytes", ErrMalformed, phentsize)
	}
	ph, err := m.bytes(phoff, phnum*56)
	if err != nil {
		return nil, fmt.Errorf("read program headers: %w", err)
	}
	for notes := 0; len(ph) >= 56; ph = ph[56:] {
		l := load{
			off: le.Uint64(ph[8:]), addr: le.Uint64(ph[16:]),
			filesz: le.Uint64(ph[32:]), memsz: le.Uint64(ph[40:]),
			exec: le.Uint32(ph[4:])&uint32(elf.PF_X) != 0, write: le.Uint32(ph[4:])&uint32(elf.PF_W) != 0,
		}
		switch elf.ProgType(le.Uint32(ph)) {
		case elf.PT_LOAD:
			if l.addr+l.memsz < l.addr || l.off+l.filesz < l.off || l.filesz > l.memsz {
				return nil, fmt.Errorf("%w: segment at %#x", ErrMalformed, l.addr)
			}
			m.loads = append(m.loads, l)
		case elf.PT_DYNAMIC:
			m.dynamic = l
		case elf.PT_TLS:
			m.tls, m.align = l, le.Uint64(ph[48:])
		case elf.PT_INTERP:
			m.program = true
		case elf.PT_NOTE:
			if notes++; m.buildID == "" && notes <= maxNotes {
				m.buildID = m.readBuildID(l.off, l.filesz)
			}
		}
	}
	return m, nil
}

// Machine is the processor that the code is for.
func (m *Module) Machine() elf.Machine { return m.machine }

// BuildID is the GNU build id in hexadecimal, or "" when the file has none.
func (m *Module) BuildID() string { return m.buildID }

func (m *Module) readBuildID(off, size uint64) string {
	notes, err := m.bytes(off, min(size, maxNoteBytes))
	if err != nil {
		return ""
	}
	le := binary.LittleEndian
	for len(notes) >= 12 {
		namesz, descsz := uint64(le.Uint32(notes)), uint64(le.Uint32(notes[4:]))
		desc := 12 + (namesz+3)&^3
		next := desc + (descsz+3)&^3
		if next > uint64(len(notes)) {
			return ""
		}
		const ntGNUBuildID = 3
		if le.Uint32(notes[8:]) == ntGNUBuildID && string(notes[12:12+namesz]) == "GNU\x00" &&
			descsz > 0 && descsz <= maxBuildID {
			return hex.EncodeToString(notes[desc : desc+descsz])
		}
		notes = notes[next:]
	}
	return ""
}

// FileOffset translates an address of the file's own numbering to a position
// in the file; false when no segment has bytes of the file there.
func (m *Module) FileOffset(addr uint64) (uint64, bool) {
	for _, l := range m.loads {
		if addr >= l.addr && addr-l.addr < l.filesz {
			return l.off + (addr - l.addr), true
		}
	}
	return 0, false
}

// CodeAddress is the address, in the file's own numbering, of where a mapping begins that has size
// bytes from off on, and code among them. It may be below the segment with that code, whose first
// page has bytes of others, too. false: no code is there.
func (m *Module) CodeAddress(off, size uint64) (uint64, bool) {
	for _, l := range m.loads {
		if l.exec && off < l.off+l.filesz && (off >= l.off || l.off-off < size) {
			return l.addr + (off - l.off), true
		}
	}
	return 0, false
}

// Address is the inverse of FileOffset. Where segments share bytes of the file
// the executable one wins.
func (m *Module) Address(off uint64) (uint64, bool) {
	var addr uint64
	found := false
	for _, l := range m.loads {
		if off >= l.off && off-l.off < l.filesz && (!found || l.exec) {
			addr, found = l.addr+(off-l.off), true
			if l.exec {
				break
			}
		}
	}
	return addr, found
}

// Code reads up to n bytes (at most 4096) of machine code at an address; fewer
// at the end of a segment. An address outside the executable segments is an
// error.
func (m *Module) Code(addr uint64, n int) ([]byte, error) {
	for _, l := range m.loads {
		if l.exec && addr >= l.addr && addr-l.addr < l.filesz {
			left := l.filesz - (addr - l.addr)
			b, err := m.bytes(l.off+(addr-l.addr), min(uint64(max(n, 0)), left, maxCode))
			if err != nil {
				return nil, fmt.Errorf("read code at %#x: %w", addr, err)
			}
			return b, nil
		}
	}
	return nil, fmt.Errorf("%w: no code at %#x", ErrMalformed, addr)
}

// bytes reads n bytes at off. The file must have that many: a claim beyond its
// end allocates nothing.
func (m *Module) bytes(off, n uint64) ([]byte, error) {
	if off > uint64(m.size) || n > uint64(m.size)-off {
		return nil, fmt.Errorf("%w: %d bytes at %#x of %d", ErrMalformed, n, off, m.size)
	}
	b := make([]byte, n)
	if _, err := m.r.ReadAt(b, int64(off)); err != nil && (err != io.EOF || n > 0) {
		if err == io.EOF || errors.Is(err, io.ErrUnexpectedEOF) {
			return nil, fmt.Errorf("%w: file was cut short", ErrMalformed)
		}
		return nil, err
	}
	return b, nil
}
