// SPDX-License-Identifier: Apache-2.0

package tracer

import (
	"errors"
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/gpu-gadgets/gpu-gadgets/internal/process/procmaps"
)

// fileKey identifies what the kernel attaches a uprobe to: the inode that holds
// the data. On overlayfs that is an inode of the layer below: two containers of
// one image have different files there, but a probe on one is a probe on both.
type fileKey struct {
	dev, ino   uint64
	handle     string // overlayfs: the file below, as a file handle
	unreadable bool
}

// atHandleFID asks for a handle that only identifies (Linux 6.6): overlayfs
// gives it without being exported, and it names the inode below.
const atHandleFID = unix.AT_REMOVEDIR // AT_HANDLE_FID has the same value, 0x200

// identify returns the key of an open file that a process has mapped as m; m
// is the zero Mapping for a file that no process has mapped yet.
func identify(f *procmaps.File, m procmaps.Mapping) (fileKey, error) {
	st := &f.Stat
	key := fileKey{dev: st.Dev, ino: st.Ino}
	if f.FileSystem != unix.OVERLAYFS_SUPER_MAGIC {
		return key, nil
	}
	if h, _, err := unix.NameToHandleAt(int(f.Fd()), "", unix.AT_EMPTY_PATH|atHandleFID); err == nil {
		// File systems without a uuid (tmpfs) make handles that are alike: size
		// and time identify their files, and are those of the file below too.
		return fileKey{dev: uint64(st.Mtim.Nano()), ino: uint64(st.Size), handle: string(h.Bytes())}, nil
	}
	// Before Linux 6.7 the maps file shows the inode below. Without it a file
	// that is also mapped elsewhere could be probed twice.
	if m == (procmaps.Mapping{}) {
		own, err := ownMapping(f)
		if err != nil {
			return fileKey{}, fmt.Errorf("file of an overlay that is not mapped: %w", err)
		}
		m = own
	}
	if m.Inode != 0 && (m.Device != key.dev || m.Inode != key.ino) {
		return fileKey{dev: m.Device, ino: m.Inode}, nil
	}
	return key, nil
}

// ownMapping is how this process's own maps file shows a file: it maps a page of it, which
// it does not touch.
func ownMapping(f *procmaps.File) (found procmaps.Mapping, err error) {
	page, err := unix.Mmap(int(f.Fd()), 0, os.Getpagesize(), unix.PROT_READ, unix.MAP_PRIVATE)
	if err != nil {
		return found, fmt.Errorf("map %s: %w", f.Name(), err)
	}
	defer unix.Munmap(page)
	at := uint64(uintptr(unsafe.Pointer(unsafe.SliceData(page))))
	own, err := os.Open("/proc/self/maps")
	if err != nil {
		return found, err
	}
	defer own.Close()
	err = procmaps.Parse(own, func(m procmaps.Mapping) bool {
		if at >= m.Start && at < m.End {
			found = m
		}
		return found.End == 0
	})
	if found.End == 0 {
		return found, errors.Join(errors.New("the mapping is not in /proc/self/maps"), err)
	}
	return found, nil
}
