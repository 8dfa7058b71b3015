// SPDX-License-Identifier: Apache-2.0

package unwinder

import (
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/internal/elf/unwind"
	"github.com/gpu-gadgets/gpu-gadgets/internal/process/procmaps"
)

// stalling is a file of a server that answers for now, or does not.
type stalling struct {
	*os.File
	stalls bool
}

func (s *stalling) ReadAt(b []byte, at int64) (int, error) {
	if s.stalls {
		return 0, fmt.Errorf("read: %w", procmaps.ErrHangs)
	}
	return s.File.ReadAt(b, at)
}

// A library of a network file system is slow at first: its pages are read again, and are not without rules for good.
func TestAPageThatCouldNotBeReadIsReadLater(t *testing.T) {
	u := newUnwinder(t, 1000)
	miss, m := missOf(t, sleeper(t, "sleep"), "/libc.so.6")
	u.handle([]Miss{miss})
	require.True(t, u.has(miss.Key))
	f, err := os.Open(m.Path)
	require.NoError(t, err)
	defer f.Close()
	server := &stalling{File: f}
	rules, err := unwind.Open(server, int64(miss.Key.Bytes))
	require.NoError(t, err)
	u.files.open[miss.Key.file()].rules = rules

	next := miss
	next.Key.Page += 100
	require.NoError(t, u.cfg.Asked.Put(next.Key, uint32(1)))
	server.stalls = true
	u.handle([]Miss{next})
	require.False(t, u.has(next.Key))
	require.EqualValues(t, 1, u.Stats().Failed)
	var one uint32
	require.NoError(t, u.cfg.Asked.Lookup(next.Key, &one), "not at once")
	u.askAgain(time.Now().Add(2 * retryAfter))
	require.ErrorIs(t, u.cfg.Asked.Lookup(next.Key, &one), ebpf.ErrKeyNotExist)

	server.stalls = false
	u.handle([]Miss{next})
	require.True(t, u.has(next.Key))
}

// One whose headers could not be read is opened again; one that is no ELF file is not.
func TestAFileThatCouldNotBeReadIsNotKept(t *testing.T) {
	fs := newFiles()
	defer fs.close()
	open := func(path string) *procmaps.File {
		t.Helper()
		f, err := procmaps.NewFile(os.Open(path))
		require.NoError(t, err)
		return f
	}
	f := open("/bin/sleep")
	key := Key{Inode: 1, Bytes: uint64(f.Size())}
	f.File.Close() // as a server that does not answer: each read is an error
	_, err := fs.add(key, f, 1)
	require.ErrorIs(t, err, os.ErrClosed)
	require.Empty(t, fs.open)

	added, err := fs.add(key, open("/bin/sleep"), 1)
	require.NoError(t, err)
	require.NotNil(t, added.rules)
	text := open("/etc/passwd")
	added, err = fs.add(Key{Inode: 2, Bytes: uint64(text.Size())}, text, 1)
	require.NoError(t, err)
	require.Nil(t, added.rules)
	require.Len(t, fs.open, 2)
}
