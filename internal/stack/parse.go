// SPDX-License-Identifier: Apache-2.0

package stack

import (
	"strconv"
	"strings"
)

// ParseFolded reads what Folded wrote, for who has the text alone. Frames are leaf
// first again. Of a file's path the text has only the part that identifies it (ShortFile). An empty
// text is UnknownStack.
func ParseFolded(text string) Stack {
	if text == "" {
		return UnknownStack()
	}
	labels := strings.Split(text, "; ")
	s := make(Stack, len(labels))
	for i, label := range labels {
		s[len(s)-1-i] = ParseLabel(label)
	}
	return s
}

// ParseLabel reads what Label wrote. It never fails: a text that Label does not
// write is the name of a native function.
//
// What a frame is follows from its text. Only Python frames have lines, and Python's
// files end in .py; a Python frame without either, such as one of a compiled module,
// is taken for native.
func ParseLabel(label string) Frame {
	switch {
	case IsUnknown(label):
		return Frame{Kind: KindUnknown, Function: label}
	case label == Trampoline, label == Autograd:
		return Frame{Kind: KindTrampoline, Function: label}
	}
	f := Frame{Kind: KindNative, Function: label}
	function, where, ok := cutLocation(label)
	if ok {
		f.Function, f.File = function, where
		if line, ok := strings.CutPrefix(where, "line "); ok {
			if n, ok := parseLine(line); ok {
				f.File, f.Line = "", n
			}
		} else if colon := strings.LastIndexByte(where, ':'); colon > 0 {
			if n, ok := parseLine(where[colon+1:]); ok {
				f.File, f.Line = where[:colon], n
			}
		}
	}
	if f.Line != 0 || strings.HasSuffix(f.File, ".py") || f.Function == Unreadable {
		f.Kind = KindPython
		// Of other files a label has no directory. Modules of the standard library that are in
		// none cannot be distinguished from the program's own.
		f.Library = strings.Contains(f.File, "/") || strings.HasPrefix(f.File, "<frozen ")
	}
	return f
}

// cutLocation cuts `name (where)`. The file's own name may have parentheses, and so
// may a C++ function; the last opening one that fits is taken.
func cutLocation(label string) (name, where string, ok bool) {
	inner, ok := strings.CutSuffix(label, ")")
	if !ok {
		return "", "", false
	}
	depth := 0
	for i := len(inner) - 1; i > 0; i-- {
		switch inner[i] {
		case ')':
			depth++
		case '(':
			if depth > 0 {
				depth--
				continue
			}
			if inner[i-1] != ' ' || i == 1 || i == len(inner)-1 {
				return "", "", false
			}
			return inner[:i-1], inner[i+1:], true
		}
	}
	return "", "", false
}

// parseLine reads a line number as Label writes it.
func parseLine(text string) (uint32, bool) {
	n, err := strconv.ParseUint(text, 10, 32)
	return uint32(n), err == nil && n != 0 && text[0] != '0' && text[0] != '+'
}
