// SPDX-License-Identifier: Apache-2.0

// Package names is what the WASM modules of our gadgets share: on an ig that does
// not have our operators it turns the stack ids of rows into text, the same text
// as operators/decode/symbolize, as far as the kernel alone knows it.
//
// That is the Python frames. The names of native functions are in files of the
// traced process, which a WASM module cannot open: a stack with Python frames
// shows these only, another one shows addresses.
//
// This file and cache.go are pure Go and tested as such; gadget_wasip1.go is what
// talks to ig.
package names

import (
	"math"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/gpu-gadgets/gpu-gadgets/internal/stack"
)

// Maps reads the two maps of bpf/stack/stack.h. The methods fill b, which has the size
// of the value; false, or only zeros, is an entry that does not exist.
type Maps interface {
	Stack(id uint64, b []byte) bool
	Symbol(id uint64, b []byte) bool
}

// Text is a stack as rows show it.
//
// The code of this package avoids loops over characters where it can: ig has
// wazero ask at each turn of a loop whether the gadget has ended, which takes longer
// than the turn.
type Text struct {
	// Frame is the innermost Python frame, `qualname (file:line)`; without one
	// the innermost native frame; [unknown] for a lost stack.
	Frame string
	// Frames is all frames, leaf first, as ig's otel-profiles reads them. No label
	// in it contains ";", so that the list can be split at "; ".
	Frames string
	// ends is where each label ends in Frames.
	ends []uint16
}

const (
	separator = "; "
	// maxFrame and maxFrames bound the texts in bytes. 8 KiB are 100 frames of 80
	// characters; a frame has at most about 700.
	maxFrame  = 256
	maxFrames = 8 << 10
	// A module has 16 MiB for everything (ig's pkg/operators/wasm). Go's own part
	// is 1.5; garbage and what it fragments take as much as the caches.
	textBytes  = 3 << 20
	labelBytes = 1 << 19
	fileBytes  = 1 << 17
	// What a new stack allocates besides 3 × its text, and a new label besides
	// 8 × its own; a test holds them against what Go counts.
	stackGarbage = 6 << 10
	frameGarbage = 200
)

// Namer names the stacks of one run, each once as long as the cache holds it. It
// is not safe for concurrent use: ig calls a module from one thread at a time.
type Namer struct {
	maps    Maps
	texts   *cache[uint64, Text]
	labels  *cache[stack.RawPython, label]
	files   *cache[string, string] // path → as labels show it
	unknown Text

	// Garbage is how many bytes were allocated since it was set to 0, and
	// rather more than less: who collects garbage himself asks for it.
	Garbage int

	stackBuffer  [stack.StackBytes]byte
	symbolBuffer [stack.SymbolBytes]byte
}

// label is a Python frame's: for itself, and within a list.
type label struct{ alone, listed string }

// New names what is in maps.
func New(maps Maps) *Namer {
	return &Namer{
		maps:    maps,
		texts:   newCache[uint64, Text](textBytes),
		labels:  newCache[stack.RawPython, label](labelBytes),
		files:   newCache[string, string](fileBytes),
		unknown: textOf(stack.UnknownStack(), stack.Unknown),
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
	n.texts.put(id, t, len(t.Frame)+len(t.Frames)+2*len(t.ends))
	n.Garbage += stackGarbage + 3*len(t.Frames) + frameGarbage*len(t.ends)
	return t
}

// join gives frames whose functions are their labels, and the label of the frame
// for tables.
//
// It leaves native frames out where there are Python frames: without symbols it is
// not known where the library ends and the interpreter begins, and addresses differ
// from process to process. It stops where the text will be full: what is read of a
// hostile process's names is bounded, too.
func (n *Namer) join(raw stack.Raw) (s stack.Stack, self string) {
	parts := stack.Parts{Flags: raw.Flags, Python: make([]stack.Frame, 0, len(raw.Python))}
	size := 0
	for i, p := range raw.Python {
		if size > maxFrames {
			parts.Flags |= stack.PythonTruncated
			break
		}
		if p.Asked {
			parts.Python = append(parts.Python, stack.Asker())
			p.Asked = false
		}
		l := n.label(p)
		if i == 0 {
			self = l.alone
		}
		parts.Python = append(parts.Python, stack.Frame{Kind: stack.KindPython, Function: l.listed})
		size += len(l.listed) + len(separator)
	}
	if len(raw.Python) == 0 {
		for _, address := range raw.Native {
			parts.Native = append(parts.Native, stack.Frame{
				Kind: stack.KindNative, Function: "0x" + strconv.FormatUint(address, 16),
			})
		}
	}
	s = stack.Join(parts)
	if self == "" {
		self = s[0].Function
	}
	return s, self
}

func (n *Namer) label(p stack.RawPython) label {
	if l, ok := n.labels.get(p); ok {
		return l
	}
	clear(n.symbolBuffer[:])
	if p.Symbol == 0 || !n.maps.Symbol(p.Symbol, n.symbolBuffer[:]) {
		clear(n.symbolBuffer[:])
	}
	symbol, err := stack.DecodeSymbol(n.symbolBuffer[:])
	if err != nil {
		symbol = stack.Symbol{Function: stack.Unreadable}
	}
	f := stack.Frame{Kind: stack.KindPython, Function: symbol.Function, Line: p.Line}
	l := label{alone: f.LabelIn(n.file(symbol.File))}
	if l.listed = l.alone; strings.IndexByte(l.alone, ';') >= 0 {
		l.listed = strings.ReplaceAll(l.alone, ";", ":")
	}
	n.Garbage += entryBytes + 8*(len(symbol.Function)+len(symbol.File)+len(l.alone))
	if symbol.Function != stack.Unreadable { // else it may be there next time
		n.labels.put(p, l, len(l.alone))
	}
	return l
}

// file is stack.ShortFile, which looks for words in the path, remembered: there
// are few files.
func (n *Namer) file(path string) string {
	if short, ok := n.files.get(path); ok {
		return short
	}
	short := stack.ShortFile(path)
	n.files.put(path, short, len(path))
	return short
}

func textOf(s stack.Stack, self string) Text {
	size := 0
	for _, f := range s {
		size += len(f.Function) + len(separator)
	}
	var b strings.Builder
	b.Grow(size)
	t := Text{Frame: self, ends: make([]uint16, 0, len(s))}
	for i, f := range s {
		if i > 0 {
			b.WriteString(separator)
		}
		b.WriteString(f.Function)
		// What does not fit into the type is cut below.
		t.ends = append(t.ends, uint16(min(b.Len(), math.MaxUint16)))
	}
	t.Frames = b.String()
	return t.cut(maxFrame, maxFrames)
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
		t.Frames, t.ends = "", nil
		return t
	}
	whole := 0 // labels that stay
	for whole < len(t.ends) && int(t.ends[whole])+len(separator)+len(mark) <= frames {
		whole++
	}
	if whole == 0 {
		t.Frames, t.ends = mark, []uint16{uint16(len(mark))}
		return t
	}
	t.Frames = t.Frames[:t.ends[whole-1]] + separator + mark
	t.ends = append(t.ends[:whole:whole], uint16(len(t.Frames)))
	return t
}

// AppendStack appends the frames root first, as people read them.
func (t Text) AppendStack(to []byte) []byte {
	for i := len(t.ends) - 1; i >= 0; i-- {
		begin := 0
		if i > 0 {
			begin = int(t.ends[i-1]) + len(separator)
		}
		to = append(to, t.Frames[begin:t.ends[i]]...)
		if i > 0 {
			to = append(to, separator...)
		}
	}
	return to
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
