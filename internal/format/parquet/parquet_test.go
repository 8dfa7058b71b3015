// SPDX-License-Identifier: Apache-2.0

package parquet

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	reader "github.com/parquet-go/parquet-go"
	"github.com/stretchr/testify/require"
)

// rows reads a file by a library that knows all of Parquet.
func rows(t *testing.T, path string) (*reader.File, []map[string]any) {
	t.Helper()
	b, err := os.ReadFile(path)
	require.NoError(t, err)
	f, err := reader.OpenFile(bytes.NewReader(b), int64(len(b)))
	require.NoError(t, err)
	var out []map[string]any
	schema := f.Schema()
	for _, g := range f.RowGroups() {
		r := g.Rows()
		for {
			some := make([]reader.Row, 100)
			n, err := r.ReadRows(some)
			for _, row := range some[:n] {
				one := map[string]any{}
				row.Range(func(column int, values []reader.Value) bool {
					if v := values[0]; !v.IsNull() {
						one[schema.Columns()[column][0]] = plain(v)
					}
					return true
				})
				out = append(out, one)
			}
			if errors.Is(err, io.EOF) {
				break
			}
			require.NoError(t, err)
		}
		require.NoError(t, r.Close())
	}
	require.EqualValues(t, len(out), f.NumRows())
	return f, out
}

func plain(v reader.Value) any {
	switch v.Kind() {
	case reader.Int32:
		return int64(v.Int32())
	case reader.Int64:
		return v.Int64()
	default:
		return string(v.ByteArray())
	}
}

// TestWhatIsWrittenIsRead: random rows with random gaps, over several groups, equal what a
// library reads; and at every flush the file is whole.
func TestWhatIsWrittenIsRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "t.parquet")
	w, err := Create(path, map[string]string{"clock": "CLOCK_BOOTTIME", "a": "b"})
	require.NoError(t, err)
	kinds := []Kind{Int32, Int64, Uint64, Time, Text}
	var columns []*Column
	for n := range 20 { // more than 14: another form of a list's length
		columns = append(columns, w.Column(fmt.Sprint("c", n), kinds[n%len(kinds)]))
	}
	require.NoError(t, w.Flush())
	f, none := rows(t, path)
	require.Empty(t, none)
	require.Len(t, f.Schema().Columns(), 20)

	rng := rand.New(rand.NewPCG(1, 2))
	var want []map[string]any
	for n := range 3000 {
		row := map[string]any{}
		for i, c := range columns {
			switch {
			case i == 19 || rng.IntN(3) == 0: // the last has none in any row
			case c.kind == Text:
				s := strings.Repeat("ü", rng.IntN(40))
				c.Text(s)
				row[c.name] = s
			case c.kind == Int32:
				v := int64(int32(rng.Uint32()))
				c.Int(v)
				row[c.name] = v
			default:
				v := int64(rng.Uint64())
				c.Int(v)
				row[c.name] = v
			}
		}
		w.EndRow()
		want = append(want, row)
		if n == 0 || n == 1000 || n == 1007 {
			require.NoError(t, w.Flush())
			_, got := rows(t, path)
			require.Equal(t, want, got)
		}
	}
	require.NoError(t, w.Close())
	f, got := rows(t, path)
	require.Equal(t, want, got)
	require.Len(t, f.RowGroups(), 4)
	require.EqualValues(t, 3000, w.Rows())
	clock, _ := f.Lookup("clock")
	require.Equal(t, "CLOCK_BOOTTIME", clock)
	fields := f.Schema().Fields()
	for n, want := range []string{"INT32", "INT64", "INT(64,false)", "TIMESTAMP(isAdjustedToUTC=true,unit=NANOS)", "STRING"} {
		require.Equal(t, want, fields[n].Type().String())
		require.True(t, fields[n].Optional())
	}
}

// TestGroupsAreBounded: many rows do not stay in memory.
func TestGroupsAreBounded(t *testing.T) {
	w, err := Create(filepath.Join(t.TempDir(), "t.parquet"), nil)
	require.NoError(t, err)
	a, b := w.Column("a", Int64), w.Column("b", Text)
	for range groupRows + 1 {
		a.Int(1)
		w.EndRow()
	}
	require.EqualValues(t, groupRows, w.Rows())
	large := strings.Repeat("x", 1<<20)
	for range groupBytes >> 20 {
		b.Text(large)
		w.EndRow()
	}
	require.Greater(t, w.Rows(), uint64(groupRows))
	require.NoError(t, w.Close())
	_, got := rows(t, w.to.Name())
	require.Len(t, got, groupRows+1+groupBytes>>20)
}

// TestFullDisk: what was written before is read, and the rest is counted.
func TestFullDisk(t *testing.T) {
	path := filepath.Join(t.TempDir(), "t.parquet")
	w, err := Create(path, nil)
	require.NoError(t, err)
	a := w.Column("a", Int64)
	for n := range 10 {
		a.Int(int64(n))
		w.EndRow()
	}
	require.NoError(t, w.Flush())
	size := w.at + int64(len(w.footer))
	// As a failed write leaves it: some bytes of the next group over the footer.
	_, err = w.to.WriteAt(bytes.Repeat([]byte{1}, len(w.footer)+20), w.at)
	require.NoError(t, err)
	w.restore()
	info, err := os.Stat(path)
	require.NoError(t, err)
	require.Equal(t, size, info.Size())
	_, got := rows(t, path)
	require.Len(t, got, 10)

	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	require.NoError(t, err)
	real := w.to
	w.to = full
	a.Int(1)
	w.EndRow()
	require.ErrorContains(t, w.Flush(), "no space left")
	w.to = real
	a.Int(2)
	w.EndRow()
	require.ErrorContains(t, w.Close(), "2 rows are not in it")
	_, got = rows(t, path)
	require.Len(t, got, 10)
}

func TestAPipeIsRefused(t *testing.T) {
	_, err := Create("/dev/null", nil)
	require.ErrorContains(t, err, "not a regular file")
}
