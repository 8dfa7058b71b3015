// SPDX-License-Identifier: Apache-2.0

package procmaps

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"time"
)

// ErrStuck means that the kernel did not answer in time. Reading mappings waits for a
// lock of the process, which one that hangs in a driver may never release.
var ErrStuck = errors.New("mappings cannot be read: the process hangs in the kernel")

const (
	// readTimeout is a hundred times what reading a large process takes.
	readTimeout = 250 * time.Millisecond
	// maxReading bounds the goroutines, and their threads, that wait for
	// processes that hang. A tenant may have a quarter of them, and one of which none waits may always have one.
	maxReading = 64
)

// Read returns those mappings of a process, now, for which keep is true, sorted
// by address; at most 262,144. keep is called from another goroutine, which may
// continue after Read has returned ErrStuck.
func (c *Cache) Read(pid uint32, keep func(Mapping) bool) ([]Mapping, error) {
	return c.readWith(pid, func(maps *os.File) ([]Mapping, error) { return parse(maps, keep) })
}

// readWith is Read for what reads a maps file; read is called as keep is.
func (c *Cache) readWith(pid uint32, read func(maps *os.File) ([]Mapping, error)) ([]Mapping, error) {
	if !c.beginRead(pid) {
		return nil, fmt.Errorf("process %d: %w", pid, ErrStuck)
	}
	type result struct {
		mappings []Mapping
		err      error
	}
	done := make(chan result, 1)
	go func() {
		var r result
		r.mappings, r.err = c.readNow(pid, read)
		c.endRead(pid)
		done <- r
	}()
	timeout := time.NewTimer(readTimeout)
	defer timeout.Stop()
	select {
	case r := <-done:
		return r.mappings, r.err
	case <-timeout.C:
		return nil, fmt.Errorf("process %d: %w", pid, ErrStuck)
	}
}

// reads are the reads of one process that are in progress.
type reads struct {
	count  int
	since  time.Time // of the first
	tenant Tenant    // 0: not read yet
}

// beginRead reports whether a process may be read, which excludes one that hangs.
func (c *Cache) beginRead(pid uint32) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	r := c.reading[pid]
	if r == nil {
		if !c.mayRead(pid) {
			return false
		}
		r = &reads{since: time.Now()}
		c.reading[pid] = r
	}
	if time.Since(r.since) >= readTimeout {
		return false
	}
	r.count++
	return true
}

// mayRead reports whether the tenant of a process has room for one more that may hang.
func (c *Cache) mayRead(pid uint32) bool {
	if len(c.reading) < maxReading/4 {
		return true
	}
	of, its := TenantOf(c.cfg.ProcFS, pid), 0
	for other, r := range c.reading {
		if r.tenant == 0 {
			r.tenant = TenantOf(c.cfg.ProcFS, other)
		}
		if r.tenant == of {
			its++
		}
	}
	return its == 0 || its < maxReading/4 && len(c.reading) < maxReading
}

func (c *Cache) endRead(pid uint32) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if r := c.reading[pid]; r.count > 1 {
		r.count--
	} else {
		delete(c.reading, pid)
	}
}

func (c *Cache) readNow(pid uint32, read func(maps *os.File) ([]Mapping, error)) ([]Mapping, error) {
	f, err := os.Open(c.path(pid, "maps"))
	if err != nil {
		return nil, procError(pid, err)
	}
	defer f.Close()
	out, err := read(f)
	if err != nil && !errors.Is(err, ErrMalformed) {
		return nil, procError(pid, err)
	}
	return out, nil
}

// parse reads the text of a maps file.
func parse(maps io.Reader, keep func(Mapping) bool) (out []Mapping, err error) {
	err = Parse(maps, func(m Mapping) bool {
		if keep(m) {
			out = append(out, m)
		}
		return len(out) < maxMappings
	})
	// The kernel sorts them, which searches rely on; a file from elsewhere may not be sorted.
	slices.SortFunc(out, func(a, b Mapping) int { return cmp.Compare(a.Start, b.Start) })
	return out, err
}
