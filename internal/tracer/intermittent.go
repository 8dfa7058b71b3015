// SPDX-License-Identifier: Apache-2.0

package tracer

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"github.com/cilium/ebpf/link"
)

// ErrNoWindows means that probes cannot be attached and detached one by one: each takes the kernel up to 0.1 s
// without uprobe_multi.
var ErrNoWindows = errors.New("probes that come and go need uprobe_multi (Linux 6.6)")

// intermittent is which functions are probed a part of the time only.
type intermittent struct {
	cookies map[uint32]bool // attached between Resume and the end that it returns
	without map[string]bool // libraries of which nothing is attached
}

// now are the probes of a file that are to be attached all of the time.
func (t *Tracer) now(f *file) []probe {
	if t.without[f.library] {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(f.probes), func(p probe) bool { return t.isIntermittent(f, p) })
}

// isIntermittent: cookies of entries that sleep are of another table.
func (t *Tracer) isIntermittent(f *file, p probe) bool {
	return f.mode == Multi && !p.sleeps && t.cookies[p.cookie]
}

// Mode is how programs are attached.
func (t *Tracer) Mode() Mode { return t.mode }

// SetIntermittent chooses the functions, by their cookies, that are probed between Resume
// and Close only; all others are probed all of the time. While it changes, a function may
// have its programs run twice for a call, which they must ignore. A file that cannot be probed
// now has no probes until a scan can attach them. The only error is ErrNoWindows.
func (t *Tracer) SetIntermittent(cookies []uint32) error {
	if t.mode != Multi {
		return ErrNoWindows
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	before := t.cookies
	t.cookies = map[uint32]bool{}
	for _, c := range cookies {
		t.cookies[c] = true
	}
	if !maps.Equal(before, t.cookies) {
		t.relink(func(f *file) bool {
			return slices.ContainsFunc(f.probes, func(p probe) bool { return !p.sleeps && before[p.cookie] != t.cookies[p.cookie] })
		})
	}
	return nil
}

// SetAttached detaches all functions of a library, or attaches them again, except in files that
// cannot be probed now. It returns when no program of theirs runs any more.
func (t *Tracer) SetAttached(library string, attached bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.without[library] == !attached {
		return
	}
	if t.without == nil {
		t.without = map[string]bool{}
	}
	t.without[library] = !attached
	t.relink(func(f *file) bool { return f.library == library })
}

// relink attaches what is to be attached now to files, and then detaches what was. The files are those
// of all containers, each of which can make its own one that is not probed: others do not depend on it.
func (t *Tracer) relink(which func(*file) bool) {
	for _, f := range t.files {
		if f.held == nil || !f.attached() || !which(f) {
			continue
		}
		links, err := t.linkAll(f, t.now(f))
		if f.isIncomplete = err != nil; f.isIncomplete {
			t.leaveOut(f, err)
		}
		old := f.links
		f.links = links
		if len(links) == 0 {
			closeAll(old)
		} else {
			t.done.Go(func() { closeAll(old) })
		}
	}
}

// relinkIncomplete attaches to files that could not be probed at some time: the reason may have passed, as want of memory does.
// Trying is paid for by the container that has the file.
func (t *Tracer) relinkIncomplete() {
	for _, f := range t.files {
		now := time.Now()
		if !f.isIncomplete || f.held == nil || t.spent.Pause(f.tenant, now) > 0 {
			continue
		}
		t.spent.Take(f.tenant, fileCost, now)
		if links, err := t.linkAll(f, t.now(f)); err == nil {
			f.links, f.isIncomplete, f.isLeftOut = links, false, false
		}
	}
}

// leaveOut warns, once, of a file that cannot be probed. The next scan drops one that was overwritten.
func (t *Tracer) leaveOut(f *file, err error) {
	if f.isLeftOut || errors.Is(err, errOverwritten) {
		return
	}
	f.isLeftOut = true
	who := "no process"
	for pid := range f.users {
		who = fmt.Sprintf("process %d", pid)
		break
	}
	t.cfg.Warn(fmt.Sprintf("%s: its calls are not all traced: a file that %s has mapped could not be probed again: %v", f.library, who, err))
}

// errOverwritten: probes of the old content are not for the new one.
var errOverwritten = errors.New("the file was overwritten")

// linkAll attaches to a file that was attached to before.
func (t *Tracer) linkAll(f *file, probes []probe) (links []link.Link, err error) {
	if len(probes) == 0 {
		return nil, nil
	}
	if f.overwritten() {
		return nil, errOverwritten
	}
	ex, done, err := executable(f.held)
	if err != nil {
		return nil, err
	}
	defer done()
	if f.mode == Multi {
		links, err = t.linkMulti(ex, probes, everyProcess)
	} else {
		links, _, err = t.linkPerf(ex, probes, everyProcess)
	}
	if err != nil && f.overwritten() {
		err = errOverwritten // meanwhile
	}
	return links, err
}

// Resume attaches intermittent functions of all files that are attached now, all of them if
// cookies is nil, and otherwise only these. Closing what it returns detaches them; the kernel
// waits for running programs meanwhile, but the probes are gone within milliseconds. A file that
// cannot be probed is left out; it is an error if there is no other.
func (t *Tracer) Resume(cookies []uint32) (io.Closer, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	var open resumed
	var failed error
	for _, f := range t.files {
		if f.held == nil || t.without[f.library] {
			continue
		}
		var probes []probe
		for _, p := range f.probes {
			if t.isIntermittent(f, p) && (cookies == nil || slices.Contains(cookies, p.cookie)) {
				probes = append(probes, p)
			}
		}
		links, err := t.linkAll(f, probes)
		if err != nil {
			t.leaveOut(f, err)
			if !errors.Is(err, errOverwritten) {
				failed = fmt.Errorf("%s: %w", f.library, err)
			}
			continue
		}
		open = append(open, links...)
	}
	if failed != nil && len(open) == 0 {
		return nil, failed
	}
	return open, nil
}

// resumed are links that end with a window.
type resumed []link.Link

func (r resumed) Close() error {
	closeAll(r)
	return nil
}

// closeAll detaches at once: each link waits for itself.
func closeAll(links []link.Link) {
	done := make(chan struct{})
	for _, l := range links {
		go func() {
			l.Close()
			done <- struct{}{}
		}()
	}
	for range links {
		<-done
	}
}
