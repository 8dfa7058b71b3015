// SPDX-License-Identifier: Apache-2.0

package file

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// readerWait is how long a named pipe may have no reader: one that was started with us may be slower.
	readerWait  = 5 * time.Second
	readerRetry = 20 * time.Millisecond
)

// found holds the entry at a path by a descriptor: another process that exchanges it meanwhile changes nothing.
type found struct {
	path string
	fd   int // opened with O_PATH, which opens no device
	stat unix.Stat_t
}

// look returns what lies at a path, itself if that is a link; nil: nothing. The caller closes it.
func look(path string) (*found, error) {
	dir, last := filepath.Split(path)
	if last == "" {
		return nil, nil
	}
	at, err := openDirectory(dir)
	if errors.Is(err, unix.ENOENT) {
		return nil, nil
	}
	if err != nil {
		return nil, named("open", path, err)
	}
	defer func() { _ = unix.Close(at) }()
	f := &found{path: path}
	f.fd, err = unix.Openat(at, last, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ENOENT) {
		return nil, nil
	}
	if err != nil {
		return nil, named("open", path, err)
	}
	if err := unix.Fstat(f.fd, &f.stat); err != nil {
		f.close()
		return nil, named("stat", path, err)
	}
	return f, nil
}

func (f *found) close() { _ = unix.Close(f.fd) }

func (f *found) kind() uint32 { return f.stat.Mode & unix.S_IFMT }

// mustBeFile returns an error that says what it is if it is no regular file.
func (f *found) mustBeFile() error {
	switch f.kind() {
	case unix.S_IFREG:
		return nil
	case unix.S_IFDIR:
		return fmt.Errorf("%s is a directory", f.path)
	case unix.S_IFLNK:
		target, err := filepath.EvalSymlinks(f.path)
		if err != nil {
			return fmt.Errorf("%s is a symbolic link that leads nowhere; give the name of a file", f.path)
		}
		return fmt.Errorf("%s is a symbolic link, and none is followed for a file that is written: give %s", f.path, target)
	case unix.S_IFIFO:
		return fmt.Errorf("%s is a pipe", f.path)
	case unix.S_IFBLK:
		return fmt.Errorf("%s is a block device, and none is written to", f.path)
	case unix.S_IFCHR:
		return fmt.Errorf("%s is a device; only /dev/null, /dev/full, /dev/tty and pseudo-terminals are written to: use /dev/stdout for another terminal", f.path)
	}
	return fmt.Errorf("%s is no file", f.path)
}

// openDevice opens what the path leads to if that is a pipe, a terminal or a device that holds nothing; nil if it
// is a regular file or there is none. For a reader of a pipe it waits so long.
//
// The owner of what is opened does not make it harmless: root of a container without a user namespace is root
// here, too, and can make devices and pipes in volumes.
func openDevice(path string, wait time.Duration) (*os.File, error) {
	f, err := look(path)
	if f == nil || err != nil {
		return nil, err
	}
	defer f.close()
	kind := f.kind()
	if kind == unix.S_IFREG {
		return nil, nil
	}
	if kind == unix.S_IFLNK && f.isStandard() {
		return openStandard(path)
	}
	if isPipe := kind == unix.S_IFIFO; !isPipe && (kind != unix.S_IFCHR || !isHarmless(f.stat.Rdev)) {
		return nil, f.mustBeFile()
	}
	if !trusted(f.stat.Uid) {
		return nil, fmt.Errorf("%s is no file, and belongs to another user (%d)", path, f.stat.Uid)
	}
	return f.open(wait)
}

// open opens a pipe or a device for writing.
func (f *found) open(wait time.Duration) (*os.File, error) {
	for end := time.Now().Add(wait); ; time.Sleep(readerRetry) {
		// The same, and not what has the path now.
		fd, err := unix.Open("/proc/self/fd/"+strconv.Itoa(f.fd), unix.O_WRONLY|unix.O_NONBLOCK|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
		switch {
		case err == nil:
			return os.NewFile(uintptr(fd), f.path), nil
		case errors.Is(err, unix.EINTR):
		case f.kind() != unix.S_IFIFO || !errors.Is(err, unix.ENXIO):
			return nil, named("open", f.path, err)
		case time.Now().After(end):
			return nil, fmt.Errorf("%s is a pipe that no process reads", f.path)
		}
	}
}

// isHarmless reports whether a character device keeps nothing, or is a terminal. Its number says what it is: anyone
// who may make devices can give it any name.
func isHarmless(device uint64) bool {
	major, minor := unix.Major(device), unix.Minor(device)
	switch {
	case major == 1: // Documentation/admin-guide/devices.txt
		return minor == 3 || minor == 7 // /dev/null, /dev/full
	case major == 5:
		return minor == 0 // /dev/tty
	}
	return major >= 136 && major <= 143 // /dev/pts: the kernel opens them in devpts only
}

// isStandard reports whether a link is one of the system's names for this process's open files. Other
// users may make links in other places below /dev, such as /dev/shm.
func (f *found) isStandard() bool {
	if !trusted(f.stat.Uid) {
		return false
	}
	dir, name := filepath.Split(f.path)
	_, err := strconv.ParseUint(name, 10, 31)
	return f.path == "/dev/stdout" || f.path == "/dev/stderr" || err == nil && (dir == "/dev/fd/" || dir == "/proc/self/fd/")
}

// openStandard opens one of this process's open files. It is appended to, for the shell may have opened a file that
// has something in it.
func openStandard(path string) (*os.File, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	isPipe := info.Mode().Type() == fs.ModeNamedPipe
	if info.Mode().Type() == fs.ModeDevice {
		return nil, fmt.Errorf("%s is a block device, and none is written to", path)
	}
	to, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	if isPipe && errors.Is(err, unix.ENXIO) {
		return nil, fmt.Errorf("%s is a pipe that no process reads", path)
	}
	return to, err
}
