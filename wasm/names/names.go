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

// Text is a stack as rows show it. No label in Frames contains ";", so that the
// list can be split at "; ".
type Text struct {
	// Frame is the innermost Python frame, `qualname (file:line)`; without one
	// the innermost native frame; [unknown] for a lost stack.
	Frame string
	// Frames is all frames, leaf first, as ig's otel-profiles reads them.
	Frames string
}

const (
	separator = "; "
	// maxFrame and maxFrames bound the texts in bytes. 8 KiB are 100 frames of 80
	// characters; a frame has at most some 700.
	maxFrame  = 256
	maxFrames = 8 << 10
	// A module has 16 MiB for everything (ig's pkg/operators/wasm). Go's own part
	// is 1.5; garbage and what it fragments take as much as the caches, each of
	// which holds at most twice its limit.
	textBytes   = 1 << 20
	symbolBytes = 1 << 18
	// What a new stack allocates and each of its frames, besides 4 × its text; a
	// test holds them against what Go counts.
	stackGarbage = 4 << 10
	frameGarbage = 600
)

// Namer names the stacks of one run, each once as long as the cache holds it. It
// is not safe for concurrent use: ig calls a module from one thread at a time.
type Namer struct {
	maps    Maps
	texts   *cache[Text]
	symbols *cache[stack.Symbol]
	unknown Text

	// Garbage is how many bytes were allocated since somebody set it to 0, and
	// rather more than less: who collects garbage himself asks for it.
	Garbage int

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
	s := n.join(raw)
	t := textOf(s)
	n.texts.put(id, t, len(t.Frame)+len(t.Frames))
	n.Garbage += stackGarbage + len(s)*frameGarbage + 4*len(t.Frames)
	return t
}

// join leaves native frames out where there are Python frames: without symbols it
// is not known where the library ends and the interpreter begins, and addresses
// differ from process to process. It stops where the text will be full: what is
// read of a hostile process's names is bounded, too.
func (n *Namer) join(raw stack.Raw) stack.Stack {
	parts := stack.Parts{Flags: raw.Flags, Python: make([]stack.Frame, 0, len(raw.Python))}
	size := 0
	for _, p := range raw.Python {
		if size > maxFrames {
			parts.Flags |= stack.PythonTruncated
			break
		}
		symbol := n.symbol(p.Symbol)
		parts.Python = append(parts.Python, stack.Frame{
			Kind: stack.KindPython, Function: symbol.Function, File: symbol.File, Line: p.Line,
		})
		size += len(symbol.Function) + len(stack.ShortFile(symbol.File))
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
	n.Garbage += entryBytes + 8*(len(s.Function)+len(s.File))
	return s
}

func textOf(s stack.Stack) Text {
	var b strings.Builder
	for i, f := range s {
		if i > 0 {
			b.WriteString(separator)
		}
		b.WriteString(strings.ReplaceAll(f.Label(), ";", ":"))
	}
	return Text{s.Self().Label(), b.String()}.cut(maxFrame, maxFrames)
}

// cut shortens the texts to so many bytes each, the list at the root: the callers
// of what stays are [truncated], as where the kernel had no room.
func (t Text) cut(frame, frames int) Text {
	const mark = stack.Truncated
	if len(t.Frame) > frame {
		t.Frame = cutString(t.Frame, frame)
	}
	if len(t.Frames) <= frames {
		return t
	}
	if frames < len(mark) {
		t.Frames = ""
		return t
	}
	// Behind the last separator that fits.
	whole := ""
	if i := strings.LastIndex(t.Frames[:frames-len(mark)], separator); i >= 0 {
		whole = t.Frames[:i+len(separator)]
	}
	t.Frames = whole + mark
	return t
}

// AppendStack appends the frames root first, as people read them.
func (t Text) AppendStack(to []byte) []byte {
	rest := t.Frames
	for {
		i := strings.LastIndex(rest, separator)
		if i < 0 {
			return append(to, rest...)
		}
		to = append(to, rest[i+len(separator):]...)
		to = append(to, separator...)
		rest = rest[:i]
	}
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
