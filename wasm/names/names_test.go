// SPDX-License-Identifier: Apache-2.0

package names

import (
	"encoding/binary"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/internal/stack"
)

// fakeMaps has the bytes that the kernel would write, and counts who reads them.
type fakeMaps struct {
	stacks, symbols map[uint64][]byte
	reads           int
}

func (m *fakeMaps) Stack(id uint64, b []byte) bool {
	m.reads++
	copy(b, m.stacks[id])
	return true // as ig answers, whether there is an entry or not
}

func (m *fakeMaps) Symbol(id uint64, b []byte) bool {
	m.reads++
	copy(b, m.symbols[id])
	return true
}

// wireStack writes struct stack of bpf/stack/stack.h.
func wireStack(flags stack.Flags, native []uint64, python []stack.RawPython) []byte {
	b := make([]byte, stack.StackBytes)
	binary.NativeEndian.PutUint32(b, uint32(flags))
	binary.NativeEndian.PutUint16(b[4:], uint16(len(native)))
	binary.NativeEndian.PutUint16(b[6:], uint16(len(python)))
	for i, a := range native {
		binary.NativeEndian.PutUint64(b[8+8*i:], a)
	}
	for i, p := range python {
		binary.NativeEndian.PutUint64(b[stack.StackPythonOffset+16*i:], p.Symbol)
		binary.NativeEndian.PutUint32(b[stack.StackPythonOffset+16*i+8:], p.Line)
		if p.Asked {
			b[stack.StackPythonOffset+16*i+12] = 1
		}
	}
	return b
}

// wireSymbol writes struct symbol of a qualified Latin-1 name.
func wireSymbol(name, file string) []byte {
	b := make([]byte, stack.SymbolBytes)
	binary.NativeEndian.PutUint16(b[4:], uint16(len(name)))
	binary.NativeEndian.PutUint16(b[6:], uint16(len(file)))
	b[10], b[11], b[13] = 1, 1, 1
	copy(b[18:18+128], name)
	copy(b[18+128:18+128+256], file)
	return b
}

func TestNames(t *testing.T) {
	maps := &fakeMaps{
		symbols: map[uint64][]byte{1: wireSymbol("Model.forward", "/app/model.py"), 2: wireSymbol("<module>", "/app/a;b.py")},
		stacks: map[uint64][]byte{
			10: wireStack(stack.HasPython, []uint64{0x7f00, 0x7f10}, []stack.RawPython{{Symbol: 1, Line: 3}, {Symbol: 2, Line: 9}}),
			11: wireStack(0, []uint64{0x7f00, 0x7f10}, nil),
			12: wireStack(stack.HasPython|stack.PythonIncomplete, []uint64{1}, []stack.RawPython{{Symbol: 1, Line: 3}}),
			13: wireStack(stack.HasPython, nil, []stack.RawPython{{Symbol: 99, Line: 4}, {Symbol: 2}}),
			16: wireStack(stack.HasPython, nil, []stack.RawPython{{Symbol: 1, Line: 3}, {Symbol: 2, Line: 9, Asked: true}}),
			14: []byte("\xff\xff\xff\xff\xff\xff\xff\xff"), // 65535 frames
		},
	}
	n := New(maps)
	for id, want := range map[uint64][3]string{
		10: {"Model.forward (model.py:3)", "<module> (a:b.py:9); Model.forward (model.py:3)", "Model.forward (model.py:3); <module> (a:b.py:9)"},
		11: {"0x7f00", "0x7f10; 0x7f00", "0x7f00; 0x7f10"},
		12: {"Model.forward (model.py:3)", "[truncated]; Model.forward (model.py:3)", "Model.forward (model.py:3); [truncated]"},
		13: {"<unreadable> (line 4)", "<module> (a:b.py); <unreadable> (line 4)", "<unreadable> (line 4); <module> (a:b.py)"},
		16: {"Model.forward (model.py:3)", "<module> (a:b.py:9); <autograd>; Model.forward (model.py:3)",
			"Model.forward (model.py:3); <autograd>; <module> (a:b.py:9)"},
		14: {"[unknown]", "[unknown]", "[unknown]"},
		15: {"[unknown]", "[unknown]", "[unknown]"}, // in no map
		0:  {"[unknown]", "[unknown]", "[unknown]"},
	} {
		text := n.Stack(id)
		require.Equal(t, want, [3]string{text.Frame, string(text.AppendStack(nil)), text.Frames}, id)
	}

	reads := maps.reads
	n.Stack(10)
	require.Equal(t, reads, maps.reads, "a stack is read once")
	n.Stack(15)
	require.Greater(t, maps.reads, reads, "one that is not there is looked for again")
}

func TestCutKeepsTheInnermostFrames(t *testing.T) {
	text := textOf(stack.Stack{{Function: "leaf"}, {Function: "middle"}, {Function: "root"}}, "leaf")
	require.Equal(t, "leaf; middle; root", text.Frames)
	require.Equal(t, text, text.cut(100, 18))
	for room, want := range map[int]string{17: "leaf; [truncated]", 16: "[truncated]", 11: "[truncated]", 10: "", 0: ""} {
		cut := text.cut(100, room)
		require.Equal(t, [2]string{"leaf", want}, [2]string{cut.Frame, cut.Frames}, room)
		require.LessOrEqual(t, len(cut.Frames), room)
	}
	require.Equal(t, "[truncated]; leaf", string(text.cut(100, 17).AppendStack(nil)))
	require.Equal(t, "", text.cut(2, 100).Frame)
	require.Equal(t, "…", text.cut(3, 100).Frame)
	require.Equal(t, "…", Text{Frame: "ÄÄÄ"}.cut(4, 0).Frame, "no half characters")
}

// long is a stack of names as long as the kernel keeps them.
func long(m *fakeMaps, id uint64) {
	var frames []stack.RawPython
	for i := range uint64(128) {
		symbol := id<<8 | i
		m.symbols[symbol] = wireSymbol(fmt.Sprintf("%0128d", symbol), "/"+strings.Repeat("ä", 127))
		frames = append(frames, stack.RawPython{Symbol: symbol, Line: 1 << 30})
	}
	m.stacks[id] = wireStack(stack.HasPython, nil, frames)
}

func TestTextsAreBounded(t *testing.T) {
	m := &fakeMaps{stacks: map[uint64][]byte{}, symbols: map[uint64][]byte{}}
	long(m, 1)
	text := New(m).Stack(1)
	require.LessOrEqual(t, len(text.Frame), maxFrame)
	require.LessOrEqual(t, len(text.Frames), maxFrames)
	require.Greater(t, len(text.Frames), maxFrames*9/10)
	require.True(t, strings.HasSuffix(text.Frames, separator+stack.Truncated))
	require.True(t, utf8.ValidString(text.Frame+text.Frames))
}

func TestCachesAreBounded(t *testing.T) {
	m := &fakeMaps{stacks: map[uint64][]byte{}, symbols: map[uint64][]byte{}}
	n := New(m)
	for id := range uint64(600) {
		long(m, id+1)
		n.Stack(id + 1)
	}
	for _, c := range []struct{ bytes, limit int }{{sizeOf(n.texts), textBytes}, {sizeOf(n.labels), labelBytes}} {
		require.LessOrEqual(t, c.bytes, c.limit)
		require.Greater(t, c.bytes, c.limit-2*maxFrames)
	}
}

func sizeOf[K comparable, V any](c *cache[K, V]) (bytes int) {
	for _, e := range c.entries {
		bytes += e.size
	}
	return bytes
}

// A table is read in the same order again and again; one that does not fit is
// still mostly remembered.
func TestCacheServesATableThatDoesNotFit(t *testing.T) {
	c := newCache[int, string](1000 * (entryBytes + 10))
	hits := 0
	for range 10 {
		for row := range 1200 {
			if _, ok := c.get(row); ok {
				hits++
			} else {
				c.put(row, "", 10)
			}
		}
	}
	require.Greater(t, hits, 10*1200/2)
}

// Too low, and a module runs out of memory; far too high, and it collects all the
// time.
func TestGarbageIsNotUnderestimated(t *testing.T) {
	short := &fakeMaps{stacks: map[uint64][]byte{}, symbols: map[uint64][]byte{}}
	hostile := &fakeMaps{stacks: map[uint64][]byte{}, symbols: map[uint64][]byte{}}
	for id := range uint64(200) {
		long(hostile, id+1)
		var frames []stack.RawPython
		for i := range id % 30 {
			short.symbols[id<<8|i] = wireSymbol(fmt.Sprintf("Layer%d.forward", id), "/app/model.py")
			frames = append(frames, stack.RawPython{Symbol: id<<8 | i, Line: 3})
		}
		short.stacks[id+1] = wireStack(stack.HasPython, []uint64{1, 2}, frames)
	}
	for name, m := range map[string]*fakeMaps{"short": short, "long": hostile} {
		n := New(m)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		for id := range uint64(200) {
			n.Stack(id + 1)
		}
		runtime.ReadMemStats(&after)
		allocated := int(after.TotalAlloc - before.TotalAlloc)
		t.Logf("%s: %d bytes, estimated %d", name, allocated, n.Garbage)
		require.GreaterOrEqual(t, n.Garbage, allocated, name)
		require.Less(t, n.Garbage, 4*allocated, name)
	}
}

func TestNamesOfAPacketFitIntoIt(t *testing.T) {
	frames := make(stack.Stack, 300)
	for i := range frames {
		frames[i].Function = "function (file.py:1)"
	}
	text := textOf(frames, strings.Repeat("f", maxFrame))
	for _, rows := range []int{1, 10, 200, 1000, 5000, 8192, 16384} {
		b, used := NewBudget(rows), 0
		for range rows {
			used += b.Fit(text).rowBytes()
		}
		require.LessOrEqual(t, used, max(packetBytes-rows*rowBytes, 0), rows)
		if rows <= 200 {
			require.Equal(t, rows*text.rowBytes(), used, "there is room for all")
		}
	}
	// What short names leave is for others.
	b := NewBudget(6000)
	short := textOf(stack.Stack{{Function: "f"}}, "f")
	for range 5999 {
		require.Equal(t, short, b.Fit(short))
	}
	require.Equal(t, text, b.Fit(text))
}

// Whatever the maps hold, there is text, and no panic: a panic ends the module.
func FuzzStack(f *testing.F) {
	f.Add(wireStack(stack.HasPython, []uint64{1}, []stack.RawPython{{Symbol: 1, Line: 2}}), wireSymbol("f", "x.py"), 20)
	f.Fuzz(func(t *testing.T, rawStack, rawSymbol []byte, room int) {
		n := New(&fakeMaps{stacks: map[uint64][]byte{1: rawStack}, symbols: map[uint64][]byte{1: rawSymbol}})
		text := n.Stack(1)
		require.NotEmpty(t, text.Frame)
		require.Len(t, text.AppendStack(nil), len(text.Frames))
		b := Budget{bytes: room, rows: 1}
		fit := b.Fit(text)
		require.LessOrEqual(t, fit.rowBytes(), max(room, 0))
	})
}

func BenchmarkNewStack(b *testing.B) {
	m := &fakeMaps{stacks: map[uint64][]byte{}, symbols: map[uint64][]byte{}}
	long(m, 1)
	for b.Loop() {
		New(m).Stack(1)
	}
}
