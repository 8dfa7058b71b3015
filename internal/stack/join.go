// SPDX-License-Identifier: Apache-2.0

package stack

import "slices"

// Parts is a stack before its two languages are joined.
type Parts struct {
	Flags Flags
	// Native is the machine code run, leaf first, up to and into the
	// interpreter.
	Native []Frame
	// Python is the Python run, leaf first. A frame of KindTrampoline in it comes before
	// frames of another thread.
	Python []Frame
	// Runs are the Python frames that are called by native ones that are called by Python.
	Runs []Run
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
// Runs are put where they belong among the native frames, which then continue behind the interpreter:
// leaf first native frames, the trampoline, the Python frames that they were called by, the native
// frames that called these, and so on.
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

	s := make(Stack, 0, len(p.Native)+len(p.Python)+2*len(p.Runs)+3)
	own := p.own()
	native, python, complete := 0, 0, true
	for _, r := range p.Runs {
		s, _ = p.native(s, native, r.Native)
		native = r.Native
		// A thread may have been called by frames that wait for other work, and are left out.
		if complete = python+r.Python <= own; !complete {
			break
		}
		if r.Python == 0 {
			continue
		}
		s = p.enter(s, p.Python[python])
		s = append(s, p.Python[python:python+r.Python]...)
		python += r.Python
	}
	if complete {
		var reached bool
		s, reached = p.native(s, native, len(p.Native))
		if why := cut(p.Flags &^ PythonIncomplete); len(s) > 0 && !reached && why != "" {
			s = append(s, Frame{Kind: KindUnknown, Function: why})
		}
	}
	if python < len(p.Python) {
		s = p.enter(s, p.Python[python])
		s = append(s, p.Python[python:]...)
	}
	if p.Flags&(PythonTruncated|PythonIncomplete) != 0 {
		s = append(s, truncated())
	}
	return s
}

// own is how many Python frames are the thread's own.
func (p *Parts) own() int {
	own := slices.IndexFunc(p.Python, func(f Frame) bool { return f.Kind == KindTrampoline })
	if own < 0 {
		return len(p.Python)
	}
	return own
}

// native adds native frames, and reports whether there are frames of the interpreter among them.
// These are left out, and without runs they are the last ones.
func (p *Parts) native(s Stack, from, to int) (_ Stack, reached bool) {
	for i := from; i < min(to, len(p.Native)); i++ {
		if p.IsInterpreter == nil || !p.IsInterpreter(i) {
			s = append(s, p.Native[i])
			continue
		}
		reached = true
		if len(p.Runs) == 0 {
			break
		}
	}
	return s, reached
}

// enter marks the change to a Python frame.
func (p *Parts) enter(s Stack, to Frame) Stack {
	if len(s) > 0 && s[len(s)-1].Kind != KindPython && to.Kind != KindTrampoline {
		return append(s, Frame{Kind: KindTrampoline, Function: Trampoline})
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
