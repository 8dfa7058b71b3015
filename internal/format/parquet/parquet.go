// SPDX-License-Identifier: Apache-2.0

// Package parquet writes a flat table as an Apache Parquet file, which pandas, DuckDB,
// Spark and the like read. All columns may be without values; values are PLAIN, pages compressed
// by zstd. The library that does all of Parquet (github.com/parquet-go/parquet-go) would add
// 6.2 MB to ig-gpu; the tests read with it what is written here.
//
// A Parquet file ends with a footer that says where everything is. So that a run that is
// killed leaves a file that opens, each row group is written together with a footer, and
// the next one over that footer: what is missing then are the rows since the newest group.
//
// Format: https://github.com/apache/parquet-format, parquet.thrift of 2.9.
package parquet

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/klauspost/compress/zstd"

	"github.com/gpu-gadgets/gpu-gadgets/internal/format/file"
)

const (
	magic = "PAR1"
	// groupRows is how many rows a group has at most, and groupBytes how many bytes
	// before compression: what is held in memory.
	groupRows  = 65536
	groupBytes = 16 << 20
)

// Writer writes a file. It is for one goroutine.
type Writer struct {
	to      *os.File
	zstd    *zstd.Encoder
	columns []*Column
	meta    [][2]string

	rows          int // in this group
	groups        []group
	block         []byte // scratch
	at            int64  // where the next group goes: over the footer
	footer        []byte // what is there now
	failed        error  // the first error: nothing is written after it
	written, lost uint64 // rows
}

type group struct {
	rows   int
	bytes  int // before compression
	chunks []chunk
}

// Create begins a file; meta are texts about it, by name. An error means that it cannot be
// written.
func Create(path string, meta map[string]string) (*Writer, error) {
	to, err := file.Create(path)
	if err != nil {
		return nil, err
	}
	w := &Writer{to: to, at: int64(len(magic))}
	info, err := to.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s is not a regular file, which Parquet needs: write JSON lines there", path)
	}
	if err == nil {
		w.zstd, err = zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithEncoderLevel(zstd.SpeedFastest))
	}
	if err != nil {
		return nil, errors.Join(err, to.Close())
	}
	for name, text := range meta {
		w.meta = append(w.meta, [2]string{name, text})
	}
	slices.SortFunc(w.meta, func(a, b [2]string) int { return slices.Compare(a[:], b[:]) })
	return w, nil
}

// Column adds a column. All of them are added before the first row.
func (w *Writer) Column(name string, kind Kind) *Column {
	c := &Column{name: name, kind: kind}
	w.columns = append(w.columns, c)
	return c
}

// EndRow completes a row: columns that were not set have no value in it.
func (w *Writer) EndRow() {
	w.rows++
	size := 0
	for _, c := range w.columns {
		c.fill(w.rows)
		size += len(c.values)
	}
	if w.rows >= groupRows || size >= groupBytes {
		_ = w.Flush()
	}
}

// Rows is how many were written, Unwritten how many could not be.
func (w *Writer) Rows() uint64      { return w.written }
func (w *Writer) Unwritten() uint64 { return w.lost }

// Flush writes the rows so far as a group. After the first error it returns that for ever;
// the file then has what was written before.
func (w *Writer) Flush() error {
	if w.rows == 0 && w.footer != nil {
		return w.failed
	}
	g, at := group{rows: w.rows}, w.at
	w.block = w.block[:0]
	if len(w.groups) == 0 {
		w.block, at = append(w.block, magic...), 0
	}
	begin := len(w.block)
	if w.rows > 0 {
		for _, c := range w.columns {
			var k chunk
			w.block, k = c.write(w.block, w.at+int64(len(w.block)-begin), w.zstd)
			g.chunks, g.bytes = append(g.chunks, k), g.bytes+k.plain
		}
	}
	w.rows = 0
	if w.failed != nil {
		w.lost += uint64(g.rows)
		return w.failed
	}
	length := len(w.block) - begin
	all := w.groups
	if g.rows > 0 {
		all = append(all, g)
	}
	footer := w.end(all)
	w.block = append(w.block, footer...)
	if _, err := w.to.WriteAt(w.block, at); err != nil {
		w.failed = file.Explain(w.to.Name(), err)
		w.lost += uint64(g.rows)
		w.restore()
		return w.failed
	}
	w.groups, w.footer = all, footer
	w.at += int64(length)
	w.written += uint64(g.rows)
	return nil
}

// restore puts the footer back where a failed write left half of a group. Its room is
// there: it was in the file.
func (w *Writer) restore() {
	if w.footer == nil {
		return
	}
	_, err := w.to.WriteAt(w.footer, w.at)
	if err == nil {
		err = w.to.Truncate(w.at + int64(len(w.footer)))
	}
	if err != nil {
		w.failed = errors.Join(w.failed, fmt.Errorf("the file does not end as it should: %w", err))
	}
}

// end is the footer of a file with these groups: FileMetaData, its length, the magic.
func (w *Writer) end(groups []group) []byte {
	var t thrift
	var rows int64
	for _, g := range groups {
		rows += int64(g.rows)
	}
	t.begin()
	t.i32(1, 2)
	t.list(2, thriftStruct, 1+len(w.columns))
	t.begin() // the root
	t.text(4, "schema")
	t.i32(5, int32(len(w.columns)))
	t.end()
	for _, c := range w.columns {
		c.schema(&t)
	}
	t.i64(3, rows)
	t.list(4, thriftStruct, len(groups))
	for _, g := range groups {
		t.begin()
		t.list(1, thriftStruct, len(g.chunks))
		for n, c := range w.columns {
			c.metadata(&t, g.chunks[n])
		}
		t.i64(2, int64(g.bytes))
		t.i64(3, int64(g.rows))
		t.end()
	}
	if len(w.meta) > 0 {
		t.list(5, thriftStruct, len(w.meta))
		for _, pair := range w.meta {
			t.begin()
			t.text(1, pair[0])
			t.text(2, pair[1])
			t.end()
		}
	}
	t.text(6, "gpu-gadgets")
	t.end()
	b := binary.LittleEndian.AppendUint32(t.b, uint32(len(t.b)))
	return append(b, magic...)
}

// Close ends the file.
func (w *Writer) Close() error {
	err := errors.Join(w.Flush(), w.zstd.Close(), w.to.Close())
	if w.lost > 0 {
		err = errors.Join(err, fmt.Errorf("%d rows are not in it", w.lost))
	}
	return err
}
