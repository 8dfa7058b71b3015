// SPDX-License-Identifier: Apache-2.0

package memory

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/gpu-gadgets/gpu-gadgets/internal/process/procmaps"
)

// Operations of linux/fuse.h.
const (
	fuseLookup, fuseForget, fuseGetattr = 1, 2, 3
	fuseOpen, fuseRead, fuseInit        = 14, 15, 26
	fuseInterrupt, fuseBatchForget      = 36, 42
)

// unanswered are the operations that have no answer, and that to read, which never has one here.
var unanswered = []uint32{fuseRead, fuseForget, fuseInterrupt, fuseBatchForget}

// mountUnreadable mounts a file system with one file, "page", which can be opened and mapped, and whose content never
// comes. Its server ends with the test, or with the function it returns.
func mountUnreadable(t *testing.T, dir string) (end func()) {
	// Go's own poller does not take the device before it is mounted.
	device, err := unix.Open("/dev/fuse", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Skipf("no FUSE here: %v", err)
	}
	options := fmt.Sprintf("fd=%d,rootmode=40000,user_id=0,group_id=0", device)
	if err := unix.Mount("unreadable", dir, "fuse", 0, options); err != nil {
		unix.Close(device)
		t.Skipf("FUSE cannot be mounted here: %v", err)
	}
	go serve(device)
	end = func() { // also of what waits
		_ = unix.Unmount(dir, unix.MNT_FORCE|unix.MNT_DETACH)
	}
	t.Cleanup(end)
	return end
}

func serve(device int) {
	defer unix.Close(device)
	for {
		b := make([]byte, 1<<17)
		n, err := unix.Read(device, b)
		if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EINTR) {
			continue // the request was interrupted
		}
		if err != nil || n < 40 {
			return
		}
		operation, node := binary.NativeEndian.Uint32(b[4:]), binary.NativeEndian.Uint64(b[16:])
		if slices.Contains(unanswered, operation) {
			continue
		}
		failed, body := answer(operation, node)
		reply := binary.NativeEndian.AppendUint32(nil, uint32(16+len(body)))
		reply = binary.NativeEndian.AppendUint32(reply, uint32(-int32(failed)))
		reply = append(append(reply, b[8:16]...), body...)
		_, _ = unix.Write(device, reply) // the request may have been interrupted
	}
}

// answer returns what follows the header of an answer, or an error.
func answer(operation uint32, node uint64) (failed unix.Errno, body []byte) {
	attributes := func(node uint64) []byte {
		a := binary.NativeEndian.AppendUint64(nil, node)
		a = binary.NativeEndian.AppendUint64(a, 4096)
		a = append(a, make([]byte, 4*8+3*4)...)
		mode := uint32(unix.S_IFDIR | 0o755)
		if node != 1 {
			mode = unix.S_IFREG | 0o644
		}
		a = binary.NativeEndian.AppendUint32(a, mode)
		a = binary.NativeEndian.AppendUint32(a, 1)
		return append(a, make([]byte, 5*4)...)
	}
	switch operation {
	case fuseInit:
		body = binary.NativeEndian.AppendUint32(binary.NativeEndian.AppendUint32(nil, 7), 31)
		return 0, append(body, make([]byte, 56)...)
	case fuseGetattr:
		return 0, append(make([]byte, 16), attributes(node)...)
	case fuseLookup:
		return 0, append(append(binary.NativeEndian.AppendUint64(nil, 2), make([]byte, 32)...), attributes(2)...)
	case fuseOpen:
		return 0, make([]byte, 16)
	}
	return unix.ENOSYS, nil
}

// A process keeps a page on a file system of its own. Who reads the page would wait as long as its server likes.
func TestAPageThatNeverComesDoesNotBlock(t *testing.T) {
	dir := t.TempDir()
	end := mountUnreadable(t, dir)
	cmd := exec.Command("python3", "-c", `
import ctypes, mmap, sys
file = open(sys.argv[1], "rb")
page = mmap.mmap(file.fileno(), 4096, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_WRITE)
fine = ctypes.create_string_buffer(b"fine")
print(ctypes.addressof(ctypes.c_char.from_buffer(page)), ctypes.addressof(fine), flush=True)
sys.stdin.read()`, filepath.Join(dir, "page"))
	cmd.Stderr = os.Stderr
	_, err := cmd.StdinPipe()
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	var address [2]int64
	for n, word := range strings.Fields(line) {
		address[n], err = strconv.ParseInt(word, 10, 64)
		require.NoError(t, err)
	}

	r, err := Open("/proc", uint32(cmd.Process.Pid))
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
