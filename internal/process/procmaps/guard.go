// SPDX-License-Identifier: Apache-2.0

package procmaps

import (
	"errors"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// ErrHangs means that a file system of a process does not answer: a server of FUSE that has stopped, or
// an NFS server that cannot be reached.
var ErrHangs = errors.New("its file system does not answer")

const (
	// answerLimit is how long a file system may take. One that answers later is used again from then
	// on.
	answerLimit = 500 * time.Millisecond
	// A mount namespace may make us wait for two seconds, and for a fiftieth of the time after that; then
	// its file systems have to answer within leastLimit.
	maxWait    = 2 * time.Second
	waitShare  = 50
	leastLimit = 10 * time.Millisecond
	// maxHanging bounds the threads that wait in the kernel, of one mount namespace and of all. Places
	// that have answered before may double it.
	maxHanging    = 8
	maxHangingAll = 64
	// maxPlaces and maxNamespaces bound what is remembered.
	maxPlaces     = 4096
	maxNamespaces = 1024
)

// guard runs what may wait for a file system in threads of its own, which it leaves where they are if
// there is no answer: no signal ends such a wait.
type guard struct {
	mu         sync.Mutex
	namespaces map[string]*namespace
	hanging    int
	places     int
}

// namespace has what was found out about the file systems of a mount namespace.
type namespace struct {
	hanging map[string]bool // directories
	answers map[string]bool
	calls   int           // that have not returned: it is not forgotten
	left    time.Duration // that we may wait
	at      time.Time     // when that was so
}

// run calls fn, which uses a directory of a mount namespace, and waits for it, for a limited time. After
// ErrHangs fn still runs, or is not run at all.
func (g *guard) run(of, dir string, fn func()) error {
	n, limit := g.begin(of, dir, time.Now())
	if limit == 0 {
		return ErrHangs
	}
	began := time.Now()
	done := make(chan struct{})
	go func() {
		defer close(done)
		fn()
	}()
	timer := time.NewTimer(limit)
	defer timer.Stop()
	var err error
	select {
	case <-done:
	case <-timer.C:
		err = ErrHangs
	}
	g.end(n, dir, time.Since(began), err == nil)
	if err != nil {
		go func() {
			<-done
			g.answered(n, dir)
		}()
	}
	return err
}

// begin returns how long a call may take; 0: it may not be made.
func (g *guard) begin(of, dir string, now time.Time) (*namespace, time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	n := g.namespaces[of]
	if n == nil {
		g.forget()
		n = &namespace{hanging: map[string]bool{}, answers: map[string]bool{}, left: maxWait, at: now}
		g.namespaces[of] = n
	}
	times := 1
	if n.answers[dir] {
		times = 2
	}
	if n.hanging[dir] || len(n.hanging) >= times*maxHanging || g.hanging >= times*maxHangingAll {
		return n, 0
	}
	n.calls++
	n.left = min(n.left+now.Sub(n.at)/waitShare, maxWait)
	n.at = now
	return n, min(max(n.left, leastLimit), answerLimit)
}

// forget makes room for a mount namespace; it removes those in which no call runs: most have ended.
func (g *guard) forget() {
	if g.namespaces == nil {
		g.namespaces = map[string]*namespace{}
	}
	if len(g.namespaces) < maxNamespaces && g.places < maxPlaces {
		return
	}
	for of, n := range g.namespaces {
		if n.calls == 0 {
			delete(g.namespaces, of)
			g.places -= len(n.answers)
		}
	}
}

// end takes what a call has taken off what its namespace may.
func (g *guard) end(n *namespace, dir string, took time.Duration, answered bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	n.left -= took
	if answered {
		n.calls--
	}
	switch {
	case !answered:
		n.hanging[dir] = true
		g.hanging++
	case !n.answers[dir] && g.places < maxPlaces:
		n.answers[dir] = true
		g.places++
	}
}

// answered is called when a call that was given up returns.
func (g *guard) answered(n *namespace, dir string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(n.hanging, dir)
	g.hanging--
	n.calls--
}

// Within runs what looks for files of a process in a directory, as the process sees it, and returns
// ErrHangs if a file system does not answer. fn may then still be running: what it changes is its own.
func (c *Cache) Within(pid uint32, dir string, fn func()) error {
	namespace, _ := os.Readlink(c.path(pid, "ns/mnt"))
	return c.guard.run(namespace, dir, fn)
}

// openWithin is Within for what opens a file, which is closed if it comes too late.
func (c *Cache) openWithin(pid uint32, path string, open func() (*os.File, error)) (*os.File, error) {
	var mu sync.Mutex
	var file *os.File
	err, late := ErrHangs, false
	if hangs := c.Within(pid, filepath.Dir(path), func() {
		f, failed := open()
		mu.Lock()
		defer mu.Unlock()
		if late && f != nil {
			f.Close()
			return
		}
		file, err = f, failed
	}); hangs != nil {
		mu.Lock()
		defer mu.Unlock()
		late = true
	}
	return file, err
}
