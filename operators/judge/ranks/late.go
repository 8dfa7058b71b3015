// SPDX-License-Identifier: Apache-2.0

package ranks

import (
	"context"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/inspektor-gadget/inspektor-gadget/pkg/datasource"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/operators"

	"github.com/gpu-gadgets/gpu-gadgets/internal/collective"
	"github.com/gpu-gadgets/gpu-gadgets/internal/collective/membership"
	"github.com/gpu-gadgets/gpu-gadgets/internal/process/procmaps"
	"github.com/gpu-gadgets/gpu-gadgets/internal/throttle"
)

const (
	// eventLate and reasonLate mark a row of hangs that is judged by stacks alone.
	eventLate  = "late"
	reasonLate = "late"

	// lateAfter is for how long a process must have called nothing since its probes were
	// set: with a dump, a user has the judgement within 3 s.
	lateAfter = collective.Time(1500 * time.Millisecond)
	// lateAgain is after how long it is judged again, if it still calls nothing.
	lateAgain = collective.Time(10 * time.Second)
	// maxStanding bounds how many processes are read.
	maxStanding = 64
	// ticksPerSecond is USER_HZ, in which /proc counts; it is 100 on all architectures
	// that Linux has this gadget for (include/asm-generic/param.h).
	ticksPerSecond = 100
)

// late are the processes that have loaded NCCL and were there before the run: of these
// only what they call from now on is known.
type late struct {
	began    collective.Time
	attached map[uint32]attached     // by pid
	asked    map[job]collective.Time // when each was judged last
	reported map[job]string          // the last text of each, without its time
	dumping  bool
}

// attached is a process that has loaded NCCL.
type attached struct {
	since  collective.Time
	tenant procmaps.Tenant
	job    string // as membership.Job has it; "": not read yet
}

// job is one of a tenant: a process can claim to belong to any.
type job struct {
	tenant procmaps.Tenant
	name   string
}

// hasRoom reports whether a tenant may have one more.
func (l *late) hasRoom(tenant procmaps.Tenant) bool {
	return throttle.HasRoomIn(l.attached, maxStanding, func(_ uint32, a attached) bool { return a.tenant == tenant })
}

// watchAttachments notes who is attached to.
func (i *instance) watchAttachments(gc operators.GadgetContext) error {
	i.late.attached, i.late.asked, i.late.reported = map[uint32]attached{}, map[job]collective.Time{}, map[job]string{}
	ds := gc.GetDataSources()["attachments"]
	if ds == nil || i.cfg.Dump == nil {
		return nil
	}
	pid, status, path := ds.GetField("pid"), ds.GetField("status"), ds.GetField("path")
	if pid == nil || status == nil || path == nil {
		return nil
	}
	return ds.Subscribe(func(_ datasource.DataSource, d datasource.Data) error {
		id, err1 := pid.Uint32(d)
		state, err2 := status.String(d)
		file, err3 := path.String(d)
		if err1 != nil || err2 != nil || err3 != nil {
			return nil
		}
		i.mu.Lock()
		defer i.mu.Unlock()
		switch {
		case !membership.IsLibrary(file):
		case state == "gone":
			delete(i.late.attached, id)
		case state == "attached":
			if _, known := i.late.attached[id]; known {
				break
			}
			if tenant := procmaps.TenantOf(i.cfg.ProcFS, id); i.late.hasRoom(tenant) {
				i.late.attached[id] = attached{since: bootTime(), tenant: tenant}
			}
		}
		return nil
	}, subscription)
}

// judgeLate has the stacks read of those that were there before the run and have called
// nothing since, or are undecided; called with i.mu held, once a second.
func (i *instance) judgeLate(ctx context.Context, now collective.Time) {
	l := &i.late
	if l.dumping || i.cfg.Dump == nil {
		return
	}
	undecided := map[uint64]bool{}
	for _, p := range i.analyzer.Undecided(now) {
		undecided[p.ID] = true
	}
	called := map[uint32]bool{}
	last := map[uint32]collective.Time{} // when those that are undecided called, as probes were attached
	for key, r := range i.rows {
		pid, n := r.Process.PID, len(r.Operations)
		switch {
		case r.isCreating():
			called[pid] = true
		case n == 0:
		case undecided[key.process] && r.Operations[n-1].Enter < l.attached[pid].since+lateAfter:
			last[pid] = max(last[pid], r.Operations[n-1].Enter)
		default:
			called[pid] = true
		}
	}
	// A job of which a rank calls is judged by its calls.
	maps.DeleteFunc(l.asked, func(_ job, at collective.Time) bool { return now-at >= lateAgain })
	of := map[job][]uint32{} // the processes of each
	active := map[job]bool{} // or to be judged soon
	for pid, a := range l.attached {
		if a.job == "" {
			a.job = membership.Job(i.cfg.ProcFS, pid)
			l.attached[pid] = a
		}
		job := job{a.tenant, a.job}
		of[job] = append(of[job], pid)
		active[job] = active[job] || called[pid] || now-a.since < lateAfter
	}
	jobs := map[job][]uint32{}
	var pids []uint32
	for job, all := range of {
		if active[job] || l.asked[job] != 0 {
			continue
		}
		l.asked[job] = now
		all = slices.DeleteFunc(all, func(pid uint32) bool {
			started, ok := startedAt(i.cfg.ProcFS, pid)
			return !ok || started >= l.began || !membership.IsRank(i.cfg.ProcFS, pid)
		})
		if all = membership.WithoutFamily(i.cfg.ProcFS, all); len(all) > 0 {
			slices.Sort(all)
			jobs[job], pids = all, append(pids, all...)
		}
	}
	if len(pids) == 0 {
		return
	}
	l.dumping = true
	i.wait.Go(func() {
		ctx, cancel := context.WithTimeout(ctx, dumpLimit)
		defer cancel()
		threads, err := i.cfg.Dump(ctx, i.image, pids)
		for _, t := range threads {
			i.libraries.Mark(t.Stack)
		}
		i.mu.Lock()
		l.dumping = false
		if err != nil && ctx.Err() == nil {
			i.warn("read where ranks are that have called nothing: %v", err)
		}
		i.mu.Unlock()
		if ctx.Err() != nil {
			return
		}
		for job, all := range jobs {
			i.tellLate(job, i.standings(all, threads), last)
		}
	})
}

// standings has what is known about each process.
func (i *instance) standings(pids []uint32, threads map[Thread]Trace) (all []collective.Standing) {
	for _, pid := range pids {
		s := collective.Standing{Process: collective.Process{PID: pid, Comm: commOf(i.cfg.ProcFS, pid)}, Rank: membership.Rank(i.cfg.ProcFS, pid)}
		tid, ok := blame(threads, pid, nil)
		if !ok {
			tid = pid
		}
		place := placeOf(tid, threads[Thread{pid, tid}].Stack)
		s.Stack, s.Line = place.lines, place.user
		state, _, _, ok := look(i.cfg.ProcFS, pid, tid)
		if !ok {
			continue
		}
		s.State = state
		all = append(all, s)
	}
	return all
}

// tellLate emits the judgement of a job, if it is another one than the last. called is when those that are
// collective.Undecided have called NCCL.
func (i *instance) tellLate(job job, all []collective.Standing, called map[uint32]collective.Time) {
	if len(all) == 0 {
		return
	}
	now := bootTime()
	i.mu.Lock()
	began, last := now, collective.Time(0)
	for _, s := range all {
		if a, ok := i.late.attached[s.Process.PID]; ok {
			began = min(began, a.since)
		}
		last = max(last, called[s.Process.PID])
	}
	if last != 0 {
		began = last
	}
	verdict := collective.JudgeLate(all, time.Duration(now-began), last != 0)
	// That a job is idle is no news where it was seen at work.
	isNews := verdict.Finding != i.late.reported[job] && (last == 0 || len(verdict.Waiting)+len(verdict.Suspects) > 0)
	i.late.reported[job] = verdict.Finding
	i.mu.Unlock()
	if !isNews {
		return
	}
	waited := time.Duration(now - began)
	row := values{"event": eventLate, "reason": reasonLate, "waited": spell(waited), "waited_ns": uint64(waited), "text": oneLine(verdict.Text),
		"rank": int32(-1), "since_boot_ns": uint64(began)}
	var waiting, suspects []int
	for _, s := range verdict.Waiting {
		if s.Rank >= 0 {
			waiting = append(waiting, s.Rank)
		}
	}
	for n, s := range verdict.Suspects {
		if s.Rank >= 0 {
			suspects = append(suspects, s.Rank)
		}
		if n == 0 {
			line, folded := lines(s.Stack)
			row["rank"], row["proc.comm"], row["proc.pid"] = int32(s.Rank), oneLine(s.Process.Comm), s.Process.PID
			row["state"], row["line"], row["user_line"], row["stack"] = s.State.String(), line, s.Line, folded
		}
	}
	row["waiting"], row["ranks"] = numbers(waiting), numbers(suspects)
	if err := i.out.emitHang(row); err != nil {
		i.warn("emit: %v", err)
	}
}

// startedAt is when a process started, by the boot clock, as exactly as /proc has it.
func startedAt(procfs string, pid uint32) (collective.Time, bool) {
	_, ticks, err := readStat(filepath.Join(procfs, strconv.FormatUint(uint64(pid), 10), "stat"))
	return collective.Time(ticks * uint64(time.Second) / ticksPerSecond), err == nil
}

func commOf(procfs string, pid uint32) string {
	b, err := os.ReadFile(filepath.Join(procfs, strconv.FormatUint(uint64(pid), 10), "comm"))
	if err != nil {
		return "" // it has ended
	}
	return oneLine(strings.TrimSpace(string(b)))
}
