// SPDX-License-Identifier: Apache-2.0

package stack

import (
	"path"
	"slices"
	"strings"
	"unicode"
)

// User is the line of a stack that a person can change: the innermost Python frame of the program's own
// code; where there is no Python, the innermost native frame outside of the driver and the runtime, in which
// the stacks of all that a program does with a GPU end; Self where there is none.
func (s Stack) User() Frame {
	for _, f := range s {
		if f.Kind == KindPython && !f.Library {
			return f
		}
	}
	self := s.Self()
	if self.Kind == KindPython {
		return self
	}
	for _, f := range s {
		if f.Kind == KindNative && !f.isNameless() && !f.IsDriver() && !f.isStaticRuntime() {
			return f
		}
	}
	return self
}

// IsDriver reports whether a native frame is in the vendor's driver or in its runtime.
func (f Frame) IsDriver() bool {
	return f.Kind == KindNative && f.IsIn("libcuda.so", "libcudart", "libamdhip64")
}

// IsIn reports whether a frame is in one of the libraries, whose names are without their version: the file's
// name begins with one of these.
func (f Frame) IsIn(libraries ...string) bool {
	name := path.Base(f.File)
	return slices.ContainsFunc(libraries, func(l string) bool { return strings.HasPrefix(name, l) })
}

// isStaticRuntime reports whether a frame is in a runtime that is part of the program's file, as nvcc links
// it by default: exports of C, with the names of the CUDA Runtime API and of libcudart_static.a.
func (f Frame) isStaticRuntime() bool {
	for _, prefix := range []string{"__cudart", "libcudart_static_"} {
		if strings.HasPrefix(f.Function, prefix) {
			return true
		}
	}
	rest, ok := strings.CutPrefix(f.Function, "cuda")
	return ok && rest != "" && unicode.IsUpper(rune(rest[0])) && !strings.ContainsAny(rest, "(:< ")
}

// isNameless reports whether nothing names a frame in another process, either: code that is in no file, which
// is at other addresses there.
func (f Frame) isNameless() bool { return f.File == "" && strings.HasPrefix(f.Function, "0x") }

// Own is the stack without what the frame of User calls: libraries, and the driver. It shares the
// stack's memory.
func (s Stack) Own() Stack {
	own := s.User()
	for i, f := range s {
		if f == own {
			return s[i:]
		}
	}
	return s
}

// Where is how a person reads where a stack ends: the program's own line, and behind it the
// innermost one where that is a library's:
// `Trainer.load_batch (train.py:18), in Condition.wait (threading.py:327)`. The driver's function, which the row
// of a call names, is not behind it, nor is a kernel.
func (s Stack) Where() string {
	user, self := s.User(), s.Self()
	if self.IsDriver() || self.Kind == KindKernel {
		return user.Label()
	}
	return Where(user.Label(), self.Label())
}

// Where is the same for labels.
func Where(user, frame string) string {
	switch user {
	case frame, "":
		return frame
	}
	return user + ", in " + frame
}

// MarkInside marks the Python frames inside of the program's own line, by its label, as a
// library's, for who has a text of frames and that. The stack is the caller's.
func (s Stack) MarkInside(user string) {
	for i := range s {
		if s[i].Label() != user {
			continue
		}
		s[i].Library = false
		for j := range s[:i] {
			s[j].Library = s[j].Kind == KindPython
		}
		return
	}
}
