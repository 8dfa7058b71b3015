// SPDX-License-Identifier: Apache-2.0

// Package stack is the call stack as people read it: frames with a function, a
// file and a line, leaf first, whatever language they come from. It is pure: it
// knows neither Inspektor Gadget nor the kernel, except for wire.go, which
// decodes the two structs of bpf/stack.h.
package stack

// Kind says what a frame is, which decides its colour and its pprof mapping.
type Kind uint8

const (
	// KindUnknown is the explicit [unknown] frame: bytes whose stack was lost.
	KindUnknown Kind = iota
	// KindPython is a Python frame: Function is the qualname.
	KindPython
	// KindNative is machine code; Function is the demangled symbol or 0x….
	KindNative
	// KindTrampoline joins a native run to the Python run that called it.
	KindTrampoline
)

const (
	// Unknown is the function name of a frame of KindUnknown.
	Unknown = "[unknown]"
	// Trampoline is the function name of a frame of KindTrampoline.
	Trampoline = "<interpreter trampoline>"
)

// Frame is one call. File and Line are empty where they are not known; for a
// native frame File is the path of the library as the process mapped it.
type Frame struct {
	Kind     Kind
	Function string
	File     string
	Line     uint32
}

// Stack is a call stack, leaf first.
type Stack []Frame
