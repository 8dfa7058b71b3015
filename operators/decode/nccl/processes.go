// SPDX-License-Identifier: Apache-2.0

package nccl

import (
	"errors"
	"fmt"
	"time"

	"github.com/gpu-gadgets/gpu-gadgets/internal/collective/membership"
	"github.com/gpu-gadgets/gpu-gadgets/internal/process/memory"
	"github.com/gpu-gadgets/gpu-gadgets/internal/process/procmaps"
)

// errNoLibrary: the process has mapped none of them.
var errNoLibrary = errors.New("no NCCL in the process")

// fileKey identifies a version of a file.
type fileKey struct {
	dev, ino    uint64
	size, mtime int64
}

// inspector reads the libraries of processes, each file once.
type inspector struct {
	procfs string
	maps   *procmaps.Cache
	wanted []string
	files  map[fileKey]inspected
}

type inspected struct {
	library *Library
	err     error
}

// maxFiles bounds the cache; a node has a handful.
const maxFiles = 256

// of returns the NCCL library that a process has mapped, and the file's path there.
func (n *inspector) of(pid uint32) (*Library, string, error) {
	found, err := n.maps.Read(pid, func(m procmaps.Mapping) bool {
		return m.Perms&procmaps.Exec != 0 && m.IsFile() && membership.IsLibrary(m.Path)
	})
	if err != nil {
		return nil, "", err
	}
	var failed error
	for _, m := range found {
		library, err := n.inspect(pid, m)
		if err != nil {
			failed = fmt.Errorf("read %s: %w", m.Path, err)
		} else if library.Has > 0 {
			return library, m.Path, nil
		}
	}
	if failed == nil {
		failed = errNoLibrary
	}
	return nil, "", failed
}

func (n *inspector) inspect(pid uint32, m procmaps.Mapping) (*Library, error) {
	f, err := n.maps.Open(pid, m)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	st := &f.Stat
	key := fileKey{st.Dev, st.Ino, st.Size, st.Mtim.Nano()}
	known, ok := n.files[key]
	if !ok {
		if len(n.files) >= maxFiles {
			clear(n.files)
		}
		known.library, known.err = Inspect(f, st.Size, n.wanted)
		if known.err == nil && procmaps.IsLibrary(m.Path, membership.RCCL) {
			known.library.isRCCL()
		}
		if errors.Is(known.err, procmaps.ErrHangs) {
			return nil, known.err // not of the file itself
		}
		n.files[key] = known
	}
	return known.library, known.err
}

// identities caches the identities of communicators.
type identities struct {
	inspector
	known map[communicatorKey]*answer
	// ours are the identities that our programs made, by NCCL's hash: ranks that were
	// traced from the beginning provide those of the others.
	ours map[uint64]uint64
	// opened are the processes that were read in this pass: one may have thousands of
	// communicators.
	opened map[uint32]*opened
}

// opened is a process whose communicators are read.
type opened struct {
	library *Library
	memory  *memory.Reader
	err     error // of the library or the memory; then nothing is read
}

type communicatorKey struct{ process, handle, created uint64 }

// answer is the identity of one communicator. Those that are not ready are read again.
type answer struct {
	Identity
	err    error
	readAt time.Time
	pass   int
}

// retryAfter is the interval of retries.
const retryAfter = 5 * time.Second

// request is one row.
type request struct {
	communicatorKey
	pid      uint32
	identity uint64 // 0: unknown
}

// identify reads a communicator that is not identified yet; nil if it cannot be.
func (i *identities) identify(r request, now time.Time, pass int) (*Identity, error) {
	a := i.known[r.communicatorKey]
	if a == nil {
		a = &answer{err: ErrNotReady}
		i.known[r.communicatorKey] = a
	}
	a.pass = pass
	if a.err != nil && (a.readAt.IsZero() || now.Sub(a.readAt) >= retryAfter) {
		a.readAt = now
		a.Identity, a.err = i.read(r)
		if a.err == nil && r.identity != 0 {
			i.ours[a.Hash] = r.identity
		}
	}
	if a.err != nil {
		return nil, a.err
	}
	return &a.Identity, nil
}

// forget drops those without a row in this pass, and closes opened processes.
func (i *identities) forget(pass int) {
	for key, a := range i.known {
		if a.pass != pass {
			delete(i.known, key)
		}
	}
	if len(i.ours) > 4*len(i.known)+1024 {
		clear(i.ours) // of jobs long ago; current ones fill it again
	}
	for _, o := range i.opened {
		if o.memory != nil {
			o.memory.Close()
		}
	}
	clear(i.opened)
}

func (i *identities) read(r request) (Identity, error) {
	o := i.opened[r.pid]
	if o == nil {
		o = i.open(r.pid)
		i.opened[r.pid] = o
	}
	if o.err != nil {
		return Identity{}, o.err
	}
	return o.library.Identify(o.memory, r.handle)
}

// open finds the NCCL library of a process, and opens its memory.
func (i *identities) open(pid uint32) *opened {
	o := &opened{}
	if o.library, _, o.err = i.of(pid); o.err != nil {
		return o
	}
	if o.err = o.library.layout; o.err == nil {
		o.memory, o.err = memory.Open(i.procfs, pid)
	}
	return o
}
