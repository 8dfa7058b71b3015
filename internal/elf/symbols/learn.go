// SPDX-License-Identifier: Apache-2.0

package symbols

import (
	"errors"
	"time"

	"github.com/gpu-gadgets/gpu-gadgets/internal/process/procmaps"
)

// What the files of a tenant's processes may cost to be learned, besides symbols (readBurst): of those of a job of 200
// processes of 400 libraries, half. Beyond, a file is read when a frame of it is to be named.
const (
	learnBurst = 2 * time.Second
	learnShare = 50
	// checkCost is the time to find out whether a file is known, openCost to open it and to read where its code was linked.
	checkCost = 10 * time.Microsecond
	openCost  = 150 * time.Microsecond
)

// Learn takes the mappings of a process as long as it is there, and reads its
// files: where their code was linked, and the functions of those that a process before it
// has left without names. It returns at once.
func (r *Resolver) Learn(s *procmaps.Snapshot) {
	l := pending{s, r.mappings.Tenant(s.Process.PID)}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.files.add(l)
	if !r.files.working {
		r.files.working = true
		go r.learn()
	}
}

// learn works until nothing is left to do.
func (r *Resolver) learn() {
	var last procmaps.Tenant
	for {
		r.mu.Lock()
		if len(r.files.queue) == 0 {
			r.files.queue, r.files.working = nil, false
			r.mu.Unlock()
			return
		}
		l := r.files.next(last)
		last = l.tenant
		r.mu.Unlock()
		r.learnProcess(l)
	}
}

// learnProcess reads those files of a process that were not read of it, as far as its tenant may have that.
func (r *Resolver) learnProcess(l pending) {
	files := r.unlearned(l)
	first := make([]procmaps.Mapping, len(files))
	for i, its := range files {
		first[i] = its[0]
	}
	for i, id := range r.mappings.Identities(l.of.Process.PID, first) {
		if !r.isKnown(l, files[i], id) {
			r.learnFile(l, files[i])
		}
	}
}

// unlearned returns the files of a process that are to be read, each with its mappings, and counts the time to check them.
func (r *Resolver) unlearned(l pending) (files [][]procmaps.Mapping) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.now()
	if r.learned.Len() > knownTenants {
		r.learned.ForgetPaid(now)
	}
	if r.learned.Pause(l.tenant, now) > 0 {
		return nil
	}
	seen := map[fileKey]int{} // index in files; -1: it is known
	for _, m := range l.of.Mappings {
		if !m.IsFile() {
			continue
		}
		at, isSeen := seen[keyOf(m)]
		if !isSeen {
			at = -1
			if known, ok := r.files.byPlace.Get(placeOf(l.of.Process.PID, m)); !ok || len(r.wants(known)) > 0 {
				at, files = len(files), append(files, nil)
			}
			seen[keyOf(m)] = at
		}
		if at >= 0 {
			files[at] = append(files[at], m)
		}
	}
	r.learned.Take(l.tenant, time.Duration(len(files))*checkCost, now)
	return files
}

// isKnown reports whether a file of a process is one that was read, and of which nothing more is to be read.
func (r *Resolver) isKnown(l pending, its []procmaps.Mapping, identity string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	known, ok := r.files.byKey.Get(keyOf(its[0]))
	if !ok || known.file != identity {
		return false
	}
	r.files.put(l.of.Process.PID, known, its...)
	return len(r.wants(known)) == 0
}

// wants returns which tables of a file are to be read, or found among those of files with its build id; the lock
// is held.
func (r *Resolver) wants(l *loaded) (all []kind) {
	if l.module == nil {
		return nil
	}
	for _, of := range kinds {
		id := r.contents.table(l, of)
		wanted, _ := r.files.wanted.Get(l.wanted(of))
		if wanted && r.tables.get(id) == nil || id == "" && len(r.contents.candidates(l, of)) > 0 {
			all = append(all, of)
		}
	}
	return all
}

// mayOpen reports whether a tenant may have one more file opened, and counts that.
func (r *Resolver) mayOpen(tenant procmaps.Tenant) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.now()
	if r.learned.Pause(tenant, now) > 0 {
		return false
	}
	r.learned.Take(tenant, openCost, now)
	return true
}

// learnFile reads a file of a process.
func (r *Resolver) learnFile(of pending, its []procmaps.Mapping) {
	pid := of.of.Process.PID
	if !r.mayOpen(of.tenant) {
		return
	}
	file, err := r.mappings.Open(pid, its[0])
	if err != nil {
		return
	}
	defer file.Close()
	l, reader, cost, err := open(file)
	r.mu.Lock()
	r.learned.Take(of.tenant, max(0, cost-openCost), r.now())
	if err != nil && (reader.hung || errors.Is(err, procmaps.ErrHangs)) {
		r.mu.Unlock()
		return
	}
	r.files.put(pid, l, its...)
	wanted := r.wants(l)
	r.mu.Unlock()
	o := opened{l, reader, pid, its[0].Path}
	for _, of := range wanted {
		r.mu.Lock()
		w := r.plan(o, of)
		r.mu.Unlock()
		w.do() // which may take a while
		r.mu.Lock()
		r.finish(w)
		r.mu.Unlock()
	}
}
