// SPDX-License-Identifier: Apache-2.0

package symbols

import (
	"time"

	"github.com/gpu-gadgets/gpu-gadgets/internal/process/procmaps"
	"github.com/gpu-gadgets/gpu-gadgets/internal/throttle"
)

// Reading symbols takes as long as a library has many: 0.1 s for PyTorch's largest, 0.5 s for all 469 that Debian's has
// with it; naming an address takes as long as names are: 50 µs with those of PyTorch. A tenant may have it done for 3 s and a twentieth of the time then; addresses have no names meanwhile. So
// none takes the time of others, who wait for their names.
const (
	readBurst = 3 * time.Second
	readShare = 20
	// knownTenants is from how many on those are forgotten that owe nothing.
	knownTenants = 1 << 10
)

// opened is a library whose file is open.
type opened struct {
	*loaded
	reader *recorder
	pid    uint32 // a process that has mapped it
	path   string // as that sees it
}

// work is to find a library's table among those of files with its build id, or to make it.
type work struct {
	opened
	resolver *Resolver
	of       kind
	tenant   procmaps.Tenant

	candidates []*content
	tables     map[string]*Table // those of candidates that were not dropped
	found      *content          // what the library is; nil: not known
	table      *Table
	cost       time.Duration
	debug      debugFile // closed after do
}

// isHung reports whether the file system of one of the files did not answer.
func (w *work) isHung() bool {
	return w != nil && (w.reader.hung || w.debug.reader != nil && w.debug.reader.hung)
}

// mayRead reports whether work may be done for a tenant; the lock is held.
func (r *Resolver) mayRead(tenant procmaps.Tenant) bool {
	now := r.now()
	if r.spent.Len() > knownTenants {
		r.spent.ForgetPaid(now)
	}
	return r.spent.Pause(tenant, now) == 0
}

// name names an address of a module, which may have no name; ok is false if that is not known. The lock is held.
func (r *Resolver) name(pid uint32, l symbolsOf, linked uint64) (name string, ok bool) {
	k := addressKey{l.id, linked}
	if name, ok = r.names.Get(k); ok || l.table == nil {
		return name, ok
	}
	tenant := r.mappings.Tenant(pid)
	if !r.mayRead(tenant) {
		return "", false
	}
	cost := throttle.Timed(func() {
		name, _ = l.table.Lookup(linked)
		name = Demangle(name)
	})
	r.spent.Take(tenant, cost, r.now())
	r.names.Put(k, name)
	return name, true
}

// plan returns what is to be done for a table, nil if its tenant has cost too much; the lock is held.
func (r *Resolver) plan(o opened, of kind) *work {
	w := &work{opened: o, resolver: r, of: of, tenant: r.mappings.Tenant(o.pid), tables: map[string]*Table{}}
	if !r.mayRead(w.tenant) {
		return nil
	}
	if had, ok := r.contents.byFile.Get(o.file + string(of)); ok {
		if w.table = r.tables.get(had.table); w.table != nil {
			w.found = had
			return w
		}
	}
	w.candidates = r.contents.candidates(o.loaded, of)
	for _, c := range w.candidates {
		w.tables[c.table] = r.tables.peek(c.table)
	}
	return w
}

// do reads files.
func (w *work) do() {
	if w == nil || w.table != nil {
		return
	}
	w.cost = throttle.Timed(func() {
		w.debug = w.resolver.debugFile(w.pid, w.path, w.module)
		defer w.debug.close()
		for _, c := range w.candidates {
			if w.tables[c.table] != nil && c.file.holds(w.reader) && c.debug.holds(w.debug.reader) {
				w.found, w.table = c, w.tables[c.table]
				return
			}
		}
		// A table that was dropped is made of this file for all that share it: what this one had before, or a moment ago, is no proof.
		w.table = readTable(w.module, w.debug.module, w.of)
		w.found = contentOf(w.reader, w.debug.reader).among(w.candidates)
	})
}

// finish keeps what was read, and returns the table, nil if it could not be read now; the lock is held.
func (r *Resolver) finish(w *work) *Table {
	if w == nil {
		return nil
	}
	if w.cost > 0 {
		r.spent.Take(w.tenant, w.cost, r.now())
	}
	if w.isHung() {
		return nil
	}
	id := r.contents.put(w.loaded, w.of, w.found)
	if r.tables.get(id) == nil {
		r.tables.put(id, w.table, w.tenant)
	}
	return w.table
}
