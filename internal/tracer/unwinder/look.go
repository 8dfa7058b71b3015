// SPDX-License-Identifier: Apache-2.0

package unwinder

import (
	"encoding/binary"
	"errors"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpu-gadgets/gpu-gadgets/internal/process/memory"
	"github.com/gpu-gadgets/gpu-gadgets/internal/process/procmaps"
)

const (
	// lookBytes is how much of a stack is read: 32 frames seldom exceed it.
	lookBytes = 64 << 10
	// lookPages bounds what one look loads.
	lookPages = 1024
	// lookEach is how often the stacks of a process are read.
	lookEach  = 10 * time.Millisecond
	maxLooked = 4096
)

// look loads the pages of all addresses of code that are above the stack pointer of a miss: return
// addresses of the callers, and what is left of earlier calls. The thread may be elsewhere by
// now; what is read then is of no harm, as pages are rules of a file and not of a stack.
func (u *Unwinder) look(p *processes, miss Miss) {
	s := p.of(miss)
	if s == nil {
		return
	}
	reader, err := memory.Open(u.cfg.ProcFS, miss.TGID)
	if err != nil {
		return
	}
	defer reader.Close()
	stack := make([]byte, lookBytes)
	n, _ := reader.ReadAt(stack, int64(miss.SP)) // up to the end of the stack
	type found struct {
		key Key
		f   *file
	}
	known := map[uint64]found{} // by the mapping's start
	seen := map[Key]bool{}
	for stack = stack[:n&^7]; len(stack) > 0 && len(seen) < lookPages; stack = stack[8:] {
		at := word(stack) - 1
		m, ok := s.Find(at)
		if !ok || !m.IsFile() {
			continue
		}
		of, ok := known[m.Start]
		if !ok {
			of.key, of.f = u.fileOf(p, miss.TGID, m)
			known[m.Start] = of
		}
		key, f := of.key, of.f
		if f == nil {
			continue
		}
		key.Page = uint32(m.FileOffset(at) >> pageBits)
		if seen[key] {
			continue
		}
		seen[key] = true
		if u.has(key) {
			continue
		}
		switch err := u.put(f, key, p.tenant(miss.TGID)); {
		case errors.Is(err, procmaps.ErrHangs):
			known[m.Start] = found{} // what others are likely to call is loaded all the same
		case err != nil:
			return
		}
	}
}

// word is an address of the stack: on arm64 without the code that signs it.
func word(b []byte) uint64 { return binary.NativeEndian.Uint64(b) & (1<<48 - 1) }

// fileOf is the file behind a mapping, if what maps files show of it is what the kernel has:
// with overlayfs it is not (internal/process/procmaps, Mapping.Device).
func (u *Unwinder) fileOf(p *processes, pid uint32, m procmaps.Mapping) (Key, *file) {
	place := mapped{m.Device, m.Inode}
	if key, ok := u.files.keys[place]; ok {
		if f := u.files.find(key); f != nil {
			return key, f
		}
	}
	opened, err := u.cfg.Processes.Open(pid, m)
	if err != nil {
		return Key{}, nil
	}
	st := &opened.Stat
	key := Key{Inode: st.Ino, Bytes: uint64(st.Size), Device: unix.Major(st.Dev)<<20 | unix.Minor(st.Dev), Changed: changed(st)}
	if st.Ino != m.Inode || st.Dev != m.Device || opened.FileSystem == unix.OVERLAYFS_SUPER_MAGIC || !isFile(opened, key) {
		opened.Close()
		return Key{}, nil
	}
	u.files.keys[place] = key
	if f := u.files.find(key); f != nil {
		opened.Close()
		return key, f
	}
	f, err := u.files.add(key, opened, p.tenant(pid))
	if err != nil {
		return Key{}, nil
	}
	return key, f
}
