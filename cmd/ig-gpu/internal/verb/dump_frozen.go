// SPDX-License-Identifier: Apache-2.0

package verb

import (
	"context"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/gpu-gadgets/gpu-gadgets/internal/process/frozen"
	"github.com/gpu-gadgets/gpu-gadgets/internal/process/schedstat"
	"github.com/gpu-gadgets/gpu-gadgets/internal/process/waits"
	"github.com/gpu-gadgets/gpu-gadgets/internal/stack"
)

// still is a process as a series of dumps saw it.
type still struct {
	PID     uint32  `json:"pid"`
	Process string  `json:"process"`
	Motion  string  `json:"motion"` // frozen, runs, loops or moves
	Seconds float64 `json:"seconds"`
	// Circle is the processes that wait for each other, this one among them, in order; or this
	// one alone, if each of its Python threads waits for a lock of the process.
	Circle []uint32 `json:"circle,omitempty"`
	// IsDeadlock: nothing but these processes can end a wait of any of their threads.
	IsDeadlock bool          `json:"deadlock,omitempty"`
	Threads    []stillThread `json:"threads"`
	// GPUs are those whose memory it holds, where the vendor's library says how busy they are.
	GPUs       []load `json:"gpus,omitempty"`
	ThreadsCut int    `json:"threads_cut,omitempty"`

	waits []waits.Wait // of all threads
}

type stillThread struct {
	TID    uint32   `json:"tid"`
	Name   string   `json:"name"`
	Motion string   `json:"motion"`
	State  string   `json:"state"`
	Place  string   `json:"place"`           // the innermost frame that it did not leave
	Lines  []int    `json:"lines,omitempty"` // first and last, of one that loops
	Stack  []string `json:"stack,omitempty"` // frames that it did not leave, the outermost first
	Waits  []waited `json:"waits,omitempty"`
}

// waited is one wait of a thread.
type waited struct {
	Syscall string   `json:"syscall"`
	Kind    string   `json:"kind"`
	Name    string   `json:"name"`
	PIDs    []uint32 `json:"pids,omitempty"` // others that can end the wait
	Address string   `json:"address,omitempty"`
}

// dumpFrozen prints which processes did not move for a while, what each waits for, and which
// wait for each other.
func dumpFrozen(ctx context.Context, cfg Config, pids []uint32, length time.Duration, w io.Writer, asJSON bool) error {
	all, err := measureFrozen(ctx, cfg, pids, length)
	if err != nil {
		return err
	}
	if asJSON {
		return writeLines(w, "print a process", all)
	}
	_, err = io.WriteString(w, describeStill(all))
	return err
}

// minCompared is the least time for which dumps are compared: one is taken each second.
const minCompared = 2 * time.Second

// measureFrozen dumps processes again and again, and compares the dumps.
func measureFrozen(ctx context.Context, cfg Config, pids []uint32, length time.Duration) ([]still, error) {
	begin := time.Now()
	dump := func() ([]thread, error) { return dumpThreads(ctx, cfg, pids) }
	judge, last, err := dumpRepeatedly(ctx, cfg.ProcFS, length, dump)
	if err != nil {
		return nil, err
	}
	verdicts := judge.Processes()
	if len(verdicts) == 0 {
		return nil, fmt.Errorf("compare the stacks of process %s: there is no thread with Python frames", joined(pids))
	}
	all := standstill(cfg.ProcFS, verdicts, last, time.Since(begin))
	addLoads(cfg, all)
	return all, nil
}

// dumpRepeatedly dumps for a while, at least twice, unless ctx ends before: one dump says nothing of what moves. It
// returns what was seen, and the last dump.
func dumpRepeatedly(ctx context.Context, procfs string, length time.Duration, dump func() ([]thread, error)) (*frozen.Judge, []thread, error) {
	judge, begin, interval := &frozen.Judge{}, time.Now(), max(time.Second, length/20)
	var last []thread
	for {
		threads, err := dump()
		if ctx.Err() != nil {
			break // interrupted: this dump may be in part
		}
		if err != nil {
			return nil, nil, err
		}
		last = threads
		judge.Add(time.Now(), dumpedThreads(procfs, threads))
		left := length - time.Since(begin)
		switch {
		case left > 0:
			interval = min(interval, left)
		case judge.Dumps() > 1:
			return judge, last, nil
		}
		select {
		case <-ctx.Done():
		case <-time.After(interval):
		}
	}
	if judge.Dumps() < 2 {
		return nil, nil, fmt.Errorf("interrupted after %s: there is nothing to compare, so whether the process moves is unknown", count(judge.Dumps(), "dump"))
	}
	return judge, last, nil
}

// count is a number of things, "1 dump" or "2 dumps".
func count(n int, what string) string {
	if n != 1 {
		what += "s"
	}
	return fmt.Sprintf("%d %s", n, what)
}

func dumpedThreads(procfs string, threads []thread) (all []frozen.Thread) {
	for _, t := range threads {
		s, _ := schedstat.Read(procfs, t.PID, t.TID) // none of one that has ended
		all = append(all, frozen.Thread{PID: t.PID, TID: t.TID, Stack: t.Stack, Ready: s.Ran + s.Waited})
	}
	return all
}

// standstill adds to the verdicts what threads wait for now. A process that is not in the last
// dump has ended and is left out.
func standstill(procfs string, verdicts []frozen.Process, last []thread, after time.Duration) (all []still) {
	reader := waits.NewReader(procfs)
	stuck := map[uint32]bool{}
	for _, v := range verdicts {
		stuck[v.PID] = v.Motion == frozen.Frozen
	}
	var edges []waits.Edge
	for _, v := range verdicts {
		s := still{PID: v.PID, Motion: string(v.Motion), Seconds: after.Round(100 * time.Millisecond).Seconds()}
		read := map[uint32]waits.Wait{}
		if v.Motion != frozen.Moves || isMainFrozen(v) {
			read = reader.ReadAll(v.PID)
		}
		for _, t := range last {
			if w, ok := read[t.TID]; ok && t.PID == v.PID && t.GIL == gilWaiting {
				w.IsTimed = false // each 5 ms it begins to wait again: only another thread ends that
				read[t.TID] = w
			}
		}
		var python []waits.Wait
		for _, wait := range read {
			s.waits = append(s.waits, wait)
		}
		for _, place := range v.Threads {
			n := slices.IndexFunc(last, func(t thread) bool { return t.PID == v.PID && t.TID == place.TID })
			if n < 0 {
				continue // the thread ended
			}
			s.Process = last[n].Process
			s.Threads = append(s.Threads, stillOf(last[n], place))
			if wait, ok := read[place.TID]; ok {
				python = append(python, wait)
			}
		}
		if len(s.Threads) == 0 {
			continue
		}
		if v.Motion == frozen.Frozen && len(python) == len(s.Threads) && !slices.ContainsFunc(python, isNoLock) {
			s.Circle = []uint32{s.PID}
		}
		for n, t := range s.Threads {
			wait := read[t.TID]
			for _, res := range wait.For {
				ends := reader.Ends(s.PID, res)
				s.Threads[n].Waits = append(s.Threads[n].Waits, waited{wait.Syscall, string(res.Kind), res.Name, ends.PIDs, ends.Address})
			}
		}
		edges = append(edges, reader.Edges(python)...)
		all = append(all, s)
	}
	for _, circle := range waits.Cycles(edges, stuck) {
		for n := range all {
			if slices.Contains(circle, all[n].PID) {
				all[n].Circle = circle
			}
		}
	}
	for n := range all {
		all[n].IsDeadlock = len(all[n].Circle) > 0 && isDeadlock(reader, all, all[n].Circle)
	}
	return all
}

// gilWaiting is thread.GIL of one that waits for it.
const gilWaiting = "waiting"

// isDeadlock reports whether only processes of the circle can end a wait of any of their
// threads, of Python or not.
func isDeadlock(reader *waits.Reader, all []still, circle []uint32) bool {
	for _, s := range all {
		isStopped := func(t stillThread) bool { return t.State == stateStopped } // whether it still waits, when continued, is unknown
		if slices.Contains(circle, s.PID) && (len(s.waits) == 0 || slices.ContainsFunc(s.Threads, isStopped) || slices.ContainsFunc(s.waits, func(w waits.Wait) bool { return !reader.IsClosed(w, circle) })) {
			return false
		}
	}
	return true
}

// isMainFrozen reports whether the main thread did not move, whatever others do.
func isMainFrozen(p frozen.Process) bool {
	return slices.ContainsFunc(p.Threads, func(t frozen.Place) bool { return t.TID == p.PID && t.Motion == frozen.Frozen })
}

func isNoLock(w waits.Wait) bool {
	return len(w.For) != 1 || w.For[0].Kind != waits.Lock
}

func stillOf(t thread, place frozen.Place) stillThread {
	s := stillThread{TID: t.TID, Name: t.Name, Motion: string(place.Motion), State: t.State}
	s.Stack = t.Stack[:min(place.Depth, len(t.Stack))]
	if len(s.Stack) > 0 {
		s.Place = s.Stack[len(s.Stack)-1]
		if place.Motion != frozen.Loops && place.Depth == len(t.Stack) {
			s.Place = stack.Where(t.User, s.Place)
		}
	}
	if place.Motion == frozen.Loops {
		s.Lines = []int{place.First, place.Last}
	}
	return s
}
