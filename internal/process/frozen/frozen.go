// SPDX-License-Identifier: Apache-2.0

// Package frozen judges from repeated dumps whether a process moves: whether the Python line of
// any of its threads changed. It knows nothing of why; see internal/process/waits.
package frozen

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Motion is how much a thread or a process moves.
type Motion string

// The motions, from the least on.
const (
	// Frozen: the whole stack was the same in all dumps.
	Frozen Motion = "frozen"
	// Runs: the stack was the same, but the thread ran, or was ready to and waited for a processor, for a
	// twentieth of the time or more: it computes on one line, or in native code.
	Runs Motion = "runs"
	// Loops: only lines within one function changed, as in a loop that polls.
	Loops Motion = "loops"
	// Moves: frames changed, or a thread started or ended.
	Moves Motion = "moves"
)

// Thread is one of a dump, with at least one frame of Python.
type Thread struct {
	PID, TID uint32
	// Stack has the outermost frame first, each as "function (file:line)".
	Stack []string
	// Ready is the time that it has run or waited for a processor since it started.
	Ready time.Duration
}

// Place is where a thread was during all dumps.
type Place struct {
	TID    uint32
	Motion Motion
	// Depth is how many frames of the stack, from the outermost on, were in all dumps; if it
	// loops, with the function that does.
	Depth int
	// First and Last are the lines between which a thread loops, in the function of the
	// frame at Depth.
	First, Last int
}

// Process is a verdict.
type Process struct {
	PID     uint32
	Motion  Motion
	Threads []Place // by thread id
}

// Judge compares dumps. The zero value is ready.
type Judge struct {
	dumps     int
	begin     time.Time
	end       time.Time
	processes map[uint32]map[uint32]*seen // by process and thread
}

const (
	// maxStacks bounds the different stacks kept of a thread: one with more moves.
	maxStacks = 64
	// maxCallees is how many frames a function that polls may have called.
	maxCallees = 2
	// runningShare: a thread that waits for something else is ready for less than this part of the time.
	runningShare = 20
)

// seen has the stacks of a thread.
type seen struct {
	dumps  int
	stacks [][]string // different ones, in the order in which they were met
	isOver bool       // there were more
	before time.Duration
	after  time.Duration
}

// Add takes one dump.
func (j *Judge) Add(at time.Time, threads []Thread) {
	if j.processes == nil {
		j.processes = map[uint32]map[uint32]*seen{}
		j.begin = at
	}
	j.end = at
	j.dumps++
	for _, t := range threads {
		if len(t.Stack) == 0 {
			continue
		}
		if j.processes[t.PID] == nil {
			j.processes[t.PID] = map[uint32]*seen{}
		}
		s := j.processes[t.PID][t.TID]
		if s == nil {
			s = &seen{before: t.Ready}
			j.processes[t.PID][t.TID] = s
		}
		s.dumps, s.after = s.dumps+1, t.Ready
		switch {
		case slices.ContainsFunc(s.stacks, func(known []string) bool { return slices.Equal(known, t.Stack) }):
		case len(s.stacks) == maxStacks:
			s.isOver = true
		default:
			s.stacks = append(s.stacks, slices.Clone(t.Stack))
		}
	}
}

// Dumps is how many were added.
func (j *Judge) Dumps() int { return j.dumps }

// Processes returns the verdicts on all processes that were in a dump, by process id; none before the
// second dump, for there is nothing to compare.
func (j *Judge) Processes() (all []Process) {
	if j.dumps < 2 {
		return nil
	}
	for pid, threads := range j.processes {
		p := Process{PID: pid, Motion: Frozen}
		for tid, s := range threads {
			place := s.place()
			place.TID = tid
			if place.Motion == Frozen && s.after-s.before > j.end.Sub(j.begin)/runningShare {
				place.Motion = Runs
			}
			if s.dumps < j.dumps { // it started or ended
				place.Motion = Moves
			}
			p.Motion = most(p.Motion, place.Motion)
			p.Threads = append(p.Threads, place)
		}
		slices.SortFunc(p.Threads, func(a, b Place) int { return cmp.Compare(a.TID, b.TID) })
		all = append(all, p)
	}
	slices.SortFunc(all, func(a, b Process) int { return cmp.Compare(a.PID, b.PID) })
	return all
}

func most(a, b Motion) Motion {
	order := []Motion{Frozen, Runs, Loops, Moves}
	return order[max(slices.Index(order, a), slices.Index(order, b))]
}

func (s *seen) place() Place {
	first := s.stacks[0]
	common, shortest, longest := len(first), len(first), len(first)
	for _, other := range s.stacks[1:] {
		n := 0
		for n < min(common, len(other)) && first[n] == other[n] {
			n++
		}
		common, shortest, longest = n, min(shortest, len(other)), max(longest, len(other))
	}
	p := Place{Depth: common}
	if len(s.stacks) == 1 {
		p.Motion = Frozen
		return p
	}
	p.Motion = Moves
	// The function that loops: the frame behind the common ones, if it is the same function
	// in all stacks; or the last common one, where a stack ends.
	at := common
	if shortest == common {
		at--
	}
	if s.isOver || at < 0 || longest-at-1 > maxCallees {
		return p
	}
	function, _ := splitLine(first[at])
	p.First, p.Last = int(^uint(0)>>1), 0
	for _, stack := range s.stacks {
		name, line := splitLine(stack[at])
		if name != function {
			return Place{Motion: Moves, Depth: common}
		}
		p.First, p.Last = min(p.First, line), max(p.Last, line)
	}
	p.Motion, p.Depth = Loops, at+1
	return p
}

// splitLine takes the line out of "function (file:line)"; 0: it has none.
func splitLine(frame string) (function string, line int) {
	begin := strings.LastIndexByte(frame, ':')
	if begin < 0 || !strings.HasSuffix(frame, ")") {
		return frame, 0
	}
	line, err := strconv.Atoi(frame[begin+1 : len(frame)-1])
	if err != nil {
		return frame, 0
	}
	return frame[:begin], line
}
