// SPDX-License-Identifier: Apache-2.0

package nccl

import (
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"slices"

	"golang.org/x/arch/x86/x86asm"

	"github.com/gpu-gadgets/gpu-gadgets/internal/elf/module"
	"github.com/gpu-gadgets/gpu-gadgets/internal/process/procmaps"
)

// Versions of ncclGetVersion with known communicators: in the sources of each tag from
// v2.18.1 to v2.30.7 a communicator has its hash, rank, size and device in consecutive
// fields (src/include/comm.h). Their offset is derived from the library's own code
// (layoutOf).
const (
	oldest = 21800
	newest = 23007
	// magicSince is the first version in which each communicator begins with a magic number.
	magicSince = 22100
	magic      = 0x0280028002800280
)

// ErrLayout means that the offsets of a communicator's fields are unknown. Nothing is read then.
var ErrLayout = errors.New("layout of communicators is not known")

// Library is a libnccl, or a library that contains NCCL.
type Library struct {
	// Version is that of ncclGetVersion, 10000·major + 100·minor + patch; 0: not found.
	Version int
	// Missing are the requested functions that it does not export, without pnccl's.
	Missing []string
	// Has is the number of functions that it exports.
	Has int

	// hash is the offset of commHash in struct ncclComm; layout says why there is none.
	hash   uint64
	layout error
	vendor string // empty: NCCL
}

// String returns the version in its usual form.
func (l *Library) String() string {
	vendor := l.vendor
	if vendor == "" {
		vendor = "NCCL"
	}
	if l.Version == 0 {
		return vendor + " of an unknown version"
	}
	return fmt.Sprintf("%s %d.%d.%d", vendor, l.Version/10000, l.Version/100%100, l.Version%100)
}

// Layout returns nil if communicators that were created before attach can be identified.
func (l *Library) Layout() error { return l.layout }

// Inspect reads a library's file. wanted are the names of functions, without pnccl's. An
// error means that it is not a library, or procmaps.ErrHangs that some of it could not be read.
func Inspect(r io.ReaderAt, size int64, wanted []string) (*Library, error) {
	read := &answered{ReaderAt: r}
	m, err := module.Open(read, size)
	if err != nil {
		return nil, err
	}
	all := append(slices.Clone(wanted), "ncclGetVersion", "ncclCommUserRank", "ncclCommCount", "ncclCommCuDevice")
	found, err := m.Find(all)
	if err != nil && !errors.Is(err, module.ErrNoSymbols) {
		return nil, err
	}
	l := &Library{}
	for _, name := range wanted {
		if _, ok := found[name]; ok {
			l.Has++
		} else {
			l.Missing = append(l.Missing, name)
		}
	}
	l.hash, l.layout = l.layoutOf(m, found)
	if read.hangs != nil {
		return nil, read.hangs
	}
	return l, nil
}

// answered is a file, and whether its file system has answered each read.
type answered struct {
	io.ReaderAt
	hangs error
}

// ReadAt is that of io.ReaderAt.
func (a *answered) ReadAt(b []byte, at int64) (int, error) {
	n, err := a.ReaderAt.ReadAt(b, at)
	if errors.Is(err, procmaps.ErrHangs) {
		a.hangs = err
	}
	return n, err
}

// isRCCL marks it as AMD's: the version is that of the NCCL that it is made from, so functions that it does not have are
// not reported. The layout of its communicators was not checked.
func (l *Library) isRCCL() {
	l.vendor, l.Missing, l.hash = "RCCL", nil, 0
	l.layout = fmt.Errorf("%w: only in NCCL", ErrLayout)
}

// layoutOf finds the offsets of a communicator's fields: NCCL's own functions that return
// a communicator's rank, size and device read one field each.
func (l *Library) layoutOf(m *module.Module, found map[string]module.Symbol) (uint64, error) {
	if m.Machine() != elf.EM_X86_64 {
		return 0, fmt.Errorf("%w: only on x86-64", ErrLayout)
	}
	if f, ok := found["ncclGetVersion"]; ok {
		l.Version = versionIn(codeOf(m, f))
	}
	if l.Version < oldest || l.Version > newest {
		return 0, fmt.Errorf("%w: only from 2.18.0 to 2.30.7", ErrLayout)
	}
	var at [3]uint64
	for i, name := range []string{"ncclCommUserRank", "ncclCommCount", "ncclCommCuDevice"} {
		f, ok := found[name]
		if !ok {
			return 0, fmt.Errorf("%w: it has no %s", ErrLayout, name)
		}
		offset, ok := fieldIn(codeOf(m, f))
		if !ok {
			return 0, fmt.Errorf("%w: %s is unlike those that are known", ErrLayout, name)
		}
		at[i] = offset
	}
	if at[1] != at[0]+4 || at[2] != at[0]+8 || at[0]%8 != 0 || at[0] < 16 {
		return 0, fmt.Errorf("%w: rank, size and device are at %#x", ErrLayout, at)
	}
	return at[0] - 8, nil
}

// functionLimit is above the size of these functions: 1,238 bytes in 2.29.7.
const functionLimit = 2048

// codeOf reads a function, and the bytes after it where the table has no size of it; nothing if it cannot be read.
func codeOf(m *module.Module, f module.Symbol) []byte {
	n := functionLimit
	if f.Size != 0 {
		n = int(min(f.Size, functionLimit))
	}
	code, err := m.Code(f.Address, n)
	if err != nil {
		return nil
	}
	return code
}

// instructions calls fn with those of one function, until fn stops it. A function ends
// where the next one begins, with endbr64 or after padding.
func instructions(code []byte, fn func(x86asm.Inst) bool) {
	for at := 0; at < len(code); {
		if at > 0 && isEntry(code[at:]) && at%16 == 0 {
			return
		}
		inst, err := x86asm.Decode(code[at:], 64)
		length := inst.Len
		if err != nil || length == 0 {
			length = 1 // one that the decoder does not support, such as endbr64
			if isEntry(code[at:]) {
				length = 4
			}
		} else if fn(inst) {
			return
		}
		at += length
	}
}

func isEntry(code []byte) bool {
	return len(code) >= 4 && code[0] == 0xf3 && code[1] == 0x0f && code[2] == 0x1e && code[3] == 0xfa
}

// versionIn finds the constant that ncclGetVersion stores in *version.
func versionIn(code []byte) (version int) {
	instructions(code, func(i x86asm.Inst) bool {
		to, isMem := i.Args[0].(x86asm.Mem)
		value, isImm := i.Args[1].(x86asm.Imm)
		if i.Op == x86asm.MOV && i.MemBytes == 4 && isMem && isImm && to.Base != x86asm.RSP && to.Disp == 0 &&
			to.Index == 0 && value >= 2000 && value < 100000 {
			version = int(value)
		}
		return version != 0
	})
	return version
}

// fieldIn finds the one 32-bit field of the communicator that a function reads, at a
// large offset. It is false if there are several. Locals are below rbp, where that is the frame.
func fieldIn(code []byte) (offset uint64, ok bool) {
	several := false
	instructions(code, func(i x86asm.Inst) bool {
		_, isReg := i.Args[0].(x86asm.Reg)
		from, isMem := i.Args[1].(x86asm.Mem)
		if i.Op != x86asm.MOV || i.MemBytes != 4 || !isReg || !isMem || from.Index != 0 || from.Segment != 0 ||
			int32(from.Disp) < 256 || from.Base == x86asm.RSP || from.Base == x86asm.RIP {
			return false
		}
		several = several || (ok && offset != uint64(from.Disp))
		offset, ok = uint64(from.Disp), true
		return several
	})
	return offset, ok && !several
}
