// SPDX-License-Identifier: Apache-2.0

package procmaps

import (
	"cmp"
	"errors"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// maxInterrupted is how often a request is made that is interrupted: by Go's own signals, or by the answer of a server of FUSE,
// which may be that each time.
const maxInterrupted = 16

// Again makes a request until it is not interrupted. Go's own files ask for ever.
func Again(request func() (int, error)) (n int, err error) {
	for range maxInterrupted {
		if n, err = request(); !errors.Is(err, unix.EINTR) {
			break
		}
	}
	return n, err
}

// untrusted reads a file whose server may be hostile.
type untrusted struct{ *os.File }

// ReadAt is that of io.ReaderAt; a server that gives few bytes at once has answerLimit, too.
func (f untrusted) ReadAt(b []byte, at int64) (n int, err error) {
	conn, err := f.SyscallConn()
	if err != nil {
		return 0, err
	}
	for began := time.Now(); n < len(b); {
		var m int
		closed := conn.Control(func(fd uintptr) {
			m, err = Again(func() (int, error) { return unix.Pread(int(fd), b[n:], at+int64(n)) })
		})
		switch err = cmp.Or(closed, err); {
		case err != nil:
			return n, &os.PathError{Op: "read", Path: f.Name(), Err: err}
		case m == 0:
			return n, io.EOF
		case time.Since(began) > answerLimit:
			return n, ErrHangs
		}
		n += m
	}
	return n, nil
}
