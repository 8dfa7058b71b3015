// SPDX-License-Identifier: Apache-2.0

// Package tables reads the output of `ig-gpu run -o json`, in which each row is a line, and
// the rows of one reading of a table have the same time. Tests check whole tables.
package tables

import (
	"bufio"
	"bytes"
	"io"
	"regexp"
)

// ofTable finds the type, if there is one, and the time of a row of a table.
var ofTable = regexp.MustCompile(`^\{("(?:type|source)":"[^"]*",)?"time":"[^"]*"`)

// Reader is the output with the rows of a reading as one line, an array; other lines are
// left as they are. A table is complete with the line after it, or at the end. Tables
// without rows are not in the output.
func Reader(from io.Reader) io.Reader {
	out, to := io.Pipe()
	go func() {
		lines := bufio.NewReaderSize(from, 1<<20)
		var table bytes.Buffer
		var key []byte
		var err error
		flush := func() {
			if table.Len() > 0 && err == nil {
				_, err = to.Write(append(table.Bytes(), ']', '\n'))
			}
			table.Reset()
		}
		for err == nil {
			line, end := lines.ReadBytes('\n')
			line = bytes.TrimRight(line, "\n")
			switch found := ofTable.Find(line); {
			case found == nil:
				flush()
				if len(line) > 0 && err == nil {
					_, err = to.Write(append(line, '\n'))
				}
			case table.Len() > 0 && bytes.Equal(found, key):
				table.WriteByte(',')
				table.Write(line)
			default:
				flush()
				key = bytes.Clone(found)
				table.WriteByte('[')
				table.Write(line)
			}
			if end != nil {
				flush()
				_ = to.CloseWithError(end)
				return
			}
		}
		_, _ = io.Copy(io.Discard, from) // the reader has ended; the writer must not wait
	}()
	return out
}
