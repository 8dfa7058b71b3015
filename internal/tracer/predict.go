// SPDX-License-Identifier: Apache-2.0

package tracer

import (
	"bytes"
	"encoding/binary"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpu-gadgets/gpu-gadgets/internal/process/procmaps"
)

// place is a search list of a root directory.
type place struct {
	root rootKey
	list string
}

const (
	// maxPlaces bounds the memory of what was searched.
	maxPlaces = 1024
	// placeFresh is how long a place is not searched again; what is installed
	// in between is found when it is mapped.
	placeFresh = 30 * time.Second
	// Bounds of what a process can make this program read.
	maxEnviron     = 64 << 10
	maxCache       = 4 << 20
	maxCached      = 1 << 15 // entries of ld.so.cache; a large installation has 5,000
	maxDirectories = 64
	maxNames       = 16384 // of one directory
	maxCandidates  = 32    // of one search
)

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
	}
	t.predict(pid)
}

// predict attaches to the libraries that a process would load from where the
// dynamic linker looks, before it maps them: from its first call on nothing is
// missed. Other libraries are found when they are mapped.
func (t *Tracer) predict(pid uint32) {
	var root rootKey
	if p := t.processes[pid]; p != nil {
		root = p.root
	} else {
		root = t.rootOf(pid)
	}
	if root == (rootKey{}) {
		return // gone, or a kernel thread
	}
	if t.due(place{root, ""}) {
		paths := t.cachedLibraries(pid)
		for _, dir := range systemDirectories() {
			for _, library := range t.libraries {
				// The names that a loader asks for; listing these large
				// directories would cost more.
				paths = append(paths, dir+"/"+library+".so", dir+"/"+library+".so.1", dir+"/"+library+".so.2")
			}
		}
		t.expect(pid, root, paths)
	}
	env := t.environ(pid, "LD_LIBRARY_PATH=", "VIRTUAL_ENV=")
	if env[0] != "" && t.due(place{root, env[0]}) {
		for dir := range strings.FieldsFuncSeq(env[0], func(r rune) bool { return r == ':' || r == ';' }) {
			t.expect(pid, root, t.list(pid, dir))
		}
	}
	if venv := env[1]; strings.HasPrefix(venv, "/") {
		for _, lib := range t.glob(pid, filepath.Join(venv, "lib"), "python*") {
			t.predictSite(pid, lib+"/site-packages")
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

// predictSite attaches to the libraries of the wheels in a directory of Python
// packages: nvidia/NAME/lib and torch/lib.
func (t *Tracer) predictSite(pid uint32, site string) {
	root := t.rootOf(pid)
	if root == (rootKey{}) || !t.due(place{root, site}) {
		return
	}
	for _, dir := range t.glob(pid, site+"/nvidia", "*") {
		t.expect(pid, root, t.list(pid, dir+"/lib"))
	}
	t.expect(pid, root, t.list(pid, site+"/torch/lib"))
}

// due reports whether a place is to be searched now.
func (t *Tracer) due(p place) bool {
	now := time.Now()
	if last, ok := t.expected[p]; ok && now.Sub(last) < placeFresh {
		return false
	}
	if len(t.expected) >= maxPlaces {
		clear(t.expected)
	}
	t.expected[p] = now
	return true
}

// expect attaches to those paths, as the process sees them, that are libraries.
func (t *Tracer) expect(pid uint32, root rootKey, paths []string) {
	attached := 0
	for _, path := range paths {
		library := t.matches(path)
		if library == "" || attached >= maxCandidates || t.cfg.USDT.has(library) {
			continue
		}
		f, err := t.cfg.Maps.OpenIn(pid, path)
		if err != nil {
			continue
		}
		if key, err := identify(f, procmaps.Mapping{}); err == nil {
			if lib := t.attach(f, key, library); lib.attached() {
				lib.roots[root] = true
				attached++
			}
		}
		f.Close()
	}
}

// openDirectory opens a directory as the process sees it.
func (t *Tracer) openDirectory(pid uint32, dir string) *os.File {
	fd, err := unix.Open(t.proc(pid, "root"), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil
	}
	defer unix.Close(fd)
	d, err := unix.Openat2(fd, dir, &unix.OpenHow{
		Flags:   unix.O_RDONLY | unix.O_DIRECTORY | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS,
	})
	if err != nil {
		return nil
	}
	return os.NewFile(uintptr(d), dir)
}

// list returns the paths of a directory that look like wanted libraries.
func (t *Tracer) list(pid uint32, dir string) []string {
	return t.read(pid, dir, func(name string) bool { return t.matches(name) != "" })
}

// glob returns the paths of a directory whose names match a pattern.
func (t *Tracer) glob(pid uint32, dir, pattern string) []string {
	return t.read(pid, dir, func(name string) bool {
		ok, _ := filepath.Match(pattern, name)
		return ok
	})
}

func (t *Tracer) read(pid uint32, dir string, want func(string) bool) []string {
	if !strings.HasPrefix(dir, "/") {
		return nil // relative to a working directory that changes
	}
	var out []string
	if t.cfg.Maps.Within(pid, dir, func() { out = t.names(pid, dir, want) }) != nil {
		return nil
	}
	return out
}

// names is read for a file system that answers.
func (t *Tracer) names(pid uint32, dir string, want func(string) bool) (out []string) {
	d := t.openDirectory(pid, dir)
	if d == nil {
		return nil
	}
	defer d.Close()
	for n := 0; n < maxNames && len(out) < maxDirectories; {
		names, err := d.Readdirnames(256)
		for _, name := range names {
			if want(name) && len(out) < maxDirectories {
				out = append(out, dir+"/"+name)
			}
		}
		n += len(names)
		if err != nil {
			break
		}
	}
	slices.Sort(out)
	return out
}

// environ returns the values of variables (given as NAME=) of a process.
func (t *Tracer) environ(pid uint32, names ...string) []string {
	out := make([]string, len(names))
	var b []byte
	// It may be in a page of a file whose file system does not answer.
	if t.cfg.Maps.Within(pid, "environ", func() {
		f, err := os.Open(t.proc(pid, "environ"))
		if err != nil {
			return
		}
		defer f.Close()
		b, _ = io.ReadAll(io.LimitReader(f, maxEnviron))
	}) != nil {
		return out
	}
	for variable := range bytes.SplitSeq(b, []byte{0}) {
		for i, name := range names {
			if v, ok := bytes.CutPrefix(variable, []byte(name)); ok {
				out[i] = string(v)
			}
		}
	}
	return out
}

// cachedLibraries returns the paths of wanted libraries in ld.so.cache.
func (t *Tracer) cachedLibraries(pid uint32) []string {
	f, err := t.cfg.Maps.OpenIn(pid, "/etc/ld.so.cache")
	if err != nil {
		return nil
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxCache))
	if err != nil {
		return nil
	}
	return t.parseCache(b)
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
	for i := uint64(0); i < count && header+(i+1)*entry <= uint64(len(b)) && len(out) < maxDirectories; i++ {
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
