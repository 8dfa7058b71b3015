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
// leaves nothing behind, because the process may be killed. For a reader of a pipe it waits
// a few seconds: the caller must hold no lock that a signal needs.
func Prepare(path string) (*File, error) {
	device, err := openDevice(path, readerWait)
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

// Write writes a file whose name the user did not give, such as a numbered one, at any time: it never waits
// for another process. A device or a pipe is an error.
func Write(path string, write func(io.Writer) error) error {
	found, err := look(path)
	if err != nil {
		return err
	}
	if found != nil {
		defer found.close()
		if err := found.mustBeFile(); err != nil {
			return err
		}
	}
	return (&File{path: path}).Commit(write)
}

// Create creates a file that is written bit by bit. A file that exists is replaced, and not
// truncated; a device or a pipe is opened. It waits as Prepare does.
func Create(path string) (*os.File, error) {
	device, err := openDevice(path, readerWait)
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
	defer func() { err = named("create", path, err) }()
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

// named gives an error of a system call the path that the user gave.
func named(operation, path string, err error) error {
	var number syscall.Errno
	if errors.As(err, &number) {
		return &fs.PathError{Op: operation, Path: path, Err: number}
	}
	return err
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
