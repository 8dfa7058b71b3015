// SPDX-License-Identifier: Apache-2.0

package file

import (
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// maxLinks is how many symbolic links a path may have, as in Linux.
const maxLinks = 40

// openDirectory opens a directory, name by name, so that no other process can exchange a part of the path
// that was checked. It follows symbolic links of root and of the user who started us, and no others:
// the names of files are known, and with a link another user would choose the directory. The empty
// path is the current directory.
func openDirectory(path string) (int, error) {
	at, err := start(path)
	if err != nil {
		return -1, err
	}
	names, links := strings.Split(path, "/"), 0
	for len(names) > 0 {
		name := names[0]
		names = names[1:]
		if name == "" || name == "." {
			continue
		}
		next, target, err := step(at, name)
		if err == nil && target != "" {
			if links++; links > maxLinks {
				err = unix.ELOOP
			}
		}
		if err != nil {
			_ = unix.Close(at)
			return -1, err
		}
		if target == "" || strings.HasPrefix(target, "/") {
			_ = unix.Close(at)
			at = next
		}
		if target == "" {
			continue
		}
		names = append(strings.Split(target, "/"), names...)
	}
	return at, nil
}

// start opens the directory that a path is relative to.
func start(path string) (int, error) {
	base := "."
	if strings.HasPrefix(path, "/") {
		base = "/"
	}
	return unix.Open(base, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
}

// step opens a name in a directory. If it is a symbolic link it returns its target, and for an
// absolute one the root directory.
func step(at int, name string) (next int, target string, err error) {
	fd, err := unix.Openat(at, name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, "", err
	}
	var stat unix.Stat_t
	if err := unix.Fstat(fd, &stat); err != nil {
		_ = unix.Close(fd)
		return -1, "", err
	}
	switch stat.Mode & unix.S_IFMT {
	case unix.S_IFDIR:
		return fd, "", nil
	case unix.S_IFLNK:
	default:
		_ = unix.Close(fd)
		return -1, "", unix.ENOTDIR
	}
	defer func() { _ = unix.Close(fd) }()
	if !trusted(stat.Uid) {
		return -1, "", fmt.Errorf("the directory %s is a symbolic link of another user (%d), which is not followed: give the directory that it leads to",
			name, stat.Uid)
	}
	text := make([]byte, unix.PathMax)
	n, err := unix.Readlinkat(fd, "", text)
	if err != nil {
		return -1, "", err
	}
	if target = string(text[:n]); !strings.HasPrefix(target, "/") {
		return -1, target, nil
	}
	next, err = start(target)
	return next, target, err
}

// trusted reports whether a user is root or the one who started us: they could do without us what we
// do for them.
func trusted(uid uint32) bool {
	invoked, _, is := invoker()
	return uid == 0 || int64(uid) == int64(os.Geteuid()) || is && int64(uid) == int64(invoked)
}

// invoker is the user who became root by sudo, who owns what is written: recording takes root, and
// looking at it should not.
func invoker() (uid, gid int, is bool) {
	if os.Geteuid() != 0 {
		return 0, 0, false
	}
	user, err := strconv.ParseUint(os.Getenv("SUDO_UID"), 10, 31)
	group, err2 := strconv.ParseUint(os.Getenv("SUDO_GID"), 10, 31)
	return int(user), int(group), err == nil && err2 == nil
}
