// SPDX-License-Identifier: Apache-2.0

// Package file writes files that root may create in directories of other users: a file is created
// under another name, readable by its owner alone, and renamed, so that nothing that exists there
// already is opened or followed.
package file

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// File is written under another name and renamed: it appears complete or not at all.
type File struct {
	path string
	// device is open if the path leads to a device or a pipe, which a rename
	// would replace; it is written as it is.
	device *os.File
}

// Prepare finds out whether the file can be written, so that a path that cannot
// is an error when the recording starts and not when the data is there. It
// leaves nothing behind, because the process may be killed.
func Prepare(path string) (*File, error) {
	device, err := openDevice(path)
	if err != nil {
		return nil, err
	}
	if device != nil {
		return &File{path: path, device: device}, nil
	}
	t, err := create(path)
	if err != nil {
		return nil, err
	}
	return &File{path: path}, t.discard()
}

// Commit writes the file and gives it its name; on an error, what was at the
// path before stays.
func (o *File) Commit(write func(io.Writer) error) error {
	if o.device != nil {
		return errors.Join(write(o.device), o.device.Close())
	}
	t, err := create(o.path)
	if err != nil {
		return err
	}
	// Some file systems know when a file is closed only that it has no room.
	if err := errors.Join(write(t.file), t.file.Close()); err != nil {
		return fmt.Errorf("write %s: %w", o.path, errors.Join(err, t.discard()))
	}
	return t.rename()
}

// Discard is for an output that is not committed.
func (o *File) Discard() {
	if o.device != nil {
		_ = o.device.Close()
	}
}

// Create creates a file that is written bit by bit. A file that exists is replaced, and not
// truncated; a device or a pipe is opened.
func Create(path string) (*os.File, error) {
	device, err := openDevice(path)
	if device != nil || err != nil {
		return device, err
	}
	t, err := create(path)
	if err != nil {
		return nil, err
	}
	if err := t.rename(); err != nil {
		return nil, err
	}
	return t.file, nil
}

// openDevice opens what the path leads to if that is no regular file and no new one.
func openDevice(path string) (*os.File, error) {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, err
	case info.IsDir():
		return nil, fmt.Errorf("%s is a directory", path)
	case info.Mode().IsRegular():
		return nil, nil
	case info.Mode().Type() == fs.ModeSymlink && isStandard(path, info):
		// Appended, for the shell may have opened a file that has something in it.
		return os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
	case info.Mode().Type() == fs.ModeSymlink:
		target, err := filepath.EvalSymlinks(path)
		if err != nil {
			return nil, fmt.Errorf("%s is a symbolic link that leads nowhere; give the name of a file", path)
		}
		return nil, fmt.Errorf("%s is a symbolic link, and none is followed for a file that is written: give %s", path, target)
	}
	if stat, is := info.Sys().(*syscall.Stat_t); is && !trusted(stat.Uid) {
		return nil, fmt.Errorf("%s is no file, and belongs to another user (%d)", path, stat.Uid)
	}
	return os.OpenFile(path, os.O_WRONLY|unix.O_NOFOLLOW, 0)
}

// isStandard reports whether a link is one of the system's names for this process's open files. Other
// users may make links in other places below /dev, such as /dev/shm.
func isStandard(path string, link fs.FileInfo) bool {
	if stat, is := link.Sys().(*syscall.Stat_t); !is || !trusted(stat.Uid) {
		return false
	}
	dir, name := filepath.Split(path)
	_, err := strconv.ParseUint(name, 10, 31)
	return path == "/dev/stdout" || path == "/dev/stderr" || err == nil && (dir == "/dev/fd/" || dir == "/proc/self/fd/")
}

// temporary is a file under another name than it will have.
type temporary struct {
	file       *os.File
	path       string // that it will have
	directory  int
	name, last string // in the directory, now and in the end
}

// create creates a file under a name that did not exist. An error names the path that the user
// gave.
func create(path string) (t *temporary, err error) {
	defer func() {
		var number syscall.Errno
		if errors.As(err, &number) {
			err = &fs.PathError{Op: "create", Path: path, Err: number}
		}
	}()
	dir, last := filepath.Split(path)
	if last == "" {
		return nil, fmt.Errorf("%q is no name of a file", path)
	}
	at, err := openDirectory(dir)
	if err != nil {
		return nil, err
	}
	t = &temporary{path: path, directory: at, last: last}
	for range 100 {
		t.name = fmt.Sprintf(".%s.%d.tmp", last, rand.Uint32())
		fd, err := unix.Openat(at, t.name, unix.O_RDWR|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
		if errors.Is(err, unix.EEXIST) {
			continue
		}
		if err != nil {
			return nil, errors.Join(err, unix.Close(at))
		}
		t.file = os.NewFile(uintptr(fd), path)
		if uid, gid, is := invoker(); is {
			if err := t.file.Chown(uid, gid); err != nil {
				return nil, errors.Join(err, t.discard())
			}
		}
		return t, nil
	}
	return nil, errors.Join(unix.EEXIST, unix.Close(at))
}

// rename gives the file its name.
func (t *temporary) rename() error {
	if err := unix.Renameat(t.directory, t.name, t.directory, t.last); err != nil {
		return &fs.PathError{Op: "write", Path: t.path, Err: errors.Join(err, t.discard())}
	}
	return unix.Close(t.directory)
}

// discard removes the file.
func (t *temporary) discard() error {
	_ = t.file.Close() // may be closed
	return errors.Join(unix.Unlinkat(t.directory, t.name, 0), unix.Close(t.directory))
}

// Explain says of an error of writing to the named file what it means, where the user
// can do something about it.
func Explain(name string, err error) error {
	switch {
	case errors.Is(err, syscall.ENOSPC):
		return fmt.Errorf("no space is left in %s: %w", filepath.Dir(name), err)
	case errors.Is(err, syscall.EPIPE):
		return fmt.Errorf("its reader has exited: %w", err)
	}
	return err
}
