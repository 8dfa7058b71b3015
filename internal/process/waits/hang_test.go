// SPDX-License-Identifier: Apache-2.0

package waits

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// A pipe without a writer blocks like the fdinfo of an epoll descriptor to which a thread adds a file whose file system
// does not answer.
func TestADescriptorThatHangsDoesNotBlock(t *testing.T) {
	procfs := t.TempDir()
	hang := func(pid, fd, link string) {
		for _, name := range []string{"fd", "fdinfo", filepath.Join("task", pid)} {
			require.NoError(t, os.MkdirAll(filepath.Join(procfs, pid, name), 0o755))
		}
		require.NoError(t, os.WriteFile(filepath.Join(procfs, pid, "status"), []byte("PPid:\t1\n"), 0o600))
		require.NoError(t, os.Symlink(link, filepath.Join(procfs, pid, "fd", fd)))
		pipe := filepath.Join(procfs, pid, "fdinfo", fd)
		require.NoError(t, unix.Mkfifo(pipe, 0o600))
		t.Cleanup(func() { // ends the read
			f, err := os.OpenFile(pipe, os.O_WRONLY, 0)
			require.NoError(t, err)
			f.Close()
		})
	}
	hang("7", "3", "anon_inode:[eventpoll]")
	hang("8", "4", "anon_inode:[eventfd]")
	text := fmt.Sprintf("%d 0x3 0x0 0x0 0x0 0x0 0x0 0x0 0x0\n", unix.SYS_EPOLL_PWAIT)
	require.NoError(t, os.WriteFile(filepath.Join(procfs, "7", "task", "7", "syscall"), []byte(text), 0o600))

	began := time.Now()
	const often = 40 // so that a busy machine makes no difference
	for range often {
		r := NewReader(procfs)
		if w, err := r.Read(7, 7); err == nil { // else what it hangs with is known by now
			require.Equal(t, []Resource{{Kind: Other, Name: "descriptors"}}, w.For)
		}
		require.False(t, r.Ends(7, Resource{Kind: Event, ID: "eventfd:1"}).IsKnown())
		require.Equal(t, Resource{Kind: Event, Name: "an eventfd"}, r.descriptor(8, 4, false))
	}
	require.Less(t, time.Since(began), often*100*time.Millisecond, "it is not waited for again")
}
