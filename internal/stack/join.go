// SPDX-License-Identifier: Apache-2.0

package stack

// Parts is a stack before its two languages are joined.
type Parts struct {
	Flags Flags
	// Native is the machine code run, leaf first, up to and into the
	// interpreter.
	Native []Frame
	// Python is the Python run, leaf first.
	Python []Frame
	// IsInterpreter says whether Native[i] is code of the interpreter. Nil
	// means that the interpreter is not known.
	IsInterpreter func(i int) bool
}

// Join makes one stack of its parts. The kernel unwinds the machine stack only
// up to the interpreter's evaluation loop, whose own frames say nothing that
// the Python frames do not say better: the native run ends at the first of
// them, and <interpreter trampoline> marks the change of language. Without
// Python frames everything native is kept.
//
// Frames that the kernel had to leave out appear as [truncated], so that an
// incomplete stack is not mistaken for a complete one. No frames at all is
// UnknownStack.
func Join(p Parts) Stack {
	if len(p.Python) == 0 {
		s := append(Stack(nil), p.Native...)
		if p.Flags&(NativeTruncated|PythonIncomplete) != 0 && len(s) > 0 {
			s = append(s, truncated())
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
		if !reached && p.Flags&NativeTruncated != 0 {
			s = append(s, truncated())
		}
		s = append(s, Frame{Kind: KindTrampoline, Function: Trampoline})
	}
	s = append(s, p.Python...)
	if p.Flags&(PythonTruncated|PythonIncomplete) != 0 {
		s = append(s, truncated())
	}
	return s
}

func truncated() Frame {
	return Frame{Kind: KindUnknown, Function: Truncated}
}
