// SPDX-License-Identifier: Apache-2.0

// Package unwind reads from a program or a library how its functions are left: the call frame
// information of .eh_frame, which compilers write for exceptions and which is in stripped
// files, too. For each address it says where the frame of the caller is, so that a stack is
// walked without frame pointers.
//
// The information is read for the requested addresses, by the sorted table of .eh_frame_hdr:
// a library with two million rules costs what its called functions need. Only static
// programs have no such table; theirs is made from .eh_frame. The file belongs to the observed
// process and may be hostile: reads are bounded by named limits, and a malformed entry is an
// address without a rule.
//
// The formats are those of the DWARF standard, version 5, section 6.4, and of the Linux
// Standard Base, "Exception Frames". x86-64 and arm64.
package unwind

import (
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// Limits of what is read of a file.
const (
	maxProgramHeaders = 1 << 10
	maxEntryBytes     = 1 << 20 // of an FDE; those of libtorch_cpu have up to 20 KiB
	maxCIEBytes       = 4 << 10 // of a CIE; those of 2,186 programs and libraries have up to 52
	maxCIEs           = 1 << 10 // kept, 4 MiB of them; a file has few
	maxRemembered     = 64      // depth of DW_CFA_remember_state
	maxRowsOfCall     = 1 << 14
	maxEntriesOfCall  = 1 << 12
	maxWorkOfCall     = 4 << 20 // bytes of programs
	maxScanned        = 1 << 18 // functions of a file without a table, 16 bytes each
	maxSections       = 1 << 12
	maxNameBytes      = 1 << 16
	windowBytes       = 16 << 10
	maxReadOfCall     = 16 << 20 // bytes of the file
	maxReadOfScan     = 64 << 20
)

var (
	// ErrNotELF means that the file is no ELF file of a kind whose rules can be read.
	ErrNotELF = errors.New("not a 64-bit ELF file of x86-64 or arm64")
	// ErrNoRules means that the file has no table of rules (.eh_frame_hdr).
	ErrNoRules = errors.New("no unwind information")
	// ErrMalformed means that the information contradicts itself.
	ErrMalformed = errors.New("malformed unwind information")
)

// Kind is how the caller's frame is found. The values are those of enum unwind_kind.
type Kind uint8

const (
	// None means that there is no rule, or one that is not supported.
	None Kind = iota
	// FromSP means that the frame begins at the stack pointer + CFA.
	FromSP
	// FromFP means that it begins at the frame pointer + CFA.
	FromFP
	// FromWordAtSP means that it begins at the word at the stack pointer + CFA, + Add.
	FromWordAtSP
	// FromWordAtFP means that it begins at the word at the frame pointer + CFA, + Add.
	FromWordAtFP
	// PLT is an entry of x86-64's procedure linkage table: at the stack pointer + 8, + 8 more from
	// the CFA-th of its 16 bytes on.
	PLT
	// Signal means that the kernel called this; the interrupted registers are on the stack.
	Signal
	// Stop means that nothing called this; the stack ends here.
	Stop
	// Frame means that it is found by the chain of frame pointers, because nothing better is known.
	Frame
)

// Saved is where the caller's frame pointer is.
type Saved uint8

const (
	// Same means that it is in its register.
	Same Saved = iota
	// AtCFA means that it is on the stack, FP from where the frame begins.
	AtCFA
	// AtFP means that it is on the stack, FP from the frame pointer.
	AtFP
	// Lost means that it is unknown.
	Lost
)

// Rule is how one leaves a function at an address: where its frame begins (the canonical frame
// address, the caller's stack pointer), where the return address is, and where the caller's
// frame pointer is.
type Rule struct {
	Kind  Kind
	Saved Saved
	Add   int16
	CFA   int32
	// FP is in bytes.
	FP int16
	// RA is where the return address is, in bytes from the frame's begin; 0: in its register.
	RA int16
}

// Row is the rule from an address of the file on, up to the next row.
type Row struct {
	Offset uint64 // in the file
	Rule   Rule
	Begins bool // a function begins here
}

// File is the unwind information of a file. It is not safe for concurrent use.
type File struct {
	r       io.ReaderAt
	size    int64
	machine elf.Machine
	loads   []load
	header  uint64  // address of .eh_frame_hdr
	entries uint64  // of its table
	scanned []entry // instead of the table, sorted

	cies   map[uint64]*cie
	window []byte // of the file, from `at` on
	at     uint64
	rest   int   // bytes that may still be read of the file
	failed error // the first error of reading the file, since a call began
}

// entry is one of the table: where a function begins, and where its FDE is.
type entry struct{ function, fde uint64 }

type load struct {
	off, addr, filesz uint64
	exec              bool
}

// Open reads the headers of a file of size bytes. The File reads r on demand; the caller closes
// what is behind r. ErrNoRules comes with a file whose code has no rules. An error that is none of those
// of this package is that of reading r: the file may have rules, and another call may find them.
func Open(r io.ReaderAt, size int64) (*File, error) {
	f := &File{r: r, size: size, cies: map[uint64]*cie{}}
	var h [64]byte
	switch _, err := r.ReadAt(h[:], 0); {
	case errors.Is(err, io.EOF):
		return nil, fmt.Errorf("%w: %d bytes", ErrNotELF, size)
	case err != nil:
		return nil, fmt.Errorf("read ELF header: %w", err)
	}
	le := binary.LittleEndian
	f.machine = elf.Machine(le.Uint16(h[18:]))
	if string(h[:4]) != elf.ELFMAG || elf.Class(h[elf.EI_CLASS]) != elf.ELFCLASS64 ||
		elf.Data(h[elf.EI_DATA]) != elf.ELFDATA2LSB || (f.machine != elf.EM_X86_64 && f.machine != elf.EM_AARCH64) {
		return nil, ErrNotELF
	}
	headers, entry, count := le.Uint64(h[32:]), le.Uint16(h[54:]), le.Uint16(h[56:])
	if entry != 56 || count > maxProgramHeaders {
		return nil, fmt.Errorf("%w: %d program headers of %d bytes", ErrNotELF, count, entry)
	}
	table := make([]byte, int(entry)*int(count))
	if err := f.readAt(table, headers); err != nil {
		return nil, fmt.Errorf("read program headers: %w", err)
	}
	for ; len(table) > 0; table = table[entry:] {
		l := load{off: le.Uint64(table[8:]), addr: le.Uint64(table[16:]), filesz: le.Uint64(table[32:]),
			exec: elf.ProgFlag(le.Uint32(table[4:]))&elf.PF_X != 0}
		switch elf.ProgType(le.Uint32(table)) {
		case elf.PT_LOAD:
			if l.off+l.filesz >= l.off && l.addr+l.filesz >= l.addr {
				f.loads = append(f.loads, l)
			}
		case elf.PT_GNU_EH_FRAME:
			f.header = l.addr
		}
	}
	return f, f.openRules(h[:])
}

// openRules opens the table of .eh_frame_hdr, or else makes one. h is the file's header.
func (f *File) openRules(h []byte) error {
	if f.header != 0 {
		f.rest = maxReadOfCall
		if err := f.openTable(); err == nil || f.failed != nil {
			return err
		}
	}
	f.rest = maxReadOfScan
	if err := f.scan(h); f.failed == nil {
		return err
	}
	return f.failed
}

// openTable reads the head of .eh_frame_hdr. All linkers write the same encodings; a table with
// others is one that cannot be searched.
func (f *File) openTable() error {
	head, err := f.view(f.header, 12)
	if err != nil {
		return fmt.Errorf("read .eh_frame_hdr: %w", err)
	}
	const (
		pointer = encodingSigned4 | encodingPCRelative
		counted = encodingUnsigned4
		sorted  = encodingSigned4 | encodingDataRelative
	)
	if head[0] != 1 || head[1] != pointer || head[2] != counted || head[3] != sorted {
		return fmt.Errorf("%w: .eh_frame_hdr begins with % x", ErrNoRules, head[:4])
	}
	f.entries = uint64(binary.LittleEndian.Uint32(head[8:]))
	if f.entries == 0 {
		return ErrNoRules
	}
	return nil
}

// entryAt is the i-th entry of the table: where a function begins, and where its FDE is.
func (f *File) entryAt(i uint64) (function, fde uint64, err error) {
	if f.scanned != nil {
		return f.scanned[i].function, f.scanned[i].fde, nil
	}
	b, err := f.view(f.header+12+8*i, 8)
	if err != nil {
		return 0, 0, err
	}
	at := func(b []byte) uint64 { return f.header + uint64(int64(int32(binary.LittleEndian.Uint32(b)))) }
	return at(b), at(b[4:]), nil
}

// readAt fills b from a place of the file.
func (f *File) readAt(b []byte, off uint64) error {
	if off > uint64(f.size) || uint64(len(b)) > uint64(f.size)-off {
		return fmt.Errorf("%w: %d bytes at %#x of a file of %d", ErrMalformed, len(b), off, f.size)
	}
	_, err := f.r.ReadAt(b, int64(off))
	if err == io.EOF {
		err = nil
	}
	if f.failed == nil {
		f.failed = err
	}
	return err
}

// view is n bytes at an address, valid until the next call.
func (f *File) view(addr uint64, n int) ([]byte, error) {
	for _, l := range f.loads {
		if addr < l.addr || addr-l.addr >= l.filesz {
			continue
		}
		rest := l.filesz - (addr - l.addr)
		if uint64(n) > rest {
			break
		}
		off := l.off + addr - l.addr
		if off >= f.at && off+uint64(n) <= f.at+uint64(len(f.window)) {
			return f.window[off-f.at:][:n], nil
		}
		size := min(uint64(max(n, windowBytes)), rest, uint64(max(0, f.size-int64(off))))
		if size < uint64(n) {
			break
		}
		if f.rest -= int(size); f.rest < 0 {
			return nil, fmt.Errorf("%w: too much would have to be read", ErrMalformed)
		}
		if uint64(cap(f.window)) < size {
			f.window = make([]byte, size)
		}
		f.window, f.at = f.window[:size], off
		if err := f.readAt(f.window, off); err != nil {
			f.window = f.window[:0]
			return nil, err
		}
		return f.window[:n], nil
	}
	return nil, fmt.Errorf("%w: %d bytes at address %#x are not in the file", ErrMalformed, n, addr)
}
