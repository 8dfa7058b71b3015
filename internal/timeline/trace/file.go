// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"errors"
	"fmt"
	"hash/crc32"
	"os"

	"github.com/klauspost/compress/flate"

	sinkfile "github.com/gpu-gadgets/gpu-gadgets/internal/format/file"
)

// blockBytes is how much text is compressed and written at once.
const blockBytes = 256 << 10

// file is a gzip file that is complete at any time.
//
// Viewers refuse a truncated gzip stream, and some read only the first of several streams
// in a file. So it is one stream, and each block is written together with an end: a last
// deflate block with the closing text, and the checksum. The next block overwrites that
// end. After a kill, or on a full disk, the file opens with everything up to the previous
// block.
//
// The kernel interrupts a write of more than a page if the process is killed. So the part
// after the old end is written first, then its replacement of a few hundred bytes. A kill
// between the two, in a few microseconds of each block, leaves a complete stream,
// followed by bytes that gzip -d ignores with a warning.
//
// A pipe or a device cannot be overwritten: its end is written when it is closed.
type file struct {
	to       *os.File
	seekable bool

	deflate *flate.Writer
	block   []byte // compressed, not written yet
	crc     uint32 // of all text written, without the closing text
	size    uint32 // modulo 2^32, as gzip counts
	at      int64  // offset of the next block: after all blocks, over the end
	end     []byte // bytes after the blocks
	failed  error  // the first error: nothing is written after it
}

// header is gzip's (RFC 1952): deflate, no name, no time, unknown system.
var header = []byte{0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255}

// create creates the file; an existing one is replaced.
func create(path string) (*file, error) {
	to, err := sinkfile.Create(path)
	if err != nil {
		return nil, err
	}
	info, err := to.Stat()
	if err != nil {
		return nil, errors.Join(err, to.Close())
	}
	f := &file{to: to, seekable: info.Mode().IsRegular(), block: append([]byte(nil), header...)}
	if f.deflate, err = flate.NewWriter(appender{&f.block}, flate.BestSpeed); err != nil {
		return nil, errors.Join(err, to.Close())
	}
	return f, nil
}

type appender struct{ to *[]byte }

func (a appender) Write(b []byte) (int, error) {
	*a.to = append(*a.to, b...)
	return len(b), nil
}

// add compresses text and writes it, with an end that has the closing text.
func (f *file) add(text, closing []byte) error {
	if f.failed != nil {
		return f.failed
	}
	if _, err := f.deflate.Write(text); err != nil {
		return f.fail(err)
	}
	// A flush ends at a byte, so that the end can follow.
	if err := f.deflate.Flush(); err != nil {
		return f.fail(err)
	}
	f.crc = crc32.Update(f.crc, crc32.IEEETable, text)
	f.size += uint32(len(text))
	if !f.seekable {
		_, err := f.to.Write(f.block)
		f.block = f.block[:0]
		return f.fail(err)
	}
	blocks := len(f.block)
	end := f.ending(closing)
	f.block = append(f.block, end...)
	over := min(len(f.end), len(f.block))
	_, err := f.to.WriteAt(f.block[over:], f.at+int64(over))
	if err == nil {
		_, err = f.to.WriteAt(f.block[:over], f.at)
	}
	if err != nil {
		_ = f.fail(err)
		f.restore()
		return f.failed
	}
	f.at += int64(blocks)
	f.block, f.end = f.block[:0], end
	return nil
}

// restore rewrites the end of the previous blocks where a failed write left part of a new
// block. The space exists, because the end was in the file before.
func (f *file) restore() {
	if f.end == nil {
		return // nothing was written: there is nothing to open
	}
	_, err := f.to.WriteAt(f.end, f.at)
	if err == nil {
		err = f.to.Truncate(f.at + int64(len(f.end)))
	}
	if err != nil {
		f.failed = errors.Join(f.failed, fmt.Errorf("the file does not end as it should: %w", err))
	}
}

// ending is the last block of the stream, stored as it is, and gzip's trailer.
func (f *file) ending(closing []byte) []byte {
	n := uint16(len(closing))
	end := []byte{1, byte(n), byte(n >> 8), byte(^n), byte(^n >> 8)}
	end = append(end, closing...)
	crc, size := crc32.Update(f.crc, crc32.IEEETable, closing), f.size+uint32(n)
	return append(end, byte(crc), byte(crc>>8), byte(crc>>16), byte(crc>>24),
		byte(size), byte(size>>8), byte(size>>16), byte(size>>24))
}

// fail keeps the first error, with advice for the user.
func (f *file) fail(err error) error {
	if err == nil || f.failed != nil {
		return f.failed
	}
	err = sinkfile.Explain(f.to.Name(), err)
	f.failed = err
	return err
}

// close ends the file with the closing text.
func (f *file) close(closing []byte) error {
	err := f.add(nil, closing)
	if err == nil && !f.seekable {
		_, err = f.to.Write(f.ending(closing))
		err = f.fail(err)
	}
	return errors.Join(err, f.to.Close())
}
