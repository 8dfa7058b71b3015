// SPDX-License-Identifier: Apache-2.0

package parquet

import "encoding/binary"

// thrift appends Thrift's compact protocol, as far as Parquet's metadata needs it: structs
// whose fields come in the order of their numbers.
// (https://github.com/apache/thrift/blob/master/doc/specs/thrift-compact-protocol.md)
type thrift struct {
	b    []byte
	last []int16 // number of the newest field of each open struct
}

const (
	thriftTrue   = 1
	thriftFalse  = 2
	thriftByte   = 3
	thriftI32    = 5
	thriftI64    = 6
	thriftBinary = 8
	thriftList   = 9
	thriftStruct = 12
)

// field begins field number id of the open struct.
func (t *thrift) field(id int16, kind byte) {
	last := &t.last[len(t.last)-1]
	t.b = append(t.b, byte(id-*last)<<4|kind) // all of Parquet's are within 15 of each other
	*last = id
}

func (t *thrift) varint(n int64) { t.b = binary.AppendVarint(t.b, n) } // Go's is zigzag, too

func (t *thrift) begin() { t.last = append(t.last, 0) }
func (t *thrift) end() {
	t.b, t.last = append(t.b, 0), t.last[:len(t.last)-1]
}

func (t *thrift) i32(id int16, n int32) {
	t.field(id, thriftI32)
	t.varint(int64(n))
}

func (t *thrift) i64(id int16, n int64) {
	t.field(id, thriftI64)
	t.varint(n)
}

func (t *thrift) i8(id int16, n int8) {
	t.field(id, thriftByte)
	t.b = append(t.b, byte(n))
}

func (t *thrift) bool(id int16, is bool) {
	if is {
		t.field(id, thriftTrue)
	} else {
		t.field(id, thriftFalse)
	}
}

func (t *thrift) bytes(s string) {
	t.b = binary.AppendUvarint(t.b, uint64(len(s)))
	t.b = append(t.b, s...)
}

func (t *thrift) text(id int16, s string) {
	t.field(id, thriftBinary)
	t.bytes(s)
}

// structure is a field that is a struct.
func (t *thrift) structure(id int16, fill func()) {
	t.field(id, thriftStruct)
	t.begin()
	fill()
	t.end()
}

// list begins a field that is a list of n elements.
func (t *thrift) list(id int16, kind byte, n int) {
	t.field(id, thriftList)
	if n < 15 {
		t.b = append(t.b, byte(n)<<4|kind)
		return
	}
	t.b = append(t.b, 0xf0|kind)
	t.b = binary.AppendUvarint(t.b, uint64(n))
}
