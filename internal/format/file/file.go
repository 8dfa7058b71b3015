// SPDX-License-Identifier: Apache-2.0

// Package file writes a file that appears complete or not at all.
package file

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// File is written under another name and renamed.
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
	info, err := os.Stat(path)
	switch {
	case err == nil && info.IsDir():
		return nil, fmt.Errorf("%s is a directory", path)
	case err == nil && !info.Mode().IsRegular():
		f, err := os.OpenFile(path, os.O_WRONLY, 0)
		if err != nil {
			return nil, err
		}
		return &File{path: path, device: f}, nil
	case err == nil:
		// The file that a link leads to is replaced, not the link.
		if path, err = filepath.EvalSymlinks(path); err != nil {
			return nil, err
		}
	case !errors.Is(err, fs.ErrNotExist):
		return nil, err
	}
	o := &File{path: path}
	temp, err := o.temporary()
	if err != nil {
		return nil, err
	}
	return o, errors.Join(temp.Close(), os.Remove(temp.Name()))
}

// temporary makes the file under its other name; an error names the path that
// the user gave.
func (o *File) temporary() (*os.File, error) {
	f, err := os.CreateTemp(filepath.Dir(o.path), "."+filepath.Base(o.path)+".*.tmp")
	var failed *fs.PathError
	if errors.As(err, &failed) {
		err = &fs.PathError{Op: "create", Path: o.path, Err: failed.Err}
	}
	return f, err
}

// Commit writes the file and gives it its name; on an error, what was at the
// path before stays.
func (o *File) Commit(write func(io.Writer) error) error {
	if o.device != nil {
		return errors.Join(write(o.device), o.device.Close())
	}
	temp, err := o.temporary()
	if err != nil {
		return err
	}
	// Readable for all: recording takes root, looking at it should not.
	err = errors.Join(write(temp), temp.Chmod(0o644), temp.Close())
	if err == nil {
		err = os.Rename(temp.Name(), o.path)
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", o.path, errors.Join(err, os.Remove(temp.Name())))
	}
	return nil
}

// Discard is for an output that is not committed.
func (o *File) Discard() {
	if o.device != nil {
		_ = o.device.Close()
	}
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
