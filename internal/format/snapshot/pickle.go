// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"bufio"
	"encoding/binary"
	"io"
	"strings"
)

// Opcodes of pickle's protocol 2 (CPython, Lib/pickletools.py) that the viewer's reader
// (torch/utils/viz/MemoryViz.js, unpickle) knows, too.
const (
	opProto      = 0x80
	opStop       = '.'
	opMark       = '('
	opEmptyDict  = '}'
	opSetItems   = 'u'
	opEmptyList  = ']'
	opAppends    = 'e'
	opBinInt     = 'J' // 4 bytes, signed
	opBinInt1    = 'K'
	opLong1      = 0x8a // a length, then two's complement
	opTrue       = 0x88
	opFalse      = 0x89
	opUnicode    = 'X' // 4 bytes of length, then UTF-8
	opBinPut     = 'q'
	opLongBinPut = 'r'
	opBinGet     = 'h'
	opLongBinGet = 'j'

	protocol = 2
	// batch is how many elements are appended at once, as CPython does: the viewer passes
	// them as arguments of a call, of which there is a most.
	batch = 1000
)

// pickler writes Python's dicts, lists, texts and numbers. What repeats is written once and
// referred to. The first error stays.
type pickler struct {
	to   *bufio.Writer
	memo map[any]int
}

func newPickler(to io.Writer) *pickler {
	p := &pickler{to: bufio.NewWriterSize(to, 1<<16), memo: map[any]int{}}
	p.op(opProto, protocol)
	return p
}

func (p *pickler) end() error {
	p.op(opStop)
	return p.to.Flush()
}

// op writes; bufio keeps the error until Flush.
func (p *pickler) op(bytes ...byte) { _, _ = p.to.Write(bytes) }

func (p *pickler) op4(opcode byte, n uint32) {
	p.op(append([]byte{opcode}, binary.LittleEndian.AppendUint32(nil, n)...)...)
}

func (p *pickler) number(n uint64) {
	switch {
	case n < 1<<8:
		p.op(opBinInt1, byte(n))
	case n < 1<<31:
		p.op4(opBinInt, uint32(n))
	default:
		// A ninth byte keeps the largest from being negative, but the viewer reads no more
		// than 8 as a number.
		long := binary.LittleEndian.AppendUint64(nil, n)
		if n >= 1<<63 {
			long = append(long, 0)
		}
		p.op(append([]byte{opLong1, byte(len(long))}, long...)...)
	}
}

func (p *pickler) bool(is bool) {
	if is {
		p.op(opTrue)
	} else {
		p.op(opFalse)
	}
}

// once writes what has this key the first time and refers to it from then on.
func (p *pickler) once(key any, write func()) {
	if at, ok := p.memo[key]; ok {
		if at < 1<<8 {
			p.op(opBinGet, byte(at))
		} else {
			p.op4(opLongBinGet, uint32(at))
		}
		return
	}
	write()
	at := len(p.memo)
	p.memo[key] = at
	if at < 1<<8 {
		p.op(opBinPut, byte(at))
	} else {
		p.op4(opLongBinPut, uint32(at))
	}
}

// text writes a name of the traced program as UTF-8, which it need not be.
func (p *pickler) text(s string) {
	p.once(s, func() {
		s := strings.ToValidUTF8(s, "\uFFFD")
		p.op4(opUnicode, uint32(len(s)))
		p.op([]byte(s)...)
	})
}

// item is a key of a dict and what writes its value.
type item struct {
	key   string
	write func()
}

func (p *pickler) dict(items ...item) {
	p.op(opEmptyDict, opMark)
	for _, i := range items {
		p.text(i.key)
		i.write()
	}
	p.op(opSetItems)
}

func (p *pickler) list(length int, write func(n int)) {
	p.op(opEmptyList)
	for n := range length {
		if n%batch == 0 {
			p.op(opMark)
		}
		write(n)
		if n%batch == batch-1 || n == length-1 {
			p.op(opAppends)
		}
	}
}

// Values of items.

func (p *pickler) num(key string, n uint64) item { return item{key, func() { p.number(n) }} }
func (p *pickler) str(key, s string) item        { return item{key, func() { p.text(s) }} }
func (p *pickler) is(key string, is bool) item   { return item{key, func() { p.bool(is) }} }
