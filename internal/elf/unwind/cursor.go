// SPDX-License-Identifier: Apache-2.0

package unwind

import (
	"bytes"
	"encoding/binary"
	"fmt"
)

// cursor reads from the front of b. After the first error it gives zeroes.
type cursor struct {
	b      []byte
	addr   uint64 // of b's first byte
	header uint64 // what addresses may be relative to
	err    error
}

func (c *cursor) fail() {
	if c.err == nil {
		c.err = fmt.Errorf("%w: an entry ends early, at %#x", ErrMalformed, c.addr)
	}
	c.b = nil
}

func (c *cursor) take(n uint64) []byte {
	if n > uint64(len(c.b)) {
		c.fail()
		return nil
	}
	b := c.b[:n]
	c.b, c.addr = c.b[n:], c.addr+n
	return b
}

func (c *cursor) skip(n uint64) { c.take(n) }

func (c *cursor) byte() byte {
	if b := c.take(1); b != nil {
		return b[0]
	}
	return 0
}

// number reads an unsigned integer of n bytes.
func (c *cursor) number(n uint64) uint64 {
	b := c.take(n)
	if b == nil {
		return 0
	}
	var v [8]byte
	copy(v[:], b)
	return binary.LittleEndian.Uint64(v[:])
}

// text reads up to the next NUL.
func (c *cursor) text() string {
	i := bytes.IndexByte(c.b, 0)
	if i < 0 {
		c.fail()
		return ""
	}
	s := string(c.take(uint64(i)))
	c.skip(1)
	return s
}

// uleb reads an unsigned number in LEB128; bits above 64 are lost.
func (c *cursor) uleb() uint64 {
	v, _ := c.leb()
	return v
}

// sleb reads a signed one.
func (c *cursor) sleb() int64 {
	v, bits := c.leb()
	if bits < 64 && v>>(bits-1)&1 != 0 {
		v |= ^uint64(0) << bits
	}
	return int64(v)
}

func (c *cursor) leb() (v uint64, bits uint) {
	for {
		b := c.byte()
		if bits < 64 {
			v |= uint64(b&0x7f) << bits
		}
		bits += 7
		if b&0x80 == 0 || c.err != nil {
			return v, bits
		}
	}
}

// pointer reads an address of an encoding.
func (c *cursor) pointer(encoding byte) uint64 {
	at := c.addr
	var v uint64
	switch encoding & encodingFormat {
	case encodingUnsigned2:
		v = c.number(2)
	case encodingUnsigned4:
		v = c.number(4)
	case encodingSigned2:
		v = uint64(int64(int16(c.number(2))))
	case encodingSigned4:
		v = uint64(int64(int32(c.number(4))))
	case 0, encodingUnsigned8, encodingSigned8:
		v = c.number(8)
	default:
		c.fail()
	}
	switch encoding & encodingApplication {
	case 0:
	case encodingPCRelative:
		v += at
	case encodingDataRelative:
		v += c.header
	default:
		c.fail()
	}
	if encoding&encodingIndirect != 0 {
		c.fail()
	}
	return v
}
