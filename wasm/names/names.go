// SPDX-License-Identifier: Apache-2.0

// Package names is what the WASM modules of our gadgets share: on an ig that does
// not have our operators it turns the stack ids of rows into text, the same text
// as operators/symbolize, as far as the kernel alone knows it.
//
// That is the Python frames. The names of native functions are in files of the
// traced process, which a WASM module cannot open: a stack with Python frames
// shows these only, another one shows addresses.
//
// This file and cache.go are pure Go and tested as such; gadget_wasip1.go is what
// talks to ig.
package names

import (
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/gpu-gadgets/gpu-gadgets/operators/stack"
)

// Maps reads the two maps of bpf/stack.h. The methods fill b, which has the size
// of the value; false, or only zeros, is an entry that does not exist.
type Maps interface {
	Stack(id uint64, b []byte) bool
	Symbol(id uint64, b []byte) bool
}

// Text is a stack as rows show it. No label contains ";", so that the lists can be
// split at "; ".
type Text struct {
	// Frame is the innermost Python frame, `qualname (file:line)`; without one
	// the innermost native frame; [unknown] for a lost stack.
	Frame string
	// Stack is all frames, root first; Frames the same, leaf first, as ig's
	// otel-profiles reads them.
	Stack, Frames string
}

const (
	separator = "; "
	// maxFrame and maxStack bound the texts in bytes. A frame of ours has at
	// most some 700; that maxStack is reached takes frames with long names.
	maxFrame = 256
	maxStack = 8 << 10
	// A module has 16 MiB for everything (ig's pkg/operators/wasm), of which Go
	// itself takes 3. Each cache holds at most twice its limit.
	textBytes   = 1 << 20
	symbolBytes = 1 << 19
)

// Namer names the stacks of one run, each once as long as the cache holds it. It
// is not safe for concurrent use: ig calls a module from one thread at a time.
type Namer struct {
	maps    Maps
	texts   *cache[Text]
	symbols *cache[stack.Symbol]
	unknown Text

	stackBuffer  [stack.StackBytes]byte
	symbolBuffer [stack.SymbolBytes]byte
}

// New names what is in maps.
func New(maps Maps) *Namer {
	return &Namer{
		maps:    maps,
		texts:   newCache[Text](textBytes),
		symbols: newCache[stack.Symbol](symbolBytes),
		unknown: textOf(stack.UnknownStack()),
	}
}

// Stack is the text of an id. Id 0, and an id that is in no map, are one frame,
// [unknown].
func (n *Namer) Stack(id uint64) Text {
	if id == 0 {
		return n.unknown
	}
	if t, ok := n.texts.get(id); ok {
		return t
	}
	clear(n.stackBuffer[:])
	if !n.maps.Stack(id, n.stackBuffer[:]) {
		return n.unknown
	}
	raw, err := stack.DecodeStack(n.stackBuffer[:])
	if err != nil || len(raw.Native)+len(raw.Python) == 0 {
		return n.unknown
	}
	t := textOf(n.join(raw))
	n.texts.put(id, t, len(t.Frame)+len(t.Stack)+len(t.Frames))
	return t
}

// join leaves native frames out where there are Python frames: without symbols it
// is not known where the library ends and the interpreter begins, and addresses
// differ from process to process.
func (n *Namer) join(raw stack.Raw) stack.Stack {
	parts := stack.Parts{Flags: raw.Flags}
	for _, p := range raw.Python {
		symbol := n.symbol(p.Symbol)
		parts.Python = append(parts.Python, stack.Frame{
			Kind: stack.KindPython, Function: symbol.Function, File: symbol.File, Line: p.Line,
		})
	}
	if len(raw.Python) == 0 {
		for _, address := range raw.Native {
			parts.Native = append(parts.Native, stack.Frame{
				Kind: stack.KindNative, Function: "0x" + strconv.FormatUint(address, 16),
			})
		}
	}
	return stack.Join(parts)
}

func (n *Namer) symbol(id uint64) stack.Symbol {
	unreadable := stack.Symbol{Function: stack.Unreadable}
	if id == 0 {
		return unreadable
	}
	if s, ok := n.symbols.get(id); ok {
		return s
	}
	clear(n.symbolBuffer[:])
	if !n.maps.Symbol(id, n.symbolBuffer[:]) {
		return unreadable
	}
	s, err := stack.DecodeSymbol(n.symbolBuffer[:])
	if err != nil || s.Function == stack.Unreadable {
		return unreadable
	}
	n.symbols.put(id, s, len(s.Function)+len(s.File))
	return s
}

func textOf(s stack.Stack) Text {
	labels := make([]string, len(s))
	for i, f := range s {
		labels[i] = strings.ReplaceAll(f.Label(), ";", ":")
	}
	t := Text{Frame: s.Self().Label(), Stack: s.Folded(), Frames: strings.Join(labels, separator)}
	return t.cut(maxFrame, maxStack)
}

// cut shortens the texts to so many bytes each, the lists at the root: the callers
// of what stays are [truncated], as where the kernel had no room.
func (t Text) cut(frame, list int) Text {
	const mark = stack.Truncated
	if len(t.Frame) > frame {
		t.Frame = cutString(t.Frame, frame)
	}
	if len(t.Stack) <= list {
		return t
	}
	room := list - len(mark) - len(separator)
	leafFirst, rootFirst := "", ""
	if room > 0 {
		// Where a separator begins within the room, a whole frame ends.
		if i := strings.LastIndex(t.Frames[:min(room+len(separator), len(t.Frames))], separator); i > 0 {
			leafFirst, rootFirst = t.Frames[:i]+separator, separator+t.Stack[len(t.Stack)-i:]
		}
	}
	t.Frames, t.Stack = leafFirst+mark, mark+rootFirst
	if list < len(mark) {
		t.Frames, t.Stack = "", ""
	}
	return t
}

// cutString ends with "…" and in no half character.
func cutString(s string, size int) string {
	size -= len("…")
	if size < 0 {
		return ""
	}
	for size > 0 && !utf8.RuneStart(s[size]) {
		size--
	}
	return s[:size] + "…"
}
