// SPDX-License-Identifier: Apache-2.0

package ranks

import (
	"context"
	"slices"
	"time"

	"github.com/gpu-gadgets/gpu-gadgets/internal/collective"
)

const (
	// still is after how long without a new operation a rank's thread is read.
	still = collective.Time(500 * time.Millisecond)
	// again is after how long the Python stack of a suspect is read again.
	again = collective.Time(10 * time.Second)
	// seldom is the same for one that no rank here waits for: steps may be that long.
	seldom = collective.Time(time.Minute)
	// dumpLimit is how long that may take.
	dumpLimit = 20 * time.Second
	// maxDumped bounds how many processes are read at once: who is at fault comes
	// first.
	maxDumped = 16
	// maxCallers bounds the threads of a process that are known to call NCCL.
	maxCallers = 64
	// maxTold bounds the summary at the end.
	maxTold = 10
	// forgotten is after how long a communicator without new rows is none any more:
	// the gadget has deleted it.
	forgotten = collective.Time(30 * time.Second)
)

// judge observes every rank, evaluates and emits.
func (i *instance) judge(ctx context.Context, now collective.Time) {
	i.mu.Lock()
	i.observe(now)
	i.dump(ctx, i.analyzer.Suspects(now), i.analyzer.Quiet(now), now)
	i.judgeLate(ctx, now)
	events := i.analyzer.Evaluate(now)
	for _, e := range events {
		i.waiting = append(i.waiting, found{e, now})
	}
	open := i.analyzer.Verdicts()
	i.consult(ctx, open)
	ranks := i.analyzer.Ranks(now)
	rows := i.table(ranks, open, now)
	if i.run != nil {
		i.run.put(ranks, open, now)
	}
	i.mu.Unlock()
	// Emitting calls other operators: without the lock.
	i.report(settling)
	if err := i.out.emitRanks(rows); err != nil {
		i.warn("emit: %v", err)
	}
}

// found is a verdict that is about to be reported.
type found struct {
	collective.Verdict
	at collective.Time
}

// settling is how long a verdict waits at most for the lines on which its ranks are.
const settling = collective.Time(1500 * time.Millisecond)

// report reports the verdicts that do not wait for a dump, or have waited too long; in order.
func (i *instance) report(limit collective.Time) {
	i.reporting.Lock()
	defer i.reporting.Unlock()
	now := bootTime()
	if err := i.out.emitHangs(i.ready(now, limit), now, i.mntns); err != nil {
		i.warn("emit: %v", err)
	}
}

func (i *instance) ready(now, limit collective.Time) (events []collective.Verdict) {
	i.mu.Lock()
	defer i.mu.Unlock()
	n := 0
	for ; n < len(i.waiting); n++ {
		f := &i.waiting[n]
		if f.Cleared == 0 && now-f.at < limit && slices.ContainsFunc(f.Missing, func(c collective.Culprit) bool {
			p := i.processes[c.Process.ID]
			return p != nil && p.dumping
		}) {
			break
		}
		i.complete(&f.Verdict)
		events = append(events, f.Verdict)
	}
	i.waiting = slices.Delete(i.waiting, 0, n)
	i.remember(events)
	return events
}

// observe passes every rank to the analyzer: its newest row, and what its thread does.
func (i *instance) observe(now collective.Time) {
	type seen struct {
		state   collective.State
		wchan   string
		started uint64
		ok      bool
	}
	looked := map[Thread]seen{}
	deriveRanks(i.all)
	creations(i.rows, func(r *rank) {
		if i.analyzer.Creates(r.creation("", 0)) != nil {
			i.refused++
		}
	})
	for key, r := range i.rows {
		if r.Rank < 0 || r.isCreating() {
			continue
		}
		p := i.processes[key.process]
		o := r.Observation
		o.Peers, o.Tenant = r.peers, r.tenant("")
		o.Process, o.Operations = r.process(""), slices.Clone(o.Operations)
		switch {
		case r.exited != 0:
			p.gone = true // its rows may come a while longer
		case now-r.changed >= still:
			thread := Thread{r.Process.PID, r.tid}
			if p.isDumped() {
				thread.TID = p.place.tid
			}
			l, isKnown := looked[thread] // a process may have thousands of communicators
			if !isKnown {
				l.state, l.wchan, l.started, l.ok = look(i.cfg.ProcFS, thread.PID, thread.TID)
				looked[thread] = l
			}
			state, wchan, started, ok := l.state, l.wchan, l.started, l.ok
			if ok && (state == collective.Gone || p.started != 0 && started != p.started) {
				p.gone = true
				break
			}
			if ok {
				p.started = started
				o.State, o.Wchan = state, wchan
			}
			// It is where it is at least until now, and not only until its row was read.
			if ok && now > o.At && now-o.At < forgotten {
				o.At = now
			}
		default:
			o.State = collective.Running
		}
		o.State = r.end(o.State)
		at, isLast := i.placeOf(r, p)
		o.Stack, o.UserLine, o.StackIsLast = at.lines, at.user, isLast
		if n := len(o.Operations); n > 0 && len(o.Stack) > 0 {
			o.Operations[n-1].Line = at.where()
		}
		if err := i.analyzer.Observe(o); err != nil {
			i.refused++
		}
		if p.gone {
			at := now
			if r.exited != 0 {
				at = r.exited
			}
			i.analyzer.Gone(o.Process, at)
		}
	}
	i.forget(now)
}

// isDumped: where its threads are was read after it last issued something.
func (p *process) isDumped() bool { return len(p.place.lines) > 0 && p.dumped >= p.changed }

// placeOf is the dump, as long as the rank has done nothing since; else where the
// newest operation was called.
func (i *instance) placeOf(r *rank, p *process) (at place, isLast bool) {
	if p.isDumped() {
		return p.place, false
	}
	if n := len(r.Operations); n > 0 {
		return i.called(r.Process.ID, r.Process.PID, r.Operations[n-1].Stack), true
	}
	return place{}, false
}

// forget what the gadget has forgotten, and ended processes.
func (i *instance) forget(now collective.Time) {
	used := map[uint64]bool{}
	for key, r := range i.rows {
		if now-r.seen > r.kept() {
			delete(i.rows, key)
			continue
		}
		used[key.process] = true
	}
	for id := range i.processes {
		if !used[id] && !i.analyzer.Has(collective.Process{ID: id}) { // a verdict may name it
			delete(i.processes, id)
		}
	}
}

// dump has the Python stacks of suspects read, in the background. A rank that is judged
// before that is done is shown with the last stack that the gadget saw. Of the quiet ones
// no rank here waits for them: they are read once.
func (i *instance) dump(ctx context.Context, suspects, quiet []collective.Process, now collective.Time) {
	if i.cfg.Dump == nil {
		return
	}
	var pids []uint32
	var ids []uint64
	its := map[uint64]int{} // how many of each container
	add := func(all []collective.Process, most int, isKnown func(*process) bool) {
		for _, s := range all {
			p := i.processes[s.ID]
			if p == nil || p.gone || p.dumping || p.dumped != 0 && isKnown(p) || len(pids) == maxDumped || its[p.mntns] >= most {
				continue
			}
			p.dumping = true
			its[p.mntns]++
			pids, ids = append(pids, p.pid), append(ids, s.ID)
		}
	}
	for _, most := range []int{maxDumped / 4, maxDumped} { // some of each container before all of one
		add(suspects, most, func(p *process) bool { return p.dumped >= p.changed && now-p.dumped < again })
	}
	for _, most := range []int{maxDumped / 4, maxDumped} {
		add(quiet, most, func(p *process) bool { return p.dumped >= p.changed || now-p.dumped < seldom })
	}
	if len(pids) == 0 {
		return
	}
	i.wait.Go(func() {
		ctx, cancel := context.WithTimeout(ctx, dumpLimit)
		defer cancel()
		threads, err := i.cfg.Dump(ctx, i.image, pids)
		for _, t := range threads {
			i.libraries.Mark(t.Stack)
		}
		defer i.report(settling)
		i.mu.Lock()
		defer i.mu.Unlock()
		if err != nil && ctx.Err() == nil {
			i.warn("read where ranks are now: %v", err)
		}
		for n, id := range ids {
			p := i.processes[id]
			if p == nil {
				continue
			}
			wasDumped := p.isDumped()
			p.dumping, p.dumped = false, now
			if tid, ok := blame(threads, pids[n], p.callers); ok {
				p.place = placeOf(tid, threads[Thread{pids[n], tid}].Stack)
			} else if !wasDumped {
				p.place = place{} // of before its newest operation
			}
		}
	})
}

// complete fills in the stack that was read meanwhile.
func (i *instance) complete(v *collective.Verdict) {
	v.Missing = slices.Clone(v.Missing)
	for n := range v.Missing {
		c := &v.Missing[n]
		c.Process.Comm = oneLine(c.Process.Comm)
		if p := i.processes[c.Process.ID]; p != nil && p.isDumped() && v.Cleared == 0 {
			c.Stack, c.UserLine, c.StackIsLast = p.place.lines, p.place.user, false
		}
	}
	v.Communicator.Name = oneLine(v.Communicator.Name)
	v.GPUs = i.gpuEvents(v)
}

// remembered is a verdict of the summary, and the container of a rank at fault, by its mount namespace.
type remembered struct {
	collective.Verdict
	mntns uint64
}

// remember the verdicts for the end; one that was cleared replaces what was found.
func (i *instance) remember(events []collective.Verdict) {
	for _, e := range events {
		mntns := uint64(0)
		for _, c := range e.Missing {
			if p := i.processes[c.Process.ID]; p != nil && mntns == 0 {
				mntns = p.mntns
			}
		}
		replaced := false
		for n := range i.events {
			if o := &i.events[n]; o.Cleared == 0 && o.Communicator.Hash == e.Communicator.Hash && o.Seq == e.Seq && o.Peer == e.Peer {
				o.Verdict, replaced = e, true
			}
		}
		switch {
		case replaced:
		case len(i.events) < maxTold:
			i.events = append(i.events, remembered{e, mntns})
		default:
			i.untold++
			if n := crowded(i.events, mntns); n >= 0 {
				i.events = append(slices.Delete(i.events, n, n+1), remembered{e, mntns})
			}
		}
	}
}

// crowded is the newest verdict of the container that has most, if that is more than one more than another one has; else -1.
func crowded(events []remembered, other uint64) int {
	its := map[uint64]int{}
	for _, e := range events {
		its[e.mntns]++
	}
	newest := -1
	for n, e := range events {
		if its[e.mntns] > its[other]+1 && (newest < 0 || its[e.mntns] >= its[events[newest].mntns]) {
			newest = n
		}
	}
	return newest
}

func (i *instance) mntns(process uint64) uint64 {
	i.mu.Lock()
	defer i.mu.Unlock()
	if p := i.processes[process]; p != nil {
		return p.mntns
	}
	return 0
}
