// SPDX-License-Identifier: Apache-2.0

package module

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"hash/crc32"
	"io"
	"strings"
)

// maxLinked bounds a debug file that is only known by its checksum, which all of it is read
// for.
const maxLinked = 256 << 20

// HasStatic reports whether the file has a symbol table of its own (.symtab), beside the one of
// what it exports: one that was stripped has not.
func (m *Module) HasStatic() bool {
	sections, err := m.sections()
	if err != nil {
		return false
	}
	_, ok := firstOf(sections, elf.SHT_SYMTAB)
	return ok
}

// DebugLink is a file with the symbols that were stripped, as .gnu_debuglink names it: a
// name without directories, and the checksum of the file. ok is false without one, and for
// a name that would lead elsewhere.
func (m *Module) DebugLink() (name string, crc uint32, ok bool) {
	sections, err := m.sections()
	if err != nil {
		return "", 0, false
	}
	s, ok := m.sectionNamed(sections, elf.SHT_PROGBITS, ".gnu_debuglink")
	if !ok || s.size > maxSymbolName {
		return "", 0, false
	}
	b, err := m.bytes(s.off, s.size)
	if err != nil {
		return "", 0, false
	}
	end := bytes.IndexByte(b, 0)
	at := (end + 4) &^ 3 // the checksum is aligned
	if end <= 0 || at+4 > len(b) {
		return "", 0, false
	}
	name = string(b[:end])
	if name == "." || name == ".." || strings.Contains(name, "/") {
		return "", 0, false
	}
	return name, binary.LittleEndian.Uint32(b[at:]), true
}

// Describes reports whether a debug file is the module's: by the build id; without one in the
// module by the checksum of a debug link, for files of up to 256 MiB.
func (m *Module) Describes(of *Module, crc uint32) bool {
	if of.buildID != "" {
		return m.buildID == of.buildID
	}
	if crc == 0 || m.size > maxLinked {
		return false
	}
	h := crc32.NewIEEE()
	_, err := io.Copy(h, io.NewSectionReader(m.r, 0, m.size))
	return err == nil && h.Sum32() == crc
}
