// SPDX-License-Identifier: Apache-2.0

package tracer

import (
	"errors"
	"fmt"
	"os"
	"sort"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/gpu-gadgets/gpu-gadgets/internal/process/procmaps"
)

// link attaches the programs, all probes of the file at once if the kernel
// can. A probe that the kernel refuses is attached at the entry, and alone.
func (t *Tracer) link(lib *file, f *procmaps.File, all []probe) {
	var probes []probe
	for _, p := range all {
		if p.fact != 0 {
			lib.onDemand = append(lib.onDemand, p)
		} else {
			probes = append(probes, p)
		}
	}
	lib.probes, lib.mode = probes, t.mode
	probes = t.now(lib)
	ex, done, err := executable(f)
	if err != nil {
		lib.unreadable(err)
		return
	}
	defer done()
	if lib.mode == Multi {
		lib.links, err = t.linkMulti(ex, probes, everyProcess)
		if err != nil && t.cfg.Programs.Enter != nil && contentsOf(f) == lib.content && t.mayByPoint(time.Now()) {
			lib.note = fmt.Sprintf("uprobe_multi refused (%v); ", err)
			lib.mode, err = Perf, nil
			probes = t.now(lib)
		}
	}
	if lib.mode == Perf {
		var refused []string
		lib.links, refused, err = t.linkPerf(ex, probes, everyProcess)
		lib.symbols -= len(refused)
		if len(refused) > 0 && err == nil {
			lib.note += fmt.Sprintf("refused: %v; ", refused)
		}
	}
	if err != nil {
		for _, l := range lib.links {
			l.Close()
		}
		lib.links, lib.onDemand, lib.probes, lib.symbols = nil, nil, nil, 0
		lib.status, lib.err = StatusFailed, err.Error()
		if contentsOf(f) != lib.content {
			lib.err = "the file was changed while it was attached to"
		}
		return
	}
	lib.status = StatusAttached
	lib.note += placementNote(all)
	if len(lib.onDemand) > 0 {
		lib.note += fmt.Sprintf(", on demand: %d", len(lib.onDemand))
	}
	if held, err := f.Dup(); err == nil {
		lib.held = held
	}
}

// executable returns a file to attach to, until done is called. The kernel resolves its path once, to the very file, in whatever
// mount namespace it is and also when it was deleted.
//
// link.OpenExecutable asks for the file's facts, and Go does so for ever if a server of FUSE answers each time that the request
// was interrupted: the path leads to another file meanwhile.
func executable(f *procmaps.File) (ex *link.Executable, done func(), err error) {
	fd, err := unix.Open(os.DevNull, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("open %s: %w", os.DevNull, err)
	}
	if ex, err = link.OpenExecutable(fmt.Sprintf("/proc/self/fd/%d", fd)); err == nil {
		err = unix.Dup3(int(f.Fd()), fd, unix.O_CLOEXEC)
	}
	if err != nil {
		unix.Close(fd)
		return nil, nil, err
	}
	again := *f
	again.File = os.NewFile(uintptr(fd), f.Name())
	return ex, func() { again.Close() }, nil
}

// everyProcess stands for the process id of links that are for all.
const everyProcess = 0

// linkMulti makes a link for each program: the returns first, so that no call is seen whose
// return is not: a program ignores a return that it knows no call of, but takes
// a call without a return for one that was left by a longjmp. For the same
// reason links are closed in the order of the slice, entries first.
func (t *Tracer) linkMulti(ex *link.Executable, probes []probe, pid int) ([]link.Link, error) {
	var links []link.Link
	for _, part := range []struct {
		name    string
		attach  func([]string, *ebpf.Program, *link.UprobeMultiOptions) (link.Link, error)
		program *ebpf.Program
		has     func(probe) bool
	}{
		{"returns", ex.UretprobeMulti, t.cfg.Programs.ExitMulti, func(p probe) bool { return p.exit }},
		{"entries", ex.UprobeMulti, t.cfg.Programs.EnterMulti, func(p probe) bool { return !p.sleeps }},
		{"entries", ex.UprobeMulti, t.cfg.Programs.SleepingEnterMulti, func(p probe) bool { return p.sleeps }},
	} {
		o := &link.UprobeMultiOptions{PID: uint32(pid)}
		for _, p := range probes {
			if part.has(p) {
				o.Addresses = append(o.Addresses, p.entry+p.offset)
				o.Cookies = append(o.Cookies, uint64(p.cookie))
			}
		}
		if len(o.Addresses) == 0 {
			continue
		}
		l, err := part.attach(nil, part.program, o)
		if err != nil {
			for _, l := range links {
				l.Close()
			}
			return nil, fmt.Errorf("attach %s: %w", part.name, err)
		}
		links = append([]link.Link{l}, links...)
	}
	return links, nil
}

// linkPerf attaches probe by probe; refused are those that the kernel does not
// take. It fails when none is taken.
func (t *Tracer) linkPerf(ex *link.Executable, probes []probe, pid int) (links []link.Link, refused []string, err error) {
	one := func(p probe, offset uint64) ([]link.Link, error) {
		o := &link.UprobeOptions{Address: p.entry, Offset: offset, Cookie: uint64(p.cookie), PID: pid}
		program := t.cfg.Programs.Enter
		if p.sleeps {
			program = t.cfg.Programs.SleepingEnter
		} else if t.cfg.Programs.EnterPoint != nil {
			if program, o.Cookie = t.cfg.Programs.EnterPoint[p.cookie], 0; program == nil {
				return nil, fmt.Errorf("the gadget has no program for %s", p.symbol)
			}
		}
		var links []link.Link
		if p.exit {
			exit, err := ex.Uretprobe("", t.cfg.Programs.Exit, o)
			if errors.Is(err, ebpf.ErrNotSupported) && o.Cookie != 0 {
				return nil, fmt.Errorf("attach cookies need Linux 5.15: %w", err)
			}
			if err != nil {
				return nil, err
			}
			links = append(links, exit)
		}
		enter, err := ex.Uprobe("", program, o)
		if err != nil {
			for _, l := range links {
				l.Close()
			}
			return nil, err
		}
		return append([]link.Link{enter}, links...), nil
	}
	for _, p := range probes {
		pair, e := one(p, p.offset)
		if e != nil && p.offset != 0 {
			pair, e = one(p, 0)
		}
		if e != nil {
			err = e
			refused = append(refused, p.symbol)
			continue
		}
		links = append(links, pair...)
	}
	if len(links) > 0 {
		err = nil
	}
	return links, refused, err
}

// placementNote says where the probes are, e.g. "+10: 51, +0: 1".
func placementNote(probes []probe) string {
	count := map[uint64]int{}
	note, aliases := "", 0
	for _, p := range probes {
		count[p.offset]++
		aliases += len(p.aliases)
	}
	offsets := make([]uint64, 0, len(count))
	for o := range count {
		offsets = append(offsets, o)
	}
	sort.Slice(offsets, func(i, j int) bool { return offsets[i] > offsets[j] })
	for i, o := range offsets {
		if i > 0 {
			note += ", "
		}
		note += fmt.Sprintf("+%d: %d", o, count[o])
	}
	if aliases > 0 {
		note += fmt.Sprintf(", aliases: %d", aliases)
	}
	return note
}
