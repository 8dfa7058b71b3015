// SPDX-License-Identifier: Apache-2.0

package unwinder

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/gpu-gadgets/gpu-gadgets/internal/elf/unwind"
	"github.com/gpu-gadgets/gpu-gadgets/internal/ig"
	"github.com/gpu-gadgets/gpu-gadgets/internal/process/procmaps"
)

// maxFiles bounds how many files are kept open.
const (
	maxFiles = 512
	maxKeys  = 4 * maxFiles
)

// file is one whose rules are read.
type file struct {
	f *procmaps.File
	// rules is nil for a file without: its frames are found by frame pointers.
	rules  *unwind.File
	used   uint64
	tenant procmaps.Tenant // whose process had it first
}

// files are those that are open.
type files struct {
	open  map[Key]*file
	keys  map[mapped]Key // by what maps files show
	clock uint64
}

// mapped is a file by its device and inode in a maps file.
type mapped struct{ device, inode uint64 }

func newFiles() *files { return &files{open: map[Key]*file{}, keys: map[mapped]Key{}} }

func (fs *files) close() {
	for key, f := range fs.open {
		f.f.Close()
		delete(fs.open, key)
	}
}

// find is a file that is open and has not been changed since.
func (fs *files) find(key Key) *file {
	f := fs.open[key.file()]
	if f == nil {
		return nil
	}
	st, err := procmaps.Within(f.f, func() (st unix.Stat_t, err error) {
		err = unix.Fstat(int(f.f.Fd()), &st)
		return st, err
	})
	if err != nil || uint64(st.Size) != key.Bytes || changed(&st) != key.Changed {
		f.f.Close()
		delete(fs.open, key.file())
		return nil
	}
	fs.clock++
	f.used = fs.clock
	return f
}

// add keeps a file, which is then the cache's to close. A tenant with more than a quarter of them makes room by its own.
// An error means that the file could not be read, and is closed: its rules are not known.
func (fs *files) add(key Key, opened *procmaps.File, tenant procmaps.Tenant) (*file, error) {
	rules, err := unwind.Open(opened, int64(key.Bytes))
	switch {
	case errors.Is(err, unwind.ErrNotELF), errors.Is(err, unwind.ErrNoRules), errors.Is(err, unwind.ErrMalformed):
		rules = nil
	case err != nil:
		opened.Close()
		return nil, fmt.Errorf("read rules: %w", err)
	}
	if len(fs.open) >= maxFiles {
		its := 0
		for _, f := range fs.open {
			if f.tenant == tenant {
				its++
			}
		}
		var oldest Key
		least := uint64(1 << 63)
		for k, f := range fs.open {
			if f.used < least && (its <= maxFiles/4 || f.tenant == tenant) {
				oldest, least = k, f.used
			}
		}
		fs.open[oldest].f.Close()
		delete(fs.open, oldest)
	}
	if len(fs.keys) > maxKeys {
		clear(fs.keys)
	}
	fs.clock++
	f := &file{f: opened, rules: rules, used: fs.clock, tenant: tenant}
	fs.open[key.file()] = f
	return f, nil
}

var errOther = errors.New("the mapping is of another file by now")

// load puts the page of a miss into the map.
func (u *Unwinder) load(p *processes, miss Miss) error {
	if miss.Key.Inode == vdsoInode {
		return u.put(u.kernels(), miss.Key, p.tenant(miss.TGID))
	}
	f := u.files.find(miss.Key)
	if f == nil {
		s := p.of(miss)
		var err error
		f, err = u.openMapped(p, miss, s)
		if err != nil && !errors.Is(err, procmaps.ErrHangs) {
			if now := p.ofNow(miss.TGID); now != s { // it was of before
				f, err = u.openMapped(p, miss, now)
			}
		}
		if err != nil {
			return err
		}
	}
	return u.put(f, miss.Key, p.tenant(miss.TGID))
}

// openMapped opens the file of a miss, which a snapshot has.
func (u *Unwinder) openMapped(p *processes, miss Miss, s *procmaps.Snapshot) (*file, error) {
	if s == nil {
		return nil, procmaps.ErrGone
	}
	m, ok := s.Find(miss.Address)
	if !ok || m.Start != miss.Start || !m.IsFile() {
		return nil, errOther
	}
	return u.openFile(p, miss.TGID, m, miss.Key)
}

// openFile opens the file behind a mapping, which must be the one of the key.
func (u *Unwinder) openFile(p *processes, pid uint32, m procmaps.Mapping, key Key) (*file, error) {
	opened, err := u.cfg.Processes.Open(pid, m)
	if err != nil {
		return nil, err
	}
	if !isFile(opened, key) {
		opened.Close()
		return nil, errOther
	}
	u.files.keys[mapped{m.Device, m.Inode}] = key.file()
	return u.files.add(key, opened, p.tenant(pid))
}

// isFile: the kernel has a file's inode where the file system shows users another device, or,
// with overlayfs, the inode of the layer below.
func isFile(f *procmaps.File, key Key) bool {
	st := &f.Stat
	if uint64(st.Size) != key.Bytes || changed(st) != key.Changed {
		return false
	}
	if st.Ino == key.Inode && st.Dev == deviceOf(key.Device) {
		return true
	}
	switch f.FileSystem {
	case unix.OVERLAYFS_SUPER_MAGIC:
		return true
	case unix.BTRFS_SUPER_MAGIC:
		return st.Ino == key.Inode
	}
	return false
}

// deviceOf is st_dev of the kernel's own encoding (MAJOR and MINOR of include/linux/kdev_t.h).
func deviceOf(device uint32) uint64 { return unix.Mkdev(device>>20, device&(1<<20-1)) }

// put reads a page of a file and puts it into the map, for a tenant.
func (u *Unwinder) put(f *file, key Key, tenant procmaps.Tenant) error {
	parts := onePage(unwind.Frame)
	if f.rules != nil {
		begin := uint64(key.Page) << pageBits
		rows, err := f.rules.Rows(begin, begin+pageBytes)
		if err != nil {
			return fmt.Errorf("read rules: %w", err)
		}
		parts = encode(rows, begin)
	}
	if err := u.makeRoom(len(parts)); err != nil {
		return err
	}
	now := bootSeconds()
	for i, part := range slices.Backward(parts) { // the first one says that all are there
		key.Part = uint32(i)
		part.Used = now
		switch err := u.cfg.Pages.Update(key, &part, ebpf.UpdateNoExist); {
		case err == nil:
			u.pages++
			u.owners[key] = tenant
		case !errors.Is(err, ebpf.ErrKeyExist):
			return fmt.Errorf("write rules: %w", err)
		}
	}
	return nil
}

// has reports whether a page is in the map.
func (u *Unwinder) has(key Key) bool {
	var p Page
	return u.cfg.Pages.Lookup(key, &p) == nil
}

// bootSeconds is the clock of Page.Used: 2^30 ns each, since boot.
func bootSeconds() uint32 {
	return uint32(uint64(ig.SinceBoot()) >> 30)
}

// makeRoom removes the quarter of the pages that was not used for longest, if n more do not fit: of those tenants
// that have more than a quarter, if there are any.
func (u *Unwinder) makeRoom(n int) error {
	if u.pages+n <= u.limit {
		return nil
	}
	type entry struct {
		key  Key
		used uint32
	}
	var all []entry
	var key Key
	var p Page
	for it := u.cfg.Pages.Iterate(); it.Next(&key, &p); {
		all = append(all, entry{key, p.Used})
	}
	u.pages = len(all)
	of := map[procmaps.Tenant]int{}
	for _, e := range all {
		of[u.owners[e.key]]++
	}
	left := slices.DeleteFunc(slices.Clone(all), func(e entry) bool { return of[u.owners[e.key]] <= u.limit/4 })
	if len(left) < n {
		left = all
	}
	slices.SortFunc(left, func(a, b entry) int { return cmp.Compare(a.used, b.used) })
	for _, e := range left[:min(len(left), max(len(left)/4, n))] {
		u.remove(e.key)
		u.evicted.Add(1)
	}
	if u.pages+n > u.limit {
		return errors.New("no room for rules")
	}
	return nil
}

func (u *Unwinder) remove(key Key) {
	delete(u.owners, key)
	if u.cfg.Pages.Delete(key) == nil {
		u.pages--
	}
}
