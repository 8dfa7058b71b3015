// SPDX-License-Identifier: Apache-2.0

package tracer

import (
	"bytes"
	"encoding/binary"
	"hash/maphash"
	"io"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpu-gadgets/gpu-gadgets/internal/process/memory"
	"github.com/gpu-gadgets/gpu-gadgets/internal/process/procmaps"
)

// place is a search list, by its hash, of a root directory.
type place struct {
	root rootKey
	list uint64
}

func placeOf(root rootKey, list string) place { return place{root, maphash.String(listSeed, list)} }

// listSeed keeps processes from choosing lists of the same hash as others'.
var listSeed = maphash.MakeSeed()

const (
	// maxPlaces bounds the memory of what was searched.
	maxPlaces = 1024
	// placeFresh is how long a place is not searched again; what is installed
	// in between is found when it is mapped.
	placeFresh = 30 * time.Second
	// Bounds of what a process can make this program read.
	maxEnviron = 64 << 10
	maxCache   = 4 << 20
	maxCached  = 1 << 15 // entries of ld.so.cache; a large installation has 5,000
	maxFound   = 64      // names of one directory, or of the cache
)

// search looks for the libraries that a process will load. What all of it may read is bounded: what it
// searches is the process's to choose.
type search struct {
	*Tracer
	pid    uint32
	root   rootKey
	tenant procmaps.Tenant
	view   procmaps.Files
	// What it may still do: read directories and names in them, open files, and attach to them.
	directories, names, opens, candidates int
	attached                              int // to files that were new
	cached                                int // bytes of ld.so.cache that were read
	waited                                time.Duration
}

func (t *Tracer) newSearch(pid uint32, root rootKey, tenant procmaps.Tenant) *search {
	return &search{
		Tracer: t, pid: pid, root: root, tenant: tenant, view: t.cfg.Maps.FilesOf(pid, tenant),
		directories: maxDirectories, names: maxNames, opens: maxOpens, candidates: maxCandidates,
	}
}

const (
	maxDirectories = 256
	maxNames       = 1 << 16
	maxListed      = 1 << 14 // names of one directory
	maxOpens       = 1024
	maxCandidates  = 64
	// maxWaited is for the file systems of the process, which may answer slowly each time: all other processes wait.
	maxWaited = time.Second
)

// cost estimates the processor time of a search from what it has read, as procmaps.Cost.
func (s *search) cost() time.Duration {
	return 50*time.Microsecond + time.Duration(maxDirectories-s.directories)*20*time.Microsecond +
		time.Duration(maxNames-s.names)*400*time.Nanosecond + time.Duration(maxOpens-s.opens)*10*time.Microsecond +
		time.Duration(s.attached)*fileCost + time.Duration(s.cached)*time.Nanosecond
}

// systemDirectories are where the dynamic linker, the NVIDIA container toolkit
// and CUDA's installers put libraries, besides those of ld.so.cache.
func systemDirectories() []string {
	triplet := map[string]string{"amd64": "x86_64-linux-gnu", "arm64": "aarch64-linux-gnu"}[runtime.GOARCH]
	return []string{
		"/lib/" + triplet, "/usr/lib/" + triplet, "/lib64", "/usr/lib64", "/usr/lib",
		"/usr/local/nvidia/lib64", "/usr/local/cuda/lib64", "/usr/local/cuda/compat",
		"/usr/lib/wsl/lib",
	}
}

// Expect attaches to what a process will load that is held back until then: the
// first one of a container, already in the container's root directory, which it enters
// without an event that reports it. When it returns, no first call will be missed.
func (t *Tracer) Expect(pid uint32) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.chosen(pid) {
		return
	}
	if p := t.processes[pid]; p != nil {
		p.root = t.rootOf(pid)
		if len(p.files) == 0 { // its windows are counted for its tenant
			p.tenant = t.tenantOf(pid)
		}
	}
	t.predict(pid)
}

// predict attaches to the libraries that a process would load from where the
// dynamic linker looks, before it maps them: from its first call on nothing is
// missed. Other libraries are found when they are mapped, and those of tenants that have cost too much.
func (t *Tracer) predict(pid uint32) {
	var root rootKey
	var tenant procmaps.Tenant
	if p := t.processes[pid]; p != nil {
		root, tenant = p.root, p.tenant
	} else {
		root, tenant = t.rootOf(pid), t.tenantOf(pid)
	}
	if root == (rootKey{}) {
		return // gone, or a kernel thread
	}
	if t.searched.Pause(tenant, time.Now()) > 0 {
		return
	}
	s := t.newSearch(pid, root, tenant)
	s.run()
	t.searched.Take(tenant, s.cost(), time.Now())
}

func (s *search) run() {
	if s.due(placeOf(s.root, "")) {
		paths := s.cachedLibraries()
		for _, dir := range systemDirectories() {
			for _, library := range s.libraries {
				// The names that a loader asks for; listing these large
				// directories would cost more.
				paths = append(paths, dir+"/"+library+".so", dir+"/"+library+".so.1", dir+"/"+library+".so.2")
			}
		}
		s.expect(paths)
	}
	environment, _ := memory.ReadEnvironmentOf(s.cfg.ProcFS, s.pid, s.tenant, maxEnviron) // none of one that has ended
	if list := environment.Last("LD_LIBRARY_PATH"); list != "" && s.due(placeOf(s.root, list)) {
		for dir := range strings.FieldsFuncSeq(list, func(r rune) bool { return r == ':' || r == ';' }) {
			s.expect(s.list(dir))
		}
	}
	if venv := environment.Last("VIRTUAL_ENV"); strings.HasPrefix(venv, "/") {
		for _, lib := range s.glob(filepath.Join(venv, "lib"), "python*") {
			s.site(lib + "/site-packages")
		}
	}
}

// sitePackages returns the directory of Python packages that a path is in.
func sitePackages(path string) string {
	for _, name := range []string{"/site-packages/", "/dist-packages/"} {
		if i := strings.Index(path, name); i >= 0 {
			return path[:i+len(name)-1]
		}
	}
	return ""
}

// predictSite is predict for a directory of Python packages.
func (t *Tracer) predictSite(pid uint32, site string) {
	root := t.rootOf(pid)
	if root == (rootKey{}) || !t.isDue(placeOf(root, site), time.Now()) {
		return
	}
	tenant := t.tenantOf(pid)
	if t.searched.Pause(tenant, time.Now()) > 0 {
		return
	}
	s := t.newSearch(pid, root, tenant)
	s.site(site)
	t.searched.Take(tenant, s.cost(), time.Now())
}

// site attaches to the libraries of the wheels in a directory of Python
// packages: nvidia/NAME/lib and torch/lib.
func (s *search) site(site string) {
	if !s.due(placeOf(s.root, site)) {
		return
	}
	for _, dir := range s.glob(site+"/nvidia", "*") {
		s.expect(s.list(dir + "/lib"))
	}
	s.expect(s.list(site + "/torch/lib"))
}

// due reports whether a place is to be searched, which is then done now.
func (t *Tracer) due(p place) bool {
	now := time.Now()
	if !t.isDue(p, now) {
		return false
	}
	if len(t.expected) >= maxPlaces {
		clear(t.expected)
	}
	t.expected[p] = now
	return true
}

func (t *Tracer) isDue(p place, now time.Time) bool {
	last, ok := t.expected[p]
	return !ok || now.Sub(last) >= placeFresh
}

// expect attaches to those paths, as the process sees them, that are libraries.
func (s *search) expect(paths []string) {
	for _, path := range paths {
		library := s.matches(path)
		if library == "" || s.opens == 0 || s.candidates == 0 || s.waited > maxWaited || s.cfg.USDT.has(library) {
			continue
		}
		s.opens--
		began := time.Now()
		f, err := s.view.Open(path)
		s.waited += time.Since(began)
		if err != nil {
			continue
		}
		s.candidates--
		if key, err := identify(f, procmaps.Mapping{}); err == nil {
			if s.files[key] == nil {
				s.attached++
			}
			if lib := s.attach(f, key, library, s.tenant); lib.attached() {
				lib.roots[s.root] = true
			}
		}
		f.Close()
	}
}

// openDirectory opens a directory as the process sees it; -1: it cannot be opened.
func (t *Tracer) openDirectory(pid uint32, dir string) int {
	fd, err := unix.Open(t.proc(pid, "root"), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1
	}
	defer unix.Close(fd)
	d, err := unix.Openat2(fd, dir, &unix.OpenHow{
		Flags:   unix.O_RDONLY | unix.O_DIRECTORY | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS,
	})
	if err != nil {
		return -1
	}
	return d
}

// list returns the paths of a directory that look like wanted libraries.
func (s *search) list(dir string) []string {
	return s.read(dir, func(name string) bool { return s.matches(name) != "" })
}

// glob returns the paths of a directory whose names match a pattern.
func (s *search) glob(dir, pattern string) []string {
	return s.read(dir, func(name string) bool {
		ok, _ := filepath.Match(pattern, name)
		return ok
	})
}

func (s *search) read(dir string, want func(string) bool) []string {
	if !strings.HasPrefix(dir, "/") {
		return nil // relative to a working directory that changes
	}
	if s.directories == 0 || s.names == 0 || s.waited > maxWaited {
		return nil
	}
	s.directories--
	began := time.Now()
	defer func() { s.waited += time.Since(began) }()
	most := min(s.names, maxListed)
	var out []string
	var n int
	if s.view.Within(dir, func() { out, n = s.namesOf(s.pid, dir, most, want) }) != nil {
		return nil
	}
	s.names -= min(n, s.names)
	return out
}

// namesOf reads as many names as it may, in a file system that answers, and returns those that
// are wanted, and how many it has read.
func (t *Tracer) namesOf(pid uint32, dir string, most int, want func(string) bool) (out []string, n int) {
	fd := t.openDirectory(pid, dir)
	if fd < 0 {
		return nil, 0
	}
	defer unix.Close(fd)
	entries := make([]byte, 8<<10) // as Go's own files, which ask for ever if a server of FUSE answers EINTR
	for n < most && len(out) < maxFound {
		read, err := procmaps.Again(func() (int, error) { return unix.Getdents(fd, entries) })
		if err != nil || read == 0 {
			break
		}
		_, _, names := unix.ParseDirent(entries[:read], -1, nil)
		for _, name := range names {
			if want(name) && len(out) < maxFound {
				out = append(out, dir+"/"+name)
			}
		}
		n += max(1, len(names)) // there may be none but the directory itself, without end
	}
	slices.Sort(out)
	return out, n
}

// cachedLibraries returns the paths of wanted libraries in ld.so.cache.
func (s *search) cachedLibraries() []string {
	f, err := s.view.Open("/etc/ld.so.cache")
	if err != nil {
		return nil
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxCache))
	if err != nil {
		return nil
	}
	s.cached = len(b)
	return s.parseCache(b)
}

// parseCache reads the format of glibc 2.2 and later (struct cache_file_new in
// sysdeps/generic/dl-cache.h): a header of 48 bytes with the number of entries
// at 20, then entries of 24 bytes with the offset of the path at 8. An older
// table may come before it.
func (t *Tracer) parseCache(b []byte) []string {
	const magic, header, entry = "glibc-ld.so.cache1.1", 48, 24
	start := bytes.Index(b, []byte(magic))
	if start < 0 || len(b)-start < header {
		return nil
	}
	b = b[start:]
	count := min(uint64(binary.NativeEndian.Uint32(b[len(magic):])), maxCached)
	var out []string
	for i := uint64(0); i < count && header+(i+1)*entry <= uint64(len(b)) && len(out) < maxFound; i++ {
		at := uint64(binary.NativeEndian.Uint32(b[header+i*entry+8:]))
		if at >= uint64(len(b)) {
			continue
		}
		value := b[at:min(at+unix.PathMax, uint64(len(b)))]
		if end := bytes.IndexByte(value, 0); end > 0 && t.matches(string(value[:end])) != "" {
			out = append(out, string(value[:end]))
		}
	}
	return out
}
