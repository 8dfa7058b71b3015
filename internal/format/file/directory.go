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
//
// The links of /proc are no texts: that of a process's root leads into its mount namespace, where an absolute link would mean
// another directory than it does here, and is refused.
func openDirectory(path string) (int, error) {
	at, err := start(path)
	if err != nil {
		return -1, err
	}
	names, links, isBeyond := strings.Split(path, "/"), 0, false
	for len(names) > 0 {
		name := names[0]
		names = names[1:]
		if name == "" || name == "." {
			continue
		}
		s, err := take(at, name)
		isBeyond = isBeyond || s.isMagic
		if err == nil && s.target != "" {
			if links++; links > maxLinks {
				err = unix.ELOOP
			}
		}
		isAbsolute := strings.HasPrefix(s.target, "/")
		if err == nil && isAbsolute && isBeyond {
			err = fmt.Errorf("the directory %s is a symbolic link to %s, which is not followed behind a link of /proc: give the directory that it leads to", name, s.target)
		}
		if err == nil && isAbsolute {
			s.next, err = start(s.target)
		}
		if err != nil {
			_ = unix.Close(at)
			return -1, err
		}
		if s.target == "" || isAbsolute {
			_ = unix.Close(at)
			at = s.next
		}
		if s.target == "" {
			continue
		}
		names = append(strings.Split(s.target, "/"), names...)
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

// step is the result of one name of a path.
type step struct {
	next    int    // the directory, open; if target is ""
	target  string // of a symbolic link
	isMagic bool   // the kernel followed a link of /proc
}

// take opens a name in a directory.
func take(at int, name string) (step, error) {
	fd, err := unix.Openat(at, name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return step{}, err
	}
	var stat unix.Stat_t
	if err := unix.Fstat(fd, &stat); err != nil {
		_ = unix.Close(fd)
		return step{}, err
	}
	switch stat.Mode & unix.S_IFMT {
	case unix.S_IFDIR:
		return step{next: fd}, nil
	case unix.S_IFLNK:
	default:
		_ = unix.Close(fd)
		return step{}, unix.ENOTDIR
	}
	defer func() { _ = unix.Close(fd) }()
	if !trusted(stat.Uid) {
		return step{}, fmt.Errorf("the directory %s is a symbolic link of another user (%d), which is not followed: give the directory that it leads to",
			name, stat.Uid)
	}
	var system unix.Statfs_t
	if err := unix.Fstatfs(fd, &system); err != nil {
		return step{}, err
	}
	if system.Type == unix.PROC_SUPER_MAGIC {
		next, err := unix.Openat(at, name, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		return step{next: next, isMagic: true}, err
	}
	text := make([]byte, unix.PathMax)
	n, err := unix.Readlinkat(fd, "", text)
	return step{target: string(text[:max(n, 0)])}, err
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
