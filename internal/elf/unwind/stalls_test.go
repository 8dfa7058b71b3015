// SPDX-License-Identifier: Apache-2.0

package unwind

import (
	"bytes"
	"errors"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

var errStalled = errors.New("its server does not answer")

// stalling fails one of its reads.
type stalling struct {
	*bytes.Reader
	reads, fails int
}

func (s *stalling) ReadAt(b []byte, at int64) (int, error) {
	s.reads++
	if s.reads == s.fails {
		return 0, errStalled
	}
	return s.Reader.ReadAt(b, at)
}

// TestAReadThatFailsIsNoRule: whichever read of a file of a network it is, it is an error, and the next call has all rules.
func TestAReadThatFailsIsNoRule(t *testing.T) {
	for name, path := range map[string]string{"with a table": libraries(t)[0], "without a table": compiled(t, "-O2", "-static")} {
		t.Run(name, func(t *testing.T) {
			b, err := os.ReadFile(path)
			require.NoError(t, err)
			whole := &stalling{Reader: bytes.NewReader(b)}
			f, err := Open(whole, int64(len(b)))
			require.NoError(t, err)
			toOpen := whole.reads
			for n := 1; n <= toOpen; n++ {
				_, err := Open(&stalling{Reader: bytes.NewReader(b), fails: n}, int64(len(b)))
				require.ErrorIs(t, err, errStalled, "read %d of %d", n, toOpen)
				for _, other := range []error{ErrNotELF, ErrNoRules, ErrMalformed} {
					require.NotErrorIs(t, err, other)
				}
			}
			stalled := 0
			for at := uint64(0); at < min(uint64(len(b)), 1<<18); at += pageBytes {
				want, err := f.Rows(at, at+pageBytes)
				require.NoError(t, err)
				for n := 1; ; n++ {
					r := &stalling{Reader: bytes.NewReader(b)}
					cold, err := Open(r, int64(len(b)))
					require.NoError(t, err)
					r.fails = r.reads + n
					rows, err := cold.Rows(at, at+pageBytes)
					if err == nil {
						require.Less(t, r.reads, r.fails, "page %#x, read %d", at, n)
						require.Equal(t, want, rows)
						break
					}
					require.ErrorIs(t, err, errStalled)
					stalled++
					rows, err = cold.Rows(at, at+pageBytes)
					require.NoError(t, err)
					require.Equal(t, want, rows, "page %#x after read %d", at, n)
				}
			}
			require.NotZero(t, stalled)
		})
	}
}
