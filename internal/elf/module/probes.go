// SPDX-License-Identifier: Apache-2.0

package module

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"fmt"
)

// Limits of statically defined probes. For scale: glibc has 100 of them, libstdc++ 10.
const (
	maxProbeBytes = 1 << 20
	maxProbes     = 4096
	maxProbeText  = 1024 // of a provider, a name, or the arguments
)

// Probe is a place of a statically defined probe (USDT, <sys/sdt.h>): an instruction that
// does nothing, described in a note.
type Probe struct {
	Provider, Name string
	// Arguments say where they are, in the assembler's notation: "4@-44(%rbp) 8@%rax".
	Arguments string
	// Address of the instruction, in the file's own numbering.
	Address uint64
	// Semaphore is the address of the counter of those who listen; 0: there is none.
	Semaphore uint64
}

// Probes returns those of a provider, in the order of their notes. The strings are what
// the file says, at most maxProbeText bytes each. A file without notes has none, which is
// no error.
func (m *Module) Probes(provider string) ([]Probe, error) {
	sections, err := m.sections()
	if err != nil {
		return nil, err
	}
	var base uint64
	var out []Probe
	if s, ok := m.sectionNamed(sections, elf.SHT_PROGBITS, ".stapsdt.base"); ok {
		base = s.addr
	}
	notes, ok := m.sectionNamed(sections, elf.SHT_NOTE, ".note.stapsdt")
	if !ok {
		return nil, nil
	}
	if notes.size > maxProbeBytes {
		return nil, &LimitError{"bytes of probes", notes.size, maxProbeBytes}
	}
	b, err := m.bytes(notes.off, notes.size)
	if err != nil {
		return nil, fmt.Errorf("read .note.stapsdt: %w", err)
	}
	le := binary.LittleEndian
	for len(b) >= 12 {
		namesz, descsz := uint64(le.Uint32(b)), uint64(le.Uint32(b[4:]))
		desc := 12 + (namesz+3)&^3
		next := desc + (descsz+3)&^3
		if desc+descsz > uint64(len(b)) {
			return nil, fmt.Errorf("%w: a probe's note of %d bytes", ErrMalformed, descsz)
		}
		const ntStapSDT = 3
		if le.Uint32(b[8:]) == ntStapSDT && string(b[12:12+namesz]) == "stapsdt\x00" {
			p, of, err := parseProbe(b[desc : desc+descsz])
			if err != nil {
				return nil, err
			}
			if p.Provider == provider {
				if len(out) == maxProbes {
					return nil, &LimitError{"probes", maxProbes + 1, maxProbes}
				}
				// Who moves a library's sections (prelink) does not know the notes.
				if base != 0 && of != 0 {
					p.Address += base - of
					if p.Semaphore != 0 {
						p.Semaphore += base - of
					}
				}
				out = append(out, p)
			}
		}
		b = b[min(next, uint64(len(b))):]
	}
	return out, nil
}

// parseProbe reads what is in a note: three addresses, of which the second is where the
// section .stapsdt.base was, and three strings.
func parseProbe(b []byte) (p Probe, base uint64, err error) {
	if len(b) < 24 {
		return p, 0, fmt.Errorf("%w: a probe's note of %d bytes", ErrMalformed, len(b))
	}
	le := binary.LittleEndian
	p.Address, base, p.Semaphore = le.Uint64(b), le.Uint64(b[8:]), le.Uint64(b[16:])
	b = b[24:]
	for _, to := range []*string{&p.Provider, &p.Name, &p.Arguments} {
		text, rest, ok := bytes.Cut(b, []byte{0})
		if !ok || len(text) > maxProbeText {
			return p, 0, fmt.Errorf("%w: a probe's name that does not end", ErrMalformed)
		}
		*to, b = string(text), rest
	}
	return p, base, nil
}

// sectionNamed finds a section by its type and name. The names are read at once: a file system may take its time for each read.
func (m *Module) sectionNamed(sections []section, typ elf.SectionType, name string) (section, bool) {
	if m.sectionNamesI >= uint64(len(sections)) {
		return section{}, false
	}
	at := sections[m.sectionNamesI]
	names, err := m.bytes(at.off, min(at.size, maxSectionNames))
	if err != nil {
		return section{}, false
	}
	want := append([]byte(name), 0)
	for _, s := range sections {
		if elf.SectionType(s.typ) == typ && uint64(s.name) < uint64(len(names)) && bytes.HasPrefix(names[s.name:], want) {
			return s, true
		}
	}
	return section{}, false
}

// WritableOffset is FileOffset for data that a process writes to its own copy of: false
// where the segment is not writable.
func (m *Module) WritableOffset(addr uint64) (uint64, bool) {
	for _, l := range m.loads {
		if l.write && addr >= l.addr && addr-l.addr < l.filesz {
			return l.off + (addr - l.addr), true
		}
	}
	return 0, false
}
