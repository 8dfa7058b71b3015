// SPDX-License-Identifier: Apache-2.0

package collective

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"
)

// Undecided are processes whose calls do not show whether they hang: the ranks of a communicator that is older than the
// attach, none of which has called for as long as a hang takes. One has issued an operation that is not known to be done,
// and no wait for it was seen: it may have begun before the wait's probe was attached. Only stacks can show where they are.
// Those of which a verdict holds are left out. Communicators are in no order.
func (a *Analyzer) Undecided(now Time) (all []Process) {
	isActive := map[processKey]bool{} // or judged
	for _, c := range a.comms {
		for _, m := range c.members {
			if now-m.called() < Time(a.cfg.Hang) {
				isActive[m.Process.key()] = true
			}
		}
	}
	for key := range a.open {
		if c := a.comms[key.comm]; c != nil {
			for _, m := range c.members {
				isActive[m.Process.key()] = true
			}
		}
	}
	for _, c := range a.comms {
		if !c.late {
			continue
		}
		members := a.observed(c, now)
		if slices.ContainsFunc(members, func(m *member) bool { return isActive[m.Process.key()] }) ||
			!slices.ContainsFunc(members, func(m *member) bool { return m.isOpen(now) }) {
			continue
		}
		for _, m := range members {
			all = append(all, m.Process)
		}
	}
	return all
}

// isOpen reports whether a rank that lives has issued an operation that is not known to be done, and is not seen to wait.
func (m *member) isOpen(now Time) bool {
	if m.State.IsDead() {
		return false
	}
	if m.Issued > m.Done && !m.waits(now) {
		return true
	}
	for key, p := range m.peers {
		if p.Issued > p.Done && m.pendingWith(key, now) == nil {
			return true
		}
	}
	return false
}

// called is when it entered its newest operation; 0: none is known.
func (m *member) called() Time {
	if n := len(m.Operations); n > 0 {
		return m.Operations[n-1].Enter
	}
	return 0
}

// Standing is a process with NCCL that may hang in an operation that its calls do not show, but its stack: it has called nothing
// since the attach, or is Undecided.
type Standing struct {
	Process Process
	// Rank is that of its environment (RANK); -1: it has none.
	Rank  int
	State State
	// Stack of the thread that is judged, innermost first; empty: it was not read.
	Stack []string
	// Line is the innermost one of Stack in the program's own code; "": unknown.
	Line string
}

// who names a process, by its rank if that is known.
func (s *Standing) who() string {
	if s.Rank >= 0 {
		return fmt.Sprintf("rank %d", s.Rank)
	}
	return fmt.Sprintf("process %d", s.Process.PID)
}

// Late is a judgement of processes of one job by their stacks alone.
type Late struct {
	// Suspects are those that are at another place than the others, or stopped; it may be
	// empty.
	Suspects []Standing
	// Waiting are those with a wait for a collective in their innermost frames.
	Waiting []Standing
	// Finding is the judgement in words. Text has the time before it, and its uncertainty after it.
	Finding, Text string
}

// waits are names of functions in which a thread waits for the GPU or for other ranks, in whatever file:
// torch.cuda and torch.distributed have them, and programs name their own after these.
var waits = []string{"synchronize", "barrier", "monitored_barrier", "all_reduce", "all_gather", "all_gather_into_tensor", "all_to_all",
	"all_to_all_single", "broadcast_object_list", "reduce_scatter", "reduce_scatter_tensor", "batch_isend_irecv", "wait_tensor", "block_until_ready"}

// waitsThere are names that mean the same in files of these packages alone: elsewhere a thread that is in
// Condition.wait or Connection.recv waits for a queue or a pipe, as one does that loads data.
var (
	waitsThere = []string{"wait", "broadcast", "reduce", "gather", "scatter", "send", "recv", "item", "cpu", "tolist"}
	packages   = []string{"torch/", "mpi4py/", "cupy/"}
	loaders    = []string{"torch/utils/data/", "torch/multiprocessing/", "torch/distributed/elastic/"}
)

// innermost is the number of frames that are searched for a wait.
const innermost = 4

// function is the last part of the name in a label, and file that of the file.
func function(label string) (name, file string) {
	name, place, _ := strings.Cut(label, " (")
	file, _, _ = strings.Cut(place, ":")
	if at := strings.LastIndexByte(name, '.'); at >= 0 {
		name = name[at+1:]
	}
	return name, file
}

// isWaiting reports whether one of its innermost frames is a wait.
func (s *Standing) isWaiting() bool {
	for _, label := range s.Stack[:min(innermost, len(s.Stack))] {
		name, file := function(label)
		if slices.Contains(waits, name) || path.Base(file) == "distributed_c10d.py" || slices.Contains(waitsThere, name) && isIn(file, packages) && !isIn(file, loaders) {
			return true
		}
	}
	return false
}

// isIn reports whether a file is below one of some directories.
func isIn(file string, directories []string) bool {
	return slices.ContainsFunc(directories, func(d string) bool { return strings.HasPrefix(file, d) })
}

// line is the one that is shown to a user.
func (s *Standing) line() string {
	switch {
	case s.Line != "":
		return s.Line
	case len(s.Stack) > 0:
		return s.Stack[0]
	}
	return "a line that could not be read"
}

// isDead reports whether it cannot continue by itself.
func (s *Standing) isDead() bool {
	return s.State == Stopped || s.State == Traced || s.State == Zombie || s.State == Gone
}

// uncertain is the caveat of a judgement by stacks.
const uncertain = "Uncertain: what was called before ig-gpu attached is unknown, as is for how long; lines are of one moment"

// JudgeLate compares the stacks of those processes of one job that have made no call for so long: since the attach or, if
// some are Undecided, since their last call.
func JudgeLate(all []Standing, since time.Duration, someCalled bool) Late {
	all = slices.Clone(all)
	slices.SortFunc(all, func(a, b Standing) int {
		return cmp.Or(cmp.Compare(a.Rank, b.Rank), cmp.Compare(a.Process.PID, b.Process.PID))
	})
	var l Late
	for _, s := range all {
		switch {
		case s.isDead():
			l.Suspects = append(l.Suspects, s)
		case s.isWaiting():
			l.Waiting = append(l.Waiting, s)
		default:
			l.Suspects = append(l.Suspects, s)
		}
	}
	lead := fmt.Sprintf("attached to %s %v ago, and none has called NCCL since. ", count(len(all), "rank"), since.Round(time.Second))
	if someCalled {
		lead = fmt.Sprintf("%s last called NCCL %v ago, and no wait for that was seen. ", count(len(all), "rank"), since.Round(time.Second))
	}
	switch {
	case len(l.Waiting) == 0 && !slices.ContainsFunc(all, func(s Standing) bool { return s.isDead() }):
		l.Finding = "None is inside a wait: the job may be idle, or compute. " + places(l.Suspects)
		l.Suspects = nil
	case len(l.Suspects) == 0:
		l.Finding = fmt.Sprintf("All wait: %s. The rank at fault may be on another machine; or the network or a GPU is slow", places(l.Waiting))
	case len(l.Suspects) <= len(l.Waiting) || slices.ContainsFunc(l.Suspects, func(s Standing) bool { return s.isDead() }):
		l.Finding = fmt.Sprintf("Probably missing: %s. %s inside a wait: %s", places(l.Suspects), plural(len(l.Waiting)), places(l.Waiting))
	default:
		l.Finding = fmt.Sprintf("%s inside a wait: %s. The others are not: %s", plural(len(l.Waiting)), places(l.Waiting), places(l.Suspects))
	}
	l.Text = lead + l.Finding + ". " + uncertain
	return l
}

func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

func plural(n int) string {
	if n == 1 {
		return "1 is"
	}
	return fmt.Sprintf("%d are", n)
}

// places groups processes by their line: "ranks 0, 2 at f (a.py:1); rank 1, stopped, at …".
func places(all []Standing) string {
	type place struct {
		line, state string
		who         []Standing
	}
	var found []place
	for _, s := range all {
		state := ""
		if s.isDead() {
			state = s.State.String()
		}
		line := s.line()
		at := slices.IndexFunc(found, func(p place) bool { return p.line == line && p.state == state })
		if at < 0 {
			found = append(found, place{line, state, nil})
			at = len(found) - 1
		}
		found[at].who = append(found[at].who, s)
	}
	slices.SortStableFunc(found, func(a, b place) int { return cmp.Compare(len(b.who), len(a.who)) })
	var texts []string
	for n, p := range found {
		if n == maxLines {
			texts = append(texts, fmt.Sprintf("%d more lines", len(found)-n))
			break
		}
		text := whoAll(p.who)
		if p.state != "" {
			text += ", " + p.state + ","
		}
		texts = append(texts, text+" at "+p.line)
	}
	return strings.Join(texts, "; ")
}

// whoAll is "ranks 0, 2 and 3 more".
func whoAll(all []Standing) string {
	const named = 16
	if len(all) == 1 {
		s := all[0]
		if s.Rank >= 0 {
			return fmt.Sprintf("rank %d (process %d %s)", s.Rank, s.Process.PID, s.Process.Comm)
		}
		return fmt.Sprintf("process %d %s", s.Process.PID, s.Process.Comm)
	}
	noun, ids := "ranks ", make([]string, 0, len(all))
	for n, s := range all {
		if n == named {
			ids = append(ids, fmt.Sprintf("and %d more", len(all)-n))
			break
		}
		if s.Rank < 0 {
			noun = "processes "
		}
		ids = append(ids, strings.TrimPrefix(strings.TrimPrefix(s.who(), "rank "), "process "))
	}
	return noun + strings.Join(ids, ", ")
}
