// SPDX-License-Identifier: Apache-2.0

package stack

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// Sizes of bpf/stack/stack.h; wire_test.go compares them with the compiled header.
const (
	nativeFrames = 64
	pythonFrames = 128
	nameBytes    = 128
	fileBytes    = 256
	classBytes   = 64

	stackNativeOffset = 8
	// StackPythonOffset is where a stack's Python frames begin.
	StackPythonOffset = stackNativeOffset + 8*nativeFrames
	pythonFrameBytes  = 16

	symbolNameOffset  = 18
	symbolFileOffset  = symbolNameOffset + nameBytes
	symbolClassOffset = symbolFileOffset + fileBytes

	// StackBytes and SymbolBytes are the sizes of the two map values.
	StackBytes  = StackPythonOffset + pythonFrameBytes*pythonFrames
	SymbolBytes = (symbolClassOffset + classBytes + 3) / 4 * 4
)

// Flags is enum stack_flag.
type Flags uint32

const (
	// HasPython means that an interpreter was found in the process.
	HasPython Flags = 1 << iota
	// PythonTruncated means that there were more frames than fit; the innermost are kept.
	PythonTruncated
	// PythonIncomplete means that a read failed; frames are missing at the root.
	PythonIncomplete
	// NativeTruncated means that there were more native frames than fit; the innermost are kept.
	NativeTruncated
	// NativeNoRules means that the stack met code without unwind information. This and the
	// next ones come only with --unwind-memory (bpf/stack/unwind.h).
	NativeNoRules
	// NativeNotLoaded means that the rules of the code had not been read yet.
	NativeNotLoaded
	// NativeBroken means that there was no return address where the rule has it.
	NativeBroken
	// NativeUnreadable means that a page of the machine stack was not in memory.
	NativeUnreadable
	_
	// NativeBusy means that the mappings of the process were being changed.
	NativeBusy
)

// Bits of symbol.cut.
const (
	cutName = 1 << iota
	cutFile
	cutClass
)

// ErrWire is wrapped by every decoding error: the bytes are not what
// bpf/stack/stack.h describes, so program and decoder are of different versions.
var ErrWire = errors.New("not the layout of bpf/stack/stack.h")

// Raw is a stack as the kernel wrote it: addresses and symbol ids, leaf first.
type Raw struct {
	Flags  Flags
	Native []uint64
	Python []RawPython
	// Runs are the Python frames that have native callers before other Python frames.
	Runs []Run
}

// Run is some Python frames, leaf first behind those of the run before, and how many native frames
// come before them. Python frames that are in no run come after all native frames. A run of no
// frames is the first one, where the thread was interrupted in the interpreter.
type Run struct {
	Native, Python int
}

// IsLeaf reports whether the i-th native frame was executed, and is not where a call returns to.
func (r *Raw) IsLeaf(i int) bool { return i == 0 && (len(r.Runs) == 0 || r.Runs[0].Native > 0) }

// RawPython is one Python frame: Symbol is a key of the map symbols_by_id, 0
// if the name was unreadable; Line is 0 if it is not known.
type RawPython struct {
	Symbol uint64
	Line   uint32
	// Asked: it is the innermost of another thread, which has asked this one for its work.
	Asked bool
}

const (
	// asked is PYTHON_FRAME_ASKED.
	asked = 1
	// nativeRun is STACK_NATIVE_RUN.
	nativeRun = 1 << 63
)

// Symbol is the decoded names of one Python code object. Names that the kernel
// had to cut begin with "…", because their end identifies more than their start.
type Symbol struct {
	Function  string
	File      string
	FirstLine uint32
}

// DecodeStack decodes the bytes of struct stack in the byte order of this
// machine. The result does not alias them.
func DecodeStack(b []byte) (Raw, error) {
	if len(b) != StackBytes {
		return Raw{}, fmt.Errorf("stack of %d bytes, want %d: %w", len(b), StackBytes, ErrWire)
	}
	native := int(binary.NativeEndian.Uint16(b[4:]))
	python := int(binary.NativeEndian.Uint16(b[6:]))
	if native > nativeFrames || python > pythonFrames {
		return Raw{}, fmt.Errorf("stack of %d native and %d Python frames: %w", native, python, ErrWire)
	}

	raw := Raw{
		Flags:  Flags(binary.NativeEndian.Uint32(b)),
		Native: slices.Grow([]uint64(nil), native),
		Python: slices.Grow([]RawPython(nil), python),
	}
	inRuns := 0
	for i := range native {
		address := binary.NativeEndian.Uint64(b[stackNativeOffset+8*i:])
		if address&nativeRun == 0 {
			raw.Native = append(raw.Native, address)
			continue
		}
		r := Run{Native: len(raw.Native), Python: int(address & math.MaxUint16)}
		if inRuns += r.Python; inRuns > pythonFrames {
			return Raw{}, fmt.Errorf("runs of %d Python frames: %w", inRuns, ErrWire)
		}
		raw.Runs = append(raw.Runs, r)
	}
	for i := range python {
		f := b[StackPythonOffset+pythonFrameBytes*i:]
		raw.Python = append(raw.Python, RawPython{
			Symbol: binary.NativeEndian.Uint64(f),
			Line:   binary.NativeEndian.Uint32(f[8:]),
			Asked:  binary.NativeEndian.Uint32(f[12:])&asked != 0,
		})
	}
	return raw, nil
}

// DecodeSymbol decodes the bytes of struct symbol in the byte order of this
// machine. The text is whatever the traced process holds: it is made valid
// UTF-8 but is not otherwise to be trusted.
func DecodeSymbol(b []byte) (Symbol, error) {
	if len(b) != SymbolBytes {
		return Symbol{}, fmt.Errorf("symbol of %d bytes, want %d: %w", len(b), SymbolBytes, ErrWire)
	}
	nameLen := int(binary.NativeEndian.Uint16(b[4:]))
	fileLen := int(binary.NativeEndian.Uint16(b[6:]))
	classLen := int(binary.NativeEndian.Uint16(b[8:]))
	nameKind, fileKind, cut, isQualname := b[10], b[11], b[12], b[13] != 0
	if nameLen > nameBytes || fileLen > fileBytes || classLen > classBytes {
		return Symbol{}, fmt.Errorf("symbol with names of %d, %d and %d bytes: %w", nameLen, fileLen, classLen, ErrWire)
	}

	name, err := pythonText(b[symbolNameOffset:][:nameLen], nameKind)
	if err != nil {
		return Symbol{}, fmt.Errorf("function name: %w", err)
	}
	file, err := pythonText(b[symbolFileOffset:][:fileLen], fileKind)
	if err != nil {
		return Symbol{}, fmt.Errorf("file name: %w", err)
	}
	if cut&cutName != 0 {
		name = "…" + name
	}
	if cut&cutFile != 0 {
		file = "…" + file
	}
	if !isQualname && classLen > 0 {
		class := tailText(b[symbolClassOffset:][:classLen])
		if cut&cutClass != 0 {
			class = "…" + class
		}
		name = class + "." + name
	}
	if name == "" {
		name = Unreadable
	}
	return Symbol{Function: name, File: file, FirstLine: binary.NativeEndian.Uint32(b)}, nil
}

// pythonText decodes characters as a PyUnicode object stores them: kind bytes
// each (CPython Include/cpython/unicodeobject.h, PyUnicode_KIND).
func pythonText(b []byte, kind uint8) (string, error) {
	if len(b) == 0 {
		return "", nil
	}
	if kind != 1 && kind != 2 && kind != 4 {
		return "", fmt.Errorf("%d bytes per character: %w", kind, ErrWire)
	}
	if len(b)%int(kind) != 0 {
		return "", fmt.Errorf("%d bytes of %d-byte characters: %w", len(b), kind, ErrWire)
	}

	var text strings.Builder
	if kind == 1 {
		// ASCII is the same in Latin-1 and in UTF-8.
		if s := string(b); isPlain(s) {
			return s, nil
		}
	}
	text.Grow(len(b))
	for ; len(b) > 0; b = b[kind:] {
		var r rune
		switch kind {
		case 1:
			r = rune(b[0])
		case 2:
			r = rune(binary.NativeEndian.Uint16(b))
		case 4:
			r = rune(binary.NativeEndian.Uint32(b))
		}
		// A str may hold lone surrogates; UTF-8 may not.
		if !utf8.ValidRune(r) || utf16.IsSurrogate(r) {
			r = utf8.RuneError
		}
		text.WriteRune(r)
	}
	return text.String(), nil
}

// tailText is UTF-8 whose start may have been cut within a character.
func tailText(b []byte) string {
	for len(b) > 0 && !utf8.RuneStart(b[0]) {
		b = b[1:]
	}
	return strings.ToValidUTF8(string(b), "\uFFFD")
}
