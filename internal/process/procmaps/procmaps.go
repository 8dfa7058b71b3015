// SPDX-License-Identifier: Apache-2.0

// Package procmaps reads which files a process has mapped, from /proc/PID/maps, and keeps
// them, so that a stack recorded just before its process exited can still be named. Paths
// and sizes in those files are chosen by the observed process, so every length is
// bounded.
package procmaps

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"
)

const (
	// maxLine bounds a line. The kernel writes about lineBytes of columns and
	// a path of at most PATH_MAX (4096) bytes, a newline taking four.
	maxLine   = 32 << 10
	lineBytes = 75
	// maxMappings bounds what is returned of one file: four times vm.max_map_count's default
	// (65530).
	maxMappings = 1 << 18
	// maxLines and maxText, in bytes, bound the time for one file, and the memory: 65530 mappings
	// take 7 MiB where paths are as long as usual.
	maxLines = 1 << 22
	maxText  = 16 << 20
)

// ErrMalformed is in the chain of an error about a line that the kernel would
// not write.
var ErrMalformed = errors.New("malformed maps line")

// Perms are the permissions of a mapping.
type Perms uint8

// The bits of Perms.
const (
	Read Perms = 1 << iota
	Write
	Exec
	Shared
)

func (p Perms) String() string {
	b := []byte("---p")
	for i, bit := range []struct {
		p Perms
		c byte
	}{{Read, 'r'}, {Write, 'w'}, {Exec, 'x'}, {Shared, 's'}} {
		if p&bit.p != 0 {
			b[i] = bit.c
		}
	}
	return string(b)
}

// Mapping is one line of a maps file.
type Mapping struct {
	// Start and End are addresses in the process; End is not included.
	Start, End uint64
	// Offset is that of Start in the file, in bytes.
	Offset uint64
	Perms  Perms
	// Device is the file system's number in the encoding of stat's st_dev. On
	// overlayfs Device and Inode are those of the lower layer before Linux 6.7, and
	// those of stat from then on.
	Device uint64
	// Inode is 0 for memory without a file.
	Inode uint64
	// Path is as seen from the root of the process's mount namespace (not from
	// a chroot inside it), or a name in brackets such as [vdso], or empty.
	Path string
	// Deleted: the path no longer leads to this file.
	Deleted bool
}

// IsFile reports whether a file is behind the mapping.
func (m Mapping) IsFile() bool { return m.Inode != 0 && strings.HasPrefix(m.Path, "/") }

// FileOffset translates an address inside the mapping.
func (m Mapping) FileOffset(addr uint64) uint64 { return addr - m.Start + m.Offset }

var readers = sync.Pool{New: func() any { return bufio.NewReaderSize(nil, maxLine) }}

// Parse calls fn for every mapping of a maps file, in the order of the file,
// which the kernel sorts by address. It stops with fn's first false. Lines that
// are too long or malformed are skipped; their first error is returned at the
// end, so that a caller may use the rest.
func Parse(r io.Reader, fn func(Mapping) bool) error {
	br := readers.Get().(*bufio.Reader)
	br.Reset(r)
	defer func() {
		br.Reset(nil)
		readers.Put(br)
	}()
	var skipped error
	var last string // the path of the line before: mappings of a file are neighbours
	text := 0
	for n := 0; n < maxLines && text < maxText; n++ {
		line, err := br.ReadSlice('\n')
		text += len(line)
		if errors.Is(err, bufio.ErrBufferFull) {
			if skipped == nil {
				skipped = fmt.Errorf("%w: longer than %d bytes", ErrMalformed, maxLine)
			}
			for errors.Is(err, bufio.ErrBufferFull) {
				_, err = br.ReadSlice('\n')
			}
			line = nil
		}
		if line = bytes.TrimSuffix(line, []byte("\n")); len(line) > 0 {
			m, perr := parseLine(line, last)
			switch {
			case perr == nil:
				last = m.Path
				if !fn(m) {
					return skipped
				}
			case skipped == nil:
				skipped = perr
			}
		}
		if err == io.EOF {
			return skipped
		}
		if err != nil {
			return fmt.Errorf("read maps: %w", err)
		}
	}
	return skipped
}

// parseLine reads "start-end perms offset major:minor inode   path".
func parseLine(line []byte, last string) (Mapping, error) {
	var m Mapping
	rest := line
	field := func() []byte {
		var f []byte
		f, rest, _ = bytes.Cut(rest, []byte(" "))
		return f
	}
	start, end, ok := bytes.Cut(field(), []byte("-"))
	perms, offset := field(), field()
	major, minor, ok2 := bytes.Cut(field(), []byte(":"))
	inode := field()
	var err error
	number := func(b []byte, base, bits int) uint64 {
		v, e := strconv.ParseUint(string(b), base, bits)
		if e != nil {
			err = e
		}
		return v
	}
	m.Start, m.End = number(start, 16, 64), number(end, 16, 64)
	m.Offset = number(offset, 16, 64)
	m.Device = makedev(number(major, 16, 32), number(minor, 16, 32))
	m.Inode = number(inode, 10, 64)
	if !ok || !ok2 || err != nil || m.Start >= m.End || len(perms) != 4 {
		return m, fmt.Errorf("%w: %.80q", ErrMalformed, line)
	}
	for i, p := range []Perms{Read, Write, Exec} {
		if perms[i] != '-' {
			m.Perms |= p
		}
	}
	if perms[3] == 's' {
		m.Perms |= Shared
	}
	m.Path, m.Deleted = parsePath(bytes.TrimLeft(rest, " "), last)
	return m, nil
}

// parsePath undoes the kernel's escaping of a path: only a newline is escaped, as \012,
// not a backslash. The suffix " (deleted)" is not escaped, so a file with a name that
// ends in it looks deleted, too; callers that open the file still find it.
func parsePath(b []byte, last string) (string, bool) {
	path, deleted := withoutDeleted(b, last)
	return strings.ReplaceAll(path, `\012`, "\n"), deleted
}

// withoutDeleted returns a path without that suffix, and whether it had one. Where it is `last`, nothing is allocated.
func withoutDeleted(b []byte, last string) (string, bool) {
	b, deleted := bytes.CutSuffix(b, []byte(" (deleted)"))
	if string(b) == last {
		return last, deleted
	}
	return string(b), deleted
}

// makedev is glibc's: the encoding of st_dev.
func makedev(major, minor uint64) uint64 {
	return major&0xfff<<8 | major&^0xfff<<32 | minor&0xff | minor&^0xff<<12
}
