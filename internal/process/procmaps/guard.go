// SPDX-License-Identifier: Apache-2.0

package procmaps

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// ErrHangs means that a file system of a process does not answer: a server of FUSE that has stopped, or
// an NFS server that cannot be reached. The same for a process that hangs.
var ErrHangs = errors.New("it, or its file system, does not answer")

const (
	// answerLimit is how long a file system may take. One that answers later is used again from then
	// on.
	answerLimit = 500 * time.Millisecond
	// A tenant may make us wait for two seconds, and for a fiftieth of the time after that; then
	// its file systems have to answer within leastLimit, which does not count.
	maxWait    = 2 * time.Second
	waitShare  = 50
	leastLimit = 10 * time.Millisecond
	// The reads of one file together may take what its tenant has left, and then a fiftieth of the time: a reader of tables holds
	// locks, and one of a large library on NFS takes a second. quickRead of each does not count, which one of the page cache takes; freeOfFile is not charged to the tenant.
	freeOfFile = 2 * leastLimit
	quickRead  = 200 * time.Microsecond
	// maxHanging bounds the threads that wait in the kernel, of one tenant and of all. Places
	// that have answered before may double it, and a tenant of which none waits may have one.
	maxHanging    = 8
	maxHangingAll = 64
	// maxPlaces of a tenant and maxTenants bound what is remembered.
	maxPlaces  = 64
	maxTenants = 1024
)

// Guard runs what may wait for a file system or a process in threads of its own, which it leaves where they are if
// there is no answer: no signal ends such a wait.
type Guard struct {
	mu      sync.Mutex
	tenants map[Tenant]*answers
	hanging int
}

// answers has what was found out about the file systems of a tenant.
type answers struct {
	hanging map[string]bool // places
	came    map[string]bool
	calls   int           // that have not returned: it is not forgotten
	left    time.Duration // that we may wait
	at      time.Time     // when that was so
	// unclosed are files that are to be closed once what hangs has returned: to close one is a request to its server.
	unclosed []unclosed
}

type unclosed struct {
	place string
	file  io.Closer
}

// fileReads has what the reads of an open file have taken. The zero value is for a new one.
type fileReads struct {
	left time.Duration // that they may take
	at   time.Time     // when that was so
	free time.Duration // of what they have taken: it was not charged
}

// use is that of a place of a tenant: to read an open file, or, without reads, for something else.
type use struct {
	tenant Tenant
	place  string
	reads  *fileReads
}

// Run calls fn, which uses a place of a tenant, and waits for it, for a limited time. After ErrHangs
// fn still runs, or is not run at all.
func (g *Guard) Run(of Tenant, place string, fn func()) error {
	_, err := g.run(use{of, place, nil}, fn)
	return err
}

func (g *Guard) run(u use, fn func()) (isRun bool, err error) {
	a, limit := g.begin(u, time.Now())
	if limit == 0 {
		return false, ErrHangs
	}
	began := time.Now()
	done := make(chan struct{})
	go func() {
		defer close(done)
		fn()
	}()
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C:
		err = ErrHangs
	}
	g.end(a, u, time.Since(began), err == nil)
	if err != nil {
		go func() {
			<-done
			g.answered(a, u)
		}()
	}
	return true, err
}

// Close closes a file of a place and does not wait for it.
func (g *Guard) Close(of Tenant, place string, file io.Closer) {
	go func() {
		if isRun, _ := g.run(use{of, place, nil}, func() { file.Close() }); isRun {
			return
		}
		g.mu.Lock()
		defer g.mu.Unlock()
		if a := g.tenants[of]; a != nil && len(a.hanging) > 0 {
			a.unclosed = append(a.unclosed, unclosed{place, file})
		} else { // it has returned since
			g.Close(of, place, file)
		}
	}()
}

// Guarded is Run for what has a result.
func Guarded[T any](g *Guard, of Tenant, place string, fn func() (T, error)) (T, error) {
	return guarded(g, use{of, place, nil}, fn)
}

func guarded[T any](g *Guard, u use, fn func() (T, error)) (T, error) {
	type result struct {
		value T
		err   error
	}
	done := make(chan result, 1)
	if _, err := g.run(u, func() {
		value, err := fn()
		done <- result{value, err}
	}); err != nil {
		var none T
		return none, err
	}
	r := <-done
	return r.value, r.err
}

// GuardedReadAt is Guarded for io.ReaderAt.
func GuardedReadAt(g *Guard, of Tenant, place string, from io.ReaderAt, b []byte, at int64) (int, error) {
	return g.readAt(use{of, place, nil}, from, b, at)
}

func (g *Guard) readAt(u use, from io.ReaderAt, b []byte, at int64) (int, error) {
	content, err := guarded(g, u, func() ([]byte, error) {
		own := make([]byte, len(b)) // the caller may have returned
		n, err := from.ReadAt(own, at)
		return own[:n], err
	})
	return copy(b, content), err
}

// begin returns how long a call may take; 0: it may not be made.
func (g *Guard) begin(u use, now time.Time) (*answers, time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	a := g.tenants[u.tenant]
	if a == nil {
		g.forget()
		a = &answers{hanging: map[string]bool{}, came: map[string]bool{}, left: maxWait, at: now}
		g.tenants[u.tenant] = a
	}
	times := 1
	if a.came[u.place] {
		times = 2
	}
	if a.hanging[u.place] || len(a.hanging) >= times*maxHanging || g.hanging >= times*maxHangingAll && len(a.hanging) > 0 {
		return a, 0
	}
	a.left = min(a.left+now.Sub(a.at)/waitShare, maxWait)
	a.at = now
	limit := min(max(a.left, leastLimit), answerLimit)
	if r := u.reads; r != nil {
		r.left = min(r.left+now.Sub(r.at)/waitShare, max(a.left, leastLimit))
		r.at = now
		if r.left <= 0 {
			return a, 0
		}
		limit = min(max(r.left, leastLimit), answerLimit)
	}
	a.calls++
	return a, limit
}

// forget makes room for a tenant; it removes those in which no call runs: most have ended.
func (g *Guard) forget() {
	if g.tenants == nil {
		g.tenants = map[Tenant]*answers{}
	}
	if len(g.tenants) < maxTenants {
		return
	}
	for of, a := range g.tenants {
		if a.calls == 0 && len(a.unclosed) == 0 {
			delete(g.tenants, of)
		}
	}
}

// end takes what a call has taken off what its tenant may.
func (g *Guard) end(a *answers, u use, took time.Duration, answered bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	free := leastLimit // which a busy machine alone may take
	if r := u.reads; r != nil {
		r.left -= max(took-quickRead, 0)
		free = max(min(leastLimit, freeOfFile-r.free), quickRead)
		r.free += max(min(took, free)-quickRead, 0)
	}
	a.left -= max(took-free, 0)
	if answered {
		a.calls--
	}
	switch {
	case !answered:
		a.hanging[u.place] = true
		g.hanging++
	case len(a.came) < maxPlaces:
		a.came[u.place] = true
	}
}

// answered is called when a call that was given up returns.
func (g *Guard) answered(a *answers, of use) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(a.hanging, of.place)
	g.hanging--
	a.calls--
	for _, u := range a.unclosed {
		g.Close(of.tenant, u.place, u.file)
	}
	a.unclosed = nil
}

// Files are those of a process, as it sees them; whom it belongs to is read once for many.
type Files struct {
	cache   *Cache
	pid     uint32
	tenant  Tenant
	mountNS uint64
}

// Files returns those of a process.
func (c *Cache) Files(pid uint32) Files { return c.FilesOf(pid, c.Tenant(pid)) }

// FilesOf is Files of a process whose tenant is known.
func (c *Cache) FilesOf(pid uint32, tenant Tenant) Files {
	return Files{c, pid, tenant, MountNS(c.cfg.ProcFS, pid)}
}

// MountNS is the number of the process's mount namespace; 0: it was gone.
func (f Files) MountNS() uint64 { return f.mountNS }

// Within runs what looks for files of a process in a directory, as the process sees it, and returns
// ErrHangs if a file system does not answer. fn may then still be running: what it changes is its own.
func (f Files) Within(dir string, fn func()) error {
	return f.cache.guard.Run(f.tenant, f.place(dir), fn)
}

// place is a directory of a process: the same one is another file system elsewhere.
func (f Files) place(dir string) string { return fmt.Sprint(f.mountNS, dir) }

// Within is that of Files, for one use.
func (c *Cache) Within(pid uint32, dir string, fn func()) error { return c.Files(pid).Within(dir, fn) }

// openWithin is Within for what opens a file, which is closed if it comes too late.
func (f Files) openWithin(path string, open func() (*os.File, error)) (*File, error) {
	var mu sync.Mutex
	var file *File
	err, late := ErrHangs, false
	if hangs := f.Within(filepath.Dir(path), func() {
		opened, failed := f.opened(path, open)
		mu.Lock()
		defer mu.Unlock()
		if late && opened != nil {
			opened.Close()
			return
		}
		file, err = opened, failed
	}); hangs != nil {
		mu.Lock()
		defer mu.Unlock()
		late = true
	}
	return file, err
}

func (f Files) opened(path string, open func() (*os.File, error)) (*File, error) {
	file, err := NewFile(open())
	if err != nil {
		return nil, err
	}
	if !answersItself(file.FileSystem) {
		file.guard, file.use = &f.cache.guard, use{f.tenant, f.place(filepath.Dir(path)), &fileReads{}}
	}
	return file, nil
}
