// SPDX-License-Identifier: Apache-2.0

package procmaps

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Open opens the file behind a mapping for reading: through map_files, which leads to the
// same file even if it was deleted or replaced; without the privilege for that
// (CAP_SYS_ADMIN or CAP_CHECKPOINT_RESTORE), through the process's root, where the inode
// must be the mapping's. Only regular files are opened. The caller closes the file.
func (c *Cache) Open(pid uint32, m Mapping) (*File, error) { return c.Files(pid).OpenMapped(m) }

// OpenMapped is Open of the process.
func (f Files) OpenMapped(m Mapping) (*File, error) {
	if !m.IsFile() {
		return nil, fmt.Errorf("open mapping of process %d: no file behind %q", f.pid, m.Path)
	}
	return f.openWithin(m.Path, func() (*os.File, error) { return f.cache.open(f.pid, m) })
}

func (c *Cache) open(pid uint32, m Mapping) (*os.File, error) {
	f, err := openRegular(c.mapFile(pid, m))
	if err == nil {
		return f, nil
	}
	if m.Deleted {
		return nil, fmt.Errorf("open deleted %s of process %d: %w", m.Path, pid, err)
	}
	f, err2 := OpenInRoot(c.path(pid, "root"), m.Path)
	if err2 != nil {
		return nil, fmt.Errorf("open %s of process %d: %w", m.Path, pid, errors.Join(err, err2))
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		f.Close()
		return nil, fmt.Errorf("stat %s of process %d: %w", m.Path, pid, err)
	}
	if st.Ino != m.Inode {
		f.Close()
		return nil, fmt.Errorf("open %s of process %d: %w: inode %d, mapped is %d",
			m.Path, pid, ErrReplaced, st.Ino, m.Inode)
	}
	return f, nil
}

// Identities returns File.Identity of the files behind mappings of a process: as the kernel has it, which takes a tenth of
// the time of opening them. It is empty where that cannot be read, as without the privilege for map_files.
func (c *Cache) Identities(pid uint32, all []Mapping) []string {
	files, out := c.Files(pid), make([]string, len(all))
	byDir := map[string][]int{}
	for i, m := range all {
		dir := filepath.Dir(m.Path)
		byDir[dir] = append(byDir[dir], i)
	}
	for dir, its := range byDir {
		found, _ := Guarded(&c.guard, files.tenant, files.place(dir), func() ([]string, error) {
			found := make([]string, len(its))
			for i, at := range its {
				found[i] = c.identity(pid, all[at])
			}
			return found, nil
		})
		for i, id := range found {
			out[its[i]] = id
		}
	}
	return out
}

func (c *Cache) identity(pid uint32, m Mapping) string {
	var st unix.Statx_t
	if unix.Statx(unix.AT_FDCWD, c.mapFile(pid, m), unix.AT_STATX_DONT_SYNC, unix.STATX_BASIC_STATS, &st) != nil {
		return ""
	}
	return identity(unix.Mkdev(st.Dev_major, st.Dev_minor), st.Ino, int64(st.Size), st.Ctime.Sec, int64(st.Ctime.Nsec))
}

// mapFile leads to the file behind a mapping.
func (c *Cache) mapFile(pid uint32, m Mapping) string {
	return c.path(pid, fmt.Sprintf("map_files/%x-%x", m.Start, m.End))
}

// OpenIn opens a regular file for reading by its path in a process's root; process 1 has the
// host's.
func (c *Cache) OpenIn(pid uint32, path string) (*File, error) { return c.Files(pid).Open(path) }

// Open is OpenIn of the process.
func (f Files) Open(path string) (*File, error) {
	root := f.cache.path(f.pid, "root")
	file, err := f.openWithin(path, func() (*os.File, error) { return OpenInRoot(root, path) })
	if err != nil {
		return nil, fmt.Errorf("open %s of process %d: %w", path, f.pid, err)
	}
	return file, nil
}

// ErrReplaced means that the path leads to another file than the one that is mapped.
var ErrReplaced = errors.New("file was replaced")

// ErrNotRegular means that the path leads to a device, a pipe or another special file.
var ErrNotRegular = errors.New("not a regular file")

// OpenInRoot opens a regular file for reading as a process with that root
// would: symbolic links, absolute ones too, stay inside (openat2, Linux 5.6).
func OpenInRoot(root, path string) (*os.File, error) {
	dir, err := unix.Open(root, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: root, Err: err}
	}
	defer unix.Close(dir)
	fd, err := unix.Openat2(dir, path, &unix.OpenHow{
		Flags:   unix.O_PATH | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS,
	})
	if err != nil {
		return nil, &fs.PathError{Op: "openat2", Path: path, Err: err}
	}
	defer unix.Close(fd)
	return reopen(fd, path)
}

func openRegular(path string) (*os.File, error) {
	fd, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	defer unix.Close(fd)
	return reopen(fd, path)
}

// reopen turns an O_PATH descriptor into one for reading. The file type is checked first,
// because opening a device or a pipe can have effects, or never return.
func reopen(fd int, path string) (*os.File, error) {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, &fs.PathError{Op: "stat", Path: path, Err: err}
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return nil, &fs.PathError{Op: "open", Path: path, Err: ErrNotRegular}
	}
	own := fmt.Sprintf("/proc/self/fd/%d", fd)
	opened, err := Again(func() (int, error) { return unix.Open(own, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0) })
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	// Go adds what it opens itself, or what does not block, to its poller. FUSE passes that on to its
	// server (FUSE_POLL), and if that does not answer, the poller is locked, and all of Go waits for it.
	if err := unix.SetNonblock(opened, false); err != nil {
		unix.Close(opened)
		return nil, &fs.PathError{Op: "fcntl", Path: path, Err: err}
	}
	return os.NewFile(uintptr(opened), path), nil
}
