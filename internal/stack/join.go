// SPDX-License-Identifier: Apache-2.0

package stack

// Parts is a stack before its two languages are joined.
type Parts struct {
	Flags Flags
	// Native is the machine code run, leaf first, up to and into the
	// interpreter.
	Native []Frame
	// Python is the Python run, leaf first. A frame of KindTrampoline in it comes before
	// frames of another thread.
	Python []Frame
	// IsInterpreter reports whether Native[i] is code of the interpreter. Nil
	// means that the interpreter is unknown.
	IsInterpreter func(i int) bool
}

// Join makes one stack of its parts. The kernel unwinds the machine stack only
// up to the interpreter's evaluation loop, whose own frames say nothing that
// the Python frames do not say better: the native run ends at the first of
// them, and <interpreter trampoline> marks the change of language. Without
// Python frames everything native is kept. Where the thread has none of its own, and those
// of another one follow, <autograd> marks the change.
//
// Frames that the kernel had to leave out appear as [truncated], or as a name that
// says why, so that an incomplete stack is not mistaken for a complete one. No frames at all is
// UnknownStack.
func Join(p Parts) Stack {
	if len(p.Python) == 0 {
		s := append(Stack(nil), p.Native...)
		if why := cut(p.Flags); why != "" && len(s) > 0 {
			s = append(s, Frame{Kind: KindUnknown, Function: why})
		}
		if len(s) == 0 {
			return UnknownStack()
		}
		return s
	}

	s := make(Stack, 0, len(p.Native)+len(p.Python)+3)
	reached := false
	for i, f := range p.Native {
		if p.IsInterpreter != nil && p.IsInterpreter(i) {
			reached = true
			break
		}
		s = append(s, f)
	}
	if len(s) > 0 {
		if why := cut(p.Flags &^ PythonIncomplete); !reached && why != "" {
			s = append(s, Frame{Kind: KindUnknown, Function: why})
		}
		if p.Python[0].Kind != KindTrampoline {
			s = append(s, Frame{Kind: KindTrampoline, Function: Trampoline})
		}
	}
	s = append(s, p.Python...)
	if p.Flags&(PythonTruncated|PythonIncomplete) != 0 {
		s = append(s, truncated())
	}
	return s
}

// Asker is the frame before those of a thread that has asked another one for its work.
func Asker() Frame { return Frame{Kind: KindTrampoline, Function: Autograd} }

// cut is the name of the frame that stands for callers that are missing; empty: none are.
func cut(f Flags) string {
	switch {
	case f&NativeNoRules != 0:
		return NoRules
	case f&NativeNotLoaded != 0:
		return NotLoaded
	case f&NativeBroken != 0:
		return Broken
	case f&NativeUnreadable != 0:
		return StackUnreadable
	case f&NativeBusy != 0:
		return Busy
	case f&(NativeTruncated|PythonIncomplete) != 0:
		return Truncated
	}
	return ""
}

func truncated() Frame {
	return Frame{Kind: KindUnknown, Function: Truncated}
}
