// SPDX-License-Identifier: Apache-2.0

// Package hangfs mounts a file system whose files can be opened and mapped, and whose content never comes.
package hangfs

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Operations of linux/fuse.h.
const (
	fuseLookup, fuseForget, fuseGetattr = 1, 2, 3
	fuseOpen, fuseRead, fuseInit        = 14, 15, 26
	fuseFlush, fuseInterrupt            = 25, 36
	fuseBatchForget                     = 42
)

// unanswered are the operations that have no answer, and those that never have one here.
var unanswered = []uint32{fuseRead, fuseFlush, fuseForget, fuseInterrupt, fuseBatchForget}

// Mount mounts it in a directory: each name there is a file of a page. Its server ends with the test, or with the function
// that is returned, and with it what waits; after twenty seconds in any case, as the kernel may have other processes wait, too:
// those whose memory it moves together with a page that is being read. Where FUSE cannot be mounted, the test is skipped.
func Mount(t testing.TB, dir string) (end func()) {
	// Go's own poller does not take the device before it is mounted.
	device, err := unix.Open("/dev/fuse", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Skipf("no FUSE here: %v", err)
	}
	options := fmt.Sprintf("fd=%d,rootmode=40000,user_id=0,group_id=0", device)
	if err := unix.Mount("hangfs", dir, "fuse", 0, options); err != nil {
		unix.Close(device)
		t.Skipf("FUSE cannot be mounted here: %v", err)
	}
	go serve(device)
	end = func() { // also of what waits
		_ = unix.Unmount(dir, unix.MNT_FORCE|unix.MNT_DETACH)
	}
	timer := time.AfterFunc(20*time.Second, end)
	t.Cleanup(func() { timer.Stop(); end() })
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
