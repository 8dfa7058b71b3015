// SPDX-License-Identifier: Apache-2.0

package procmaps

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"
)

// errNoQueries means that a maps file answers no queries: the kernel is older than Linux 6.11, or the file is not the
// kernel's.
var errNoQueries = errors.New("mappings cannot be queried")

// procmapQuery is struct procmap_query of include/uapi/linux/fs.h.
type procmapQuery struct {
	size, flags, address                       uint64
	start, end, perms, pageSize, offset, inode uint64
	major, minor, nameSize, idSize             uint32
	name, id                                   uint64
}

const (
	querySize     = 104
	queryMappings = 3<<30 | querySize<<16 | 'f'<<8 | 17 // PROCMAP_QUERY
	// The flags: code, at the address or behind it. The kernel's bits of perms are those of Perms.
	queryExecutable = 0x04
	queryNext       = 0x10
)

// names are buffers for answers.
var names = sync.Pool{New: func() any { return new([unix.PathMax]byte) }}

// query returns those executable mappings of a maps file for which keep is true, as Parse finds them, but the
// kernel does not write a line for each of the others. A path that is too long for an answer is unix.ENAMETOOLONG.
func query(maps *os.File, keep func(Mapping) bool) (out []Mapping, err error) {
	name := names.Get().(*[unix.PathMax]byte)
	defer names.Put(name)
	q := procmapQuery{size: querySize, flags: queryExecutable | queryNext, name: uint64(uintptr(unsafe.Pointer(name)))}
	last, text := "", 0
	for text < maxText && len(out) < maxMappings {
		q.nameSize = uint32(len(name)) // the answer has another
		switch _, _, errno := unix.Syscall(unix.SYS_IOCTL, maps.Fd(), queryMappings, uintptr(unsafe.Pointer(&q))); errno {
		case 0:
		case unix.ENOENT, unix.ESRCH: // no more, or none of a process that has ended
			return out, nil
		case unix.ENOTTY, unix.EINVAL, unix.ENOSYS, unix.EOPNOTSUPP, unix.EPERM:
			return nil, errNoQueries
		default:
			return nil, fmt.Errorf("query mappings: %w", errno)
		}
		path, _, _ := bytes.Cut(name[:min(int(q.nameSize), len(name))], []byte{0})
		m := Mapping{Start: q.start, End: q.end, Offset: q.offset, Perms: Perms(q.perms) & (Read | Write | Exec | Shared),
			Device: makedev(uint64(q.major), uint64(q.minor)), Inode: q.inode}
		m.Path, m.Deleted = withoutDeleted(path, last)
		if keep(m) {
			out = append(out, m)
		}
		q.address, last = m.End, m.Path
		text += lineBytes + len(path)
	}
	return out, nil
}
