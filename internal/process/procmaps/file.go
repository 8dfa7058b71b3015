// SPDX-License-Identifier: Apache-2.0

package procmaps

import (
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// File is an open regular file of a process. Of a file system whose server may not answer (FUSE, NFS), each read has a
// limit of time, and all reads together; beyond it the error is ErrHangs.
type File struct {
	*os.File
	// Stat are its facts when it was opened, FileSystem the kind of its file system (statfs(2), f_type).
	Stat       unix.Stat_t
	FileSystem uint32

	guard *Guard // nil: the kernel itself answers
	use   use    // for guard
	at    int64  // of Read
}

// NewFile is that of a file of this machine. It takes what os.Open returns.
func NewFile(f *os.File, err error) (*File, error) {
	if err != nil {
		return nil, err
	}
	file := &File{File: f}
	if err := unix.Fstat(int(f.Fd()), &file.Stat); err != nil {
		f.Close()
		return nil, fmt.Errorf("stat %s: %w", f.Name(), err)
	}
	var fs unix.Statfs_t
	if unix.Fstatfs(int(f.Fd()), &fs) == nil {
		file.FileSystem = uint32(fs.Type)
	}
	return file, nil
}

// Size is that of when it was opened, in bytes.
func (f *File) Size() int64 { return f.Stat.Size }

// Identity distinguishes files; one that is written to becomes another one: no one can set the time of its change.
func (f *File) Identity() string {
	st := &f.Stat
	return identity(st.Dev, st.Ino, st.Size, st.Ctim.Sec, st.Ctim.Nsec)
}

func identity(device, inode uint64, bytes, second, nanosecond int64) string {
	return fmt.Sprint(device, inode, bytes, second, nanosecond)
}

// ReadAt is that of io.ReaderAt.
func (f *File) ReadAt(b []byte, at int64) (int, error) {
	if f.guard == nil {
		return f.File.ReadAt(b, at)
	}
	return f.guard.readAt(f.use, untrusted{f.File}, b, at)
}

// Read is that of io.Reader.
func (f *File) Read(b []byte) (int, error) {
	n, err := f.ReadAt(b, f.at)
	f.at += int64(n)
	if n > 0 && errors.Is(err, io.EOF) {
		err = nil
	}
	return n, err
}

// Within returns what fn returns, which uses a file, or ErrHangs if its server does not answer. fn may then still be running: what
// it changes is its own.
func Within[T any](f *File, fn func() (T, error)) (T, error) {
	if f.guard == nil {
		return fn()
	}
	return Guarded(f.guard, f.use.tenant, f.use.place, fn)
}

// Close closes the file. It does not wait for a server.
func (f *File) Close() error {
	if f.guard == nil {
		return f.File.Close()
	}
	f.guard.Close(f.use.tenant, f.use.place, f.File)
	return nil
}

// Dup is the same file once more.
func (f *File) Dup() (*File, error) {
	fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("duplicate %s: %w", f.Name(), err)
	}
	other := *f
	other.File = os.NewFile(uintptr(fd), f.Name())
	return &other, nil
}

// answersItself reports whether the kernel answers for a kind of file system, with the devices of the machine.
func answersItself(kind uint32) bool {
	switch kind {
	case unix.EXT4_SUPER_MAGIC, unix.XFS_SUPER_MAGIC, unix.BTRFS_SUPER_MAGIC, unix.TMPFS_MAGIC, unix.OVERLAYFS_SUPER_MAGIC,
		unix.SQUASHFS_MAGIC, unix.EROFS_SUPER_MAGIC_V1, unix.F2FS_SUPER_MAGIC, unix.RAMFS_MAGIC, unix.ISOFS_SUPER_MAGIC,
		unix.NILFS_SUPER_MAGIC, unix.MSDOS_SUPER_MAGIC, zfsMagic, bcachefsMagic:
		return true
	}
	return false
}

// Kinds of file systems that golang.org/x/sys/unix does not have.
const (
	zfsMagic      = 0x2fc12fc1
	bcachefsMagic = 0xca451a4e
)
