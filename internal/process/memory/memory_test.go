// SPDX-License-Identifier: Apache-2.0

package memory

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/gpu-gadgets/gpu-gadgets/internal/process/procmaps"
	"github.com/gpu-gadgets/gpu-gadgets/test/support/simulated/hangfs"
)

// A process keeps a page on a file system of its own. Who reads the page would wait as long as its server likes.
func TestAPageThatNeverComesDoesNotBlock(t *testing.T) {
	dir := t.TempDir()
	end := hangfs.Mount(t, dir)
	pid, line := python(t, "-c", `
import ctypes, mmap, sys
file = open(sys.argv[1], "rb")
page = mmap.mmap(file.fileno(), 4096, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_WRITE)
fine = ctypes.create_string_buffer(b"fine")
print(ctypes.addressof(ctypes.c_char.from_buffer(page)), ctypes.addressof(fine), flush=True)
sys.stdin.read()`, filepath.Join(dir, "page"))
	var address [2]int64
	for n, word := range strings.Fields(line) {
		at, err := strconv.ParseInt(word, 10, 64)
		require.NoError(t, err)
		address[n] = at
	}

	r, err := Open("/proc", pid)
	require.NoError(t, err)
	b := make([]byte, 4)
	n, err := r.ReadAt(b, address[1])
	require.NoError(t, err)
	require.Equal(t, "fine", string(b[:n]))
	_, err = r.ReadAt(b, 0)
	require.ErrorIs(t, err, unix.EIO, "nothing is there")

	began := time.Now()
	const often = 40 // so that a busy machine makes no difference
	for range often {
		_, err = r.ReadAt(b, address[0])
		require.ErrorIs(t, err, procmaps.ErrHangs)
	}
	require.Less(t, time.Since(began), often*100*time.Millisecond, "it is not waited for again")
	own, err := Open("/proc", uint32(os.Getpid()))
	require.NoError(t, err, "other processes are read")
	require.NoError(t, own.Close())

	end()
	require.Eventually(t, func() bool {
		_, err = r.ReadAt(b, address[1])
		return err == nil
	}, 10*time.Second, 10*time.Millisecond, "once the read has failed, the process is read again")
	require.NoError(t, r.Close())
}
