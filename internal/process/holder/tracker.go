// SPDX-License-Identifier: Apache-2.0

package holder

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// Reason is why a process counts as abandoned.
type Reason string

// Reasons, the strongest first.
const (
	Killed  Reason = "killed"  // SIGKILL is pending and does not end it
	Exited  Reason = "exited"  // the main thread has exited, others have not
	Blocked Reason = "blocked" // uninterruptible at each look
	Stopped Reason = "stopped" // by a signal or a debugger at each look
	Orphan  Reason = "orphan"  // its parent is gone
)

// Words say the reason in a sentence: "Process 7 …".
func (r Reason) Words() string {
	switch r {
	case Killed:
		return "was killed and does not end"
	case Exited:
		return "lives on although its main thread has exited"
	case Blocked:
		return "waits in the kernel and cannot be interrupted (state D)"
	case Stopped:
		return "is stopped (state T)"
	}
	return "has outlived its parent"
}

// Holder is a process that holds GPU memory.
type Holder struct {
	PID   uint32
	Bytes int64
	// Calls counts calls of the driver, as far as they are seen: a change is work.
	Calls int64
	// Line holds the most; may be empty.
	Line string
}

// Verdict is a process that holds memory, has done nothing for Idle, and has no one left who
// would end it.
type Verdict struct {
	Holder
	Comm   string
	Reason Reason
	// Idle is how long it has done nothing, Age how long ago it started.
	Idle, Age time.Duration
}

// String is the verdict as a sentence.
func (v Verdict) String() string {
	return fmt.Sprintf("%s[%d] %s; it has done nothing for %s", v.Comm, v.PID, v.Reason.Words(), v.Idle.Round(time.Second))
}

const (
	// A process that sleeps still wakes up now and then, for a timer of a library, say: a
	// thousandth of a processor, and two ticks, are no work.
	idleShare = 1000
	idleTicks = 2 * tick
)

// Tracker reads the state of processes again and again. It must not be used concurrently.
type Tracker struct {
	// ProcFS is the host's /proc.
	ProcFS string
	// After is how long a process must have done nothing.
	After time.Duration
	known map[uint32]*seen
}

type seen struct {
	first State // for the parent, and to distinguish a process from the next one with its id
	calls int64
	since time.Time // from when on it did nothing
	cpu   time.Duration
	// mode is the reason in the state of the main thread, if it is one, and since when.
	mode      Reason
	modeSince time.Time
}

// Look takes in all processes that hold memory. now is the time, boot the same since boot.
func (t *Tracker) Look(now time.Time, boot time.Duration, holders []Holder) (verdicts []Verdict) {
	known := map[uint32]*seen{}
	for _, h := range holders {
		state, err := Read(t.ProcFS, h.PID)
		if err != nil || h.Bytes <= 0 {
			continue // it has ended
		}
		s := t.known[h.PID]
		if s == nil || s.first.Start != state.Start {
			s = &seen{first: state, since: now, cpu: state.CPU, calls: h.Calls, modeSince: now}
		}
		known[h.PID] = s
		if h.Calls != s.calls || state.CPU-s.cpu > max(now.Sub(s.since)/idleShare, idleTicks) {
			s.since, s.cpu, s.calls = now, state.CPU, h.Calls
		}
		if mode := state.reason(); mode != s.mode {
			s.mode, s.modeSince = mode, now
		}
		reason, since := t.reason(s, state, h.PID)
		if idle := now.Sub(since); reason != "" && idle >= t.After {
			verdicts = append(verdicts, Verdict{Holder: h, Comm: state.Comm, Reason: reason, Idle: idle, Age: max(boot-state.Start, 0)})
		}
	}
	t.known = known
	slices.SortFunc(verdicts, func(a, b Verdict) int { return cmp.Or(cmp.Compare(b.Bytes, a.Bytes), cmp.Compare(a.PID, b.PID)) })
	return verdicts
}

// reason is empty where the process may still be wanted.
func (t *Tracker) reason(s *seen, now State, pid uint32) (Reason, time.Time) {
	switch {
	case now.IsKilled:
		return Killed, s.since
	case s.mode != "":
		if s.modeSince.After(s.since) {
			return s.mode, s.modeSince
		}
		return s.mode, s.since
	case now.Parent != s.first.Parent || now.isOrphan(t.ProcFS, pid):
		return Orphan, s.since
	}
	return "", s.since
}

// reason comes from the state of the main thread.
func (s State) reason() Reason {
	switch s.Mode {
	case 'Z':
		return Exited
	case 'D':
		return Blocked
	case 'T', 't':
		return Stopped
	}
	return ""
}
