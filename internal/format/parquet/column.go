// SPDX-License-Identifier: Apache-2.0

package parquet

import (
	"encoding/binary"

	"github.com/klauspost/compress/zstd"
)

// Kind of a column's values.
type Kind uint8

const (
	Int32  Kind = iota
	Int64       // signed
	Uint64      // ids and handles
	Time        // nanoseconds since 1970, UTC
	Text        // UTF-8
)

// Of parquet.thrift: Type, ConvertedType.
const (
	physicalInt32 = 1
	physicalInt64 = 2
	physicalBytes = 6

	convertedUTF8   = 0
	convertedUint64 = 14
)

// Column of a file. Every value may be missing.
type Column struct {
	name string
	kind Kind

	rows   int    // so far, in this row group
	levels []byte // a bit for each row: it has a value
	values []byte // plain
	page   []byte // scratch, as body
	body   []byte
}

func (c *Column) physical() int32 {
	switch c.kind {
	case Int32:
		return physicalInt32
	case Text:
		return physicalBytes
	default:
		return physicalInt64
	}
}

// present notes whether the next row has a value.
func (c *Column) present(is bool) {
	if c.rows%8 == 0 {
		c.levels = append(c.levels, 0)
	}
	if is {
		c.levels[c.rows/8] |= 1 << (c.rows % 8)
	}
	c.rows++
}

// Int sets the value in the row that is being made, of any kind but Text.
func (c *Column) Int(n int64) {
	c.present(true)
	if c.kind == Int32 {
		c.values = binary.LittleEndian.AppendUint32(c.values, uint32(n))
	} else {
		c.values = binary.LittleEndian.AppendUint64(c.values, uint64(n))
	}
}

// Text sets the value in the row that is being made.
func (c *Column) Text(s string) {
	c.present(true)
	c.values = binary.LittleEndian.AppendUint32(c.values, uint32(len(s)))
	c.values = append(c.values, s...)
}

// fill leaves the rows up to a number without values.
func (c *Column) fill(rows int) {
	for c.rows < rows {
		c.present(false)
	}
}

// chunk is where a column of a row group is in the file.
type chunk struct {
	at                int64
	values            int
	plain, compressed int // bytes, with the page's header
}

// write appends the column's values as one page, and begins again.
func (c *Column) write(to []byte, at int64, z *zstd.Encoder) ([]byte, chunk) {
	// Levels: their length, then one run that is bit-packed.
	groups := binary.AppendUvarint(nil, uint64(len(c.levels))<<1|1)
	c.page = binary.LittleEndian.AppendUint32(c.page[:0], uint32(len(groups)+len(c.levels)))
	c.page = append(append(append(c.page, groups...), c.levels...), c.values...)
	c.body = z.EncodeAll(c.page, c.body[:0])

	var t thrift
	t.begin() // PageHeader
	t.i32(1, 0)
	t.i32(2, int32(len(c.page)))
	t.i32(3, int32(len(c.body)))
	t.structure(5, func() { // DataPageHeader: PLAIN, levels RLE
		t.i32(1, int32(c.rows))
		t.i32(2, 0)
		t.i32(3, 3)
		t.i32(4, 3)
	})
	t.end()
	out := chunk{at, c.rows, len(t.b) + len(c.page), len(t.b) + len(c.body)}
	c.rows, c.levels, c.values = 0, c.levels[:0], c.values[:0]
	return append(append(to, t.b...), c.body...), out
}

// schema is the column's SchemaElement.
func (c *Column) schema(t *thrift) {
	t.begin()
	t.i32(1, c.physical())
	t.i32(3, 1) // OPTIONAL
	t.text(4, c.name)
	switch c.kind {
	case Text:
		t.i32(6, convertedUTF8)
		t.structure(10, func() { t.structure(1, func() {}) })
	case Uint64:
		t.i32(6, convertedUint64)
		t.structure(10, func() {
			t.structure(10, func() {
				t.i8(1, 64)
				t.bool(2, false)
			})
		})
	case Time:
		t.structure(10, func() {
			t.structure(8, func() {
				t.bool(1, true)                                      // UTC
				t.structure(2, func() { t.structure(3, func() {}) }) // nanoseconds
			})
		})
	}
	t.end()
}

// metadata is the ColumnChunk.
func (c *Column) metadata(t *thrift, at chunk) {
	t.begin()
	t.i64(2, at.at)
	t.structure(3, func() {
		t.i32(1, c.physical())
		t.list(2, thriftI32, 2)
		t.varint(0) // PLAIN
		t.varint(3) // RLE
		t.list(3, thriftBinary, 1)
		t.bytes(c.name)
		t.i32(4, codecZstd)
		t.i64(5, int64(at.values))
		t.i64(6, int64(at.plain))
		t.i64(7, int64(at.compressed))
		t.i64(9, at.at)
	})
	t.end()
}

const codecZstd = 6
