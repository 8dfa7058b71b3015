// SPDX-License-Identifier: Apache-2.0

// Package stack is the call stack as people read it: frames with a function, a
// file and a line, leaf first, whatever language they come from. It is pure: it
// knows neither Inspektor Gadget nor the kernel, except for wire.go, which
// decodes the two structs of bpf/stack/stack.h.
package stack

import (
	"encoding/binary"
	"hash/fnv"
	"math"
	"path"
	"strconv"
	"strings"
	"unicode"
)

// Kind says what a frame is, which decides its colour and its pprof mapping.
type Kind uint8

const (
	// KindUnknown is the explicit [unknown] frame: bytes whose stack was lost.
	KindUnknown Kind = iota
	// KindPython is a Python frame: Function is the qualname.
	KindPython
	// KindNative is machine code; Function is the demangled symbol or 0x….
	KindNative
	// KindTrampoline joins a native run to the Python run that called it, or what a thread
	// does to the run that requested it.
	KindTrampoline
	// KindKernel is a kernel on the GPU, on top of the stack that launched it.
	KindKernel
)

const (
	// Unknown is the function name of a frame of KindUnknown.
	Unknown = "[unknown]"
	// Truncated is the function name of a frame of KindUnknown that stands
	// for the callers the kernel could not read or had no room for.
	Truncated = "[truncated]"
	// NoRules and the next four are function names of frames of KindUnknown that stand for
	// native callers. NoRules: the code has no unwind information.
	NoRules = "[no unwind information]"
	// NotLoaded means that unwind information was not read yet, when the stack was the first one with this code.
	NotLoaded = "[unwind information not loaded]"
	// Broken means that there is no return address where it should be.
	Broken = "[native stack broken]"
	// StackUnreadable means that a page of the machine stack was not in memory.
	StackUnreadable = "[native stack unreadable]"
	// Busy means that the mappings of the process were being changed.
	Busy = "[mappings changing]"
	// BeforeAttach is the function name of a frame of KindUnknown that stands for what
	// was allocated before anybody looked.
	BeforeAttach = "[before attach]"
	// Context and Unexplained are function names of frames of KindUnknown that stand for
	// what the driver counts and no row explains.
	Context     = "[cuda context and modules]"
	Unexplained = "[unexplained]"
	// Unreadable is the function name of a Python frame without a name.
	Unreadable = "<unreadable>"
	// Trampoline is the function name of a frame of KindTrampoline.
	Trampoline = "<interpreter trampoline>"
	// Autograd is that of one that joins what a thread of PyTorch's autograd does to the
	// Python stack that called backward(), on another thread.
	Autograd = "<autograd>"
)

// String gives the word that files carry for the kind: unknown, python, native,
// trampoline or kernel.
func (k Kind) String() string {
	switch k {
	case KindPython:
		return "python"
	case KindNative:
		return "native"
	case KindTrampoline:
		return "trampoline"
	case KindKernel:
		return "kernel"
	default:
		return "unknown"
	}
}

// ParseKind is the inverse of Kind.String; other words are KindUnknown.
func ParseKind(word string) Kind {
	for k := KindPython; k <= KindKernel; k++ {
		if k.String() == word {
			return k
		}
	}
	return KindUnknown
}

// Frame is one call. File and Line are empty where they are not known; for a
// native frame File is the path of the library as the process mapped it.
// Compare frames by their Identity.
type Frame struct {
	Kind     Kind
	Function string
	File     string
	Line     uint32
	// BuildID (hex) and Address say where in its file a native frame is;
	// Address is as linked, so it is the same in every process. Both are
	// zero for other kinds, Address also for named native frames: all calls
	// within one function are one frame.
	BuildID string
	Address uint64
	// Library: a Python frame whose code is not the program's own (package library).
	Library bool
}

// Stack is a call stack, leaf first.
type Stack []Frame

// Identity is the frame without what does not distinguish it from others: a named
// native function is the same in the next build of its library, so that a
// profile taken before an upgrade can be compared with one taken after. What counts as a
// library is a setting of the run.
func (f Frame) Identity() Frame {
	f.Library = false
	if f.Address == 0 {
		f.BuildID = ""
	}
	return f
}

// IsUnknown says of a function's name that its frame is of KindUnknown: such names, and no
// others, are in brackets.
func IsUnknown(function string) bool {
	return len(function) > 2 && function[0] == '[' && function[len(function)-1] == ']'
}

// BeforeAttachID is the id of the stack of one frame BeforeAttach in rows that the kernel
// did not write. Its ids are hashes, and 0.
const BeforeAttachID uint64 = math.MaxUint64

// BeforeAttachStack is the stack of BeforeAttachID.
func BeforeAttachStack() Stack {
	return Stack{{Kind: KindUnknown, Function: BeforeAttach}}
}

// UnknownStack replaces a stack that was lost.
func UnknownStack() Stack {
	return Stack{{Kind: KindUnknown, Function: Unknown}}
}

// ID is a content hash of the frames' identities: equal stacks have equal ids in every
// process and after a restart. It is FNV-1a, so it is no defence against
// an attacker who wants two stacks to collide.
func (s Stack) ID() uint64 {
	h := fnv.New64a()
	var n [8]byte
	number := func(v uint64) {
		binary.LittleEndian.PutUint64(n[:], v)
		h.Write(n[:])
	}
	// Each string goes with its length, so that no two lists of frames
	// serialise to the same bytes.
	text := func(v string) {
		number(uint64(len(v)))
		h.Write([]byte(v))
	}
	for _, f := range s {
		f = f.Identity()
		number(uint64(f.Kind)<<32 | uint64(f.Line))
		number(f.Address)
		text(f.Function)
		text(f.File)
		text(f.BuildID)
	}
	return h.Sum64()
}

// Self is the frame that a stack is known by: the innermost Python frame; without one, the
// leaf.
func (s Stack) Self() Frame {
	for _, f := range s {
		if f.Kind == KindPython {
			return f
		}
	}
	if len(s) == 0 {
		return Frame{Kind: KindUnknown, Function: Unknown}
	}
	return s[0]
}

// Folded is the stack on one line, root first, labels joined with "; ". A
// semicolon inside a label becomes a colon, so the line can be split again.
func (s Stack) Folded() string {
	var b strings.Builder
	for i := len(s) - 1; i >= 0; i-- {
		b.WriteString(strings.ReplaceAll(s[i].Label(), ";", ":"))
		if i > 0 {
			b.WriteString("; ")
		}
	}
	return b.String()
}

// Label is how a person reads the frame: `Model.forward (vllm/model.py:12)`,
// `cuMemAlloc_v2 (libcuda.so.1)`, `[unknown]`. The names come from the traced
// process, so control characters, which could drive a terminal, are replaced.
//
// Long names of C++ and Rust are without what is in their long brackets.
func (f Frame) Label() string {
	if f.Kind == KindNative || f.Kind == KindKernel {
		f.Function = shorten(f.Function)
	}
	return f.LabelIn(ShortFile(f.File))
}

// LabelIn is Label for who knows ShortFile(f.File) already, with the whole name.
func (f Frame) LabelIn(file string) string {
	label := f.Function
	if file != "" {
		label += " (" + file
		if f.Line != 0 {
			label += ":" + strconv.FormatUint(uint64(f.Line), 10)
		}
		label += ")"
	} else if f.Line != 0 {
		label += " (line " + strconv.FormatUint(uint64(f.Line), 10) + ")"
	}
	return printable(label)
}

// ShortFile is the part of a path that identifies a file: below site-packages,
// an unpacked wheel or the standard library the import path, elsewhere the base name.
func ShortFile(file string) string {
	for _, root := range []string{"/site-packages/", "/dist-packages/", ".whl/"} {
		if i := strings.LastIndex(file, root); i >= 0 && strings.HasSuffix(file, ".py") {
			return file[i+len(root):]
		}
	}
	if i := strings.LastIndex(file, "/lib/python3."); i >= 0 && strings.HasSuffix(file, ".py") {
		if _, rest, ok := strings.Cut(file[i+len("/lib/python3."):], "/"); ok {
			return rest
		}
	}
	if file == "" {
		return ""
	}
	return path.Base(file)
}

func printable(s string) string {
	if isPlain(s) {
		return s
	}
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return unicode.ReplacementChar
		}
		return r
	}, s)
}
