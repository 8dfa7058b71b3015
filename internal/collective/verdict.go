// SPDX-License-Identifier: Apache-2.0

package collective

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Reason is the kind of a verdict.
type Reason string

// Reasons of verdicts. They are labels of metrics, so their texts never change.
const (
	// Missing: ranks have not issued an operation in which others wait.
	Missing Reason = "missing"
	// Mismatch: ranks issued different operations under one number, or two
	// communicators' operations in different orders.
	Mismatch Reason = "mismatch"
	// Unmatched: a send without its receive, or the other way round.
	Unmatched Reason = "unmatched"
	// Straggler: a rank repeatedly arrives last.
	Straggler Reason = "straggler"
	// Dead: the missing rank has ended, was stopped, or aborted the communicator.
	Dead Reason = "dead"
	// Slow: all have arrived, none is done. The cause is the network, a GPU, or
	// earlier work in the stream.
	Slow Reason = "slow"
	// Inside: a rank has entered a call and did not return from it, which takes NCCL
	// microseconds otherwise.
	Inside Reason = "inside"
	// Slowdown: iterations take longer than before, and no rank is at fault.
	Slowdown Reason = "slowdown"
	// Elsewhere: all observed ranks have arrived, and others are not observed; or the peer of a rank that waits is not.
	Elsewhere Reason = "elsewhere"
	// Creating: ranks wait in a call that creates a communicator. That others are not there yet is no fault: they may load.
	Creating Reason = "creating"
)

// Culprit is a rank that a verdict names.
type Culprit struct {
	Rank    int
	Process Process
	State   State
	Wchan   string
	Stack   []string // innermost first; may be empty
	// UserLine and StackIsLast as in Observation.
	UserLine    string
	StackIsLast bool
	Issued      uint64
	At          Time // when it was last observed
	Signature   Signature
	// Late by this much, at the median and at the 99th percentile (Straggler).
	P50, P99 time.Duration
}

// Verdict is one cause for which ranks wait. It holds from Since on, until Cleared if
// that is not 0.
type Verdict struct {
	Reason       Reason
	Communicator Communicator
	// Kind and Seq describe the operation that is missing, or that no rank has done. If a
	// rank waits in a send, it is the receive, and vice versa; Peer is then the waiting
	// rank, else None. If no rank is at fault, they are those of a rank that waits. Seq is 0 if
	// there is no single operation.
	Kind Kind
	Seq  uint64
	Peer int
	// First is not 0 where a Mismatch is in one of the collectives from First to Seq, which no rank shows any more.
	First uint64
	// Since is when the first of the waiting ranks began to wait, At when it was reported, Cleared when
	// that ended.
	Since, At, Cleared Time
	// Missing are those at fault: for Mismatch, one rank for each different call, or, with First, those that differ from most.
	Missing []Culprit
	// Witness is the process of a rank that waits, or is slow, where none is at fault.
	Witness Process
	// Waiting are ranks that have arrived; at most MaxNamed of WaitingCount.
	Waiting      []int
	WaitingCount int
	// Parent is the communicator that is split (Creating); Hash 0: none is.
	Parent Communicator
	// Unseen are ranks that are not observed, or, for Creating, have not called; at most MaxNamed.
	Unseen     []int
	MoreUnseen bool
	// Lost are the nodes of those where they were observed before (Elsewhere); at most MaxNamed.
	Lost []LostNode
	// Behind are other communicators that hang for the same reason.
	Behind []Communicator
	// Step is the first iteration that was slow, and Before and After are what one takes
	// (Slowdown). Iterations count from the first collective that was seen.
	Step          uint64
	Before, After time.Duration
	// Groups are the places at which ranks of the communicator are, the largest group first;
	// at most MaxNamed. Those whose stack is not known are in none.
	Groups []StackGroup
	// GPUs says what happened to the GPUs of its ranks in the minutes before, one of them each. The
	// caller fills it in.
	GPUs []string
	// Changed: it was reported before, for another reason or with other ranks at fault.
	Changed bool
	// Late: ranks were compared by who waits, not by numbers (Observation.Late).
	Late bool

	isMost bool // with First: most ranks are the same
	root   Time // since when ranks wait for that operation itself
	isAll  bool // Inside: no rank has returned
	alive  Time // when a dead culprit was first seen running again
	// reported are those at fault as they were last reported; differs is since when Missing has been what it is, and
	// not these.
	reported []Culprit
	differs  Time
}

// MaxNamed bounds the ranks that a verdict lists.
const MaxNamed = 64

// maxLines is the number of ranks of which a text has the line.
const maxLines = 4

// Waited returns the duration, until it was cleared or until now.
func (v *Verdict) Waited(now Time) time.Duration {
	if v.Cleared != 0 {
		now = v.Cleared
	}
	return time.Duration(max(now-v.Since, 0))
}

// String is the verdict in one line: who, what, how long, where. now is used while it is
// not cleared.
func (v *Verdict) String(now Time) string {
	var b strings.Builder
	what := v.operation()
	waited := seconds(v.Waited(now))
	switch v.Reason {
	case Missing, Dead, Unmatched:
		b.WriteString(v.subject())
		fmt.Fprintf(&b, ", before %s", what)
		if v.Cleared != 0 {
			fmt.Fprintf(&b, " (was waited for %s)", waited)
		} else {
			fmt.Fprintf(&b, " (waited %s by %s)", waited, ranks(v.Waiting, v.WaitingCount))
		}
	case Mismatch:
		switch {
		case v.First != 0:
			b.WriteString(v.divergedText(waited))
		case v.Seq == 0:
			fmt.Fprintf(&b, "%s wait for each other in %s: operations of these communicators are issued in different orders", names(v.Missing), v.Communicator)
		default:
			fmt.Fprintf(&b, "ranks issue different operations as %s:", what)
			for i, c := range v.Missing {
				if i > 0 {
					b.WriteString(";")
				}
				fmt.Fprintf(&b, " rank %d %s", c.Rank, c.Signature)
			}
		}
	case Straggler:
		c := v.Missing[0]
		fmt.Fprintf(&b, "rank %d of %s is the last: it arrives %s after the others (p99 %s)", c.Rank, sized(v.Communicator), seconds(c.P50), seconds(c.P99))
	case Slowdown:
		b.WriteString(v.slowdownText())
	case Inside:
		b.WriteString(v.insideText(waited))
	case Slow:
		fmt.Fprintf(&b, "all ranks of %s are in %s %d and none has completed it, for %s: network, GPU, or earlier work in its stream", sized(v.Communicator), v.noun(), v.Seq, waited)
	case Elsewhere:
		b.WriteString(v.elsewhereText(waited) + v.lostText(now))
	case Creating:
		b.WriteString(v.creatingText(waited))
	}
	for i := range v.Missing {
		c := &v.Missing[i]
		if v.Reason == Mismatch || i == maxLines {
			break
		}
		var parts []string
		if len(c.Stack) > 0 {
			at := "at "
			if c.StackIsLast {
				at = "last at "
			}
			parts = append(parts, at+c.place())
		}
		if p := c.process(); p != "" {
			parts = append(parts, p)
		}
		if len(parts) == 0 {
			continue
		}
		b.WriteString("; ")
		if len(v.Missing) > 1 {
			fmt.Fprintf(&b, "rank %d ", c.Rank)
		}
		b.WriteString(strings.Join(parts, ", "))
	}
	v.writeRest(&b)
	return b.String()
}

// writeRest writes what does not depend on the reason.
func (v *Verdict) writeRest(b *strings.Builder) {
	b.WriteString(v.oddText())
	for _, text := range v.GPUs {
		b.WriteString("; " + text)
	}
	if n := len(v.Behind); n == 1 && v.Reason == Slowdown {
		fmt.Fprintf(b, "; so is %s", v.Behind[0])
	} else if n > 1 && v.Reason == Slowdown {
		fmt.Fprintf(b, "; so are %d other communicators", n)
	} else if n == 1 {
		fmt.Fprintf(b, "; %s waits behind it", v.Behind[0])
	} else if n > 1 {
		fmt.Fprintf(b, "; %d other communicators wait behind it", n)
	}
	if v.Late {
		b.WriteString("; the communicator is older than this run: judged by which ranks wait")
	}
}

// subject: "rank 1 of 3 is stopped".
func (v *Verdict) subject() string {
	of := ""
	if v.Communicator.Size > 0 {
		of = " of " + strconv.Itoa(v.Communicator.Size)
	}
	switch len(v.Missing) {
	case 0:
		return "no rank"
	case 1:
		return fmt.Sprintf("rank %d%s %s", v.Missing[0].Rank, of, v.Missing[0].claim())
	}
	return fmt.Sprintf("%s%s are missing (%s)", names(v.Missing), of, v.Missing[0].claim())
}

// claim describes the state of a missing rank.
func (c *Culprit) claim() string {
	switch c.State {
	case Stopped:
		return "is stopped"
	case Traced:
		return "is stopped by a debugger"
	case Zombie, Gone:
		return "has exited"
	case Aborted:
		return "has aborted the communicator"
	case Destroyed:
		return "has destroyed the communicator"
	case Running:
		return "is missing and runs"
	case Sleeping:
		return "is missing and sleeps"
	case Uninterruptible:
		return "is missing and sleeps in the kernel"
	}
	return "is missing"
}

// place is the program's own line and, if it has called a library, the line there:
// "load_batch (train.py:18), in Condition.wait (threading.py:327)".
func (c *Culprit) place() string {
	user := c.UserLine
	if user == "" {
		user = guess(c.Stack)
	}
	if user == c.Stack[0] {
		return user
	}
	return user + ", in " + c.Stack[0]
}

// guess finds the program's own line if only the lines are known: files of libraries are
// shown with their directory, except the modules of the standard library that are in
// none.
func guess(stack []string) string {
	if !strings.Contains(stack[0], "/") {
		return stack[0]
	}
	for _, line := range stack[1:] {
		if !strings.ContainsAny(line, "/<") {
			return line
		}
	}
	return stack[0]
}

// process is "process 4242 python on node7", or empty.
func (c *Culprit) process() string {
	if c.Process.PID == 0 {
		return ""
	}
	text := "process " + strconv.FormatUint(uint64(c.Process.PID), 10)
	if c.Process.Comm != "" {
		text += " " + c.Process.Comm
	}
	if c.Process.Node != "" {
		text += " on " + c.Process.Node
	}
	return text
}

func (v *Verdict) operation() string {
	if v.Kind.IsPeer() {
		preposition := "to"
		if v.Kind == Recv {
			preposition = "from"
		}
		return fmt.Sprintf("%s %d %s rank %d of communicator %s", v.Kind, v.Seq, preposition, v.Peer, v.Communicator)
	}
	return fmt.Sprintf("%s %d of communicator %s", v.noun(), v.Seq, v.Communicator)
}

// noun is the kind of the operation. It is not known if it is older than the newest History of all ranks that wait for it.
func (v *Verdict) noun() string {
	if v.Kind == 0 {
		return "collective"
	}
	return v.Kind.String()
}

func sized(c Communicator) string {
	if c.Size == 0 {
		return "communicator " + c.String()
	}
	return strconv.Itoa(c.Size) + " of communicator " + c.String()
}

func names(cs []Culprit) string {
	numbers := make([]int, len(cs))
	for i, c := range cs {
		numbers[i] = c.Rank
	}
	return ranks(numbers, len(numbers))
}

// ranks is "rank 4", "ranks 0, 2", "ranks 0-6", "ranks 0-6, 9 and 500 others".
func ranks(sorted []int, count int) string {
	if count == 1 && len(sorted) == 1 {
		return "rank " + strconv.Itoa(sorted[0])
	}
	var parts []string
	shown := 0
	for i := 0; i < len(sorted) && len(parts) < 8; {
		j := i
		for j+1 < len(sorted) && sorted[j+1] == sorted[j]+1 {
			j++
		}
		switch {
		case j == i:
			parts = append(parts, strconv.Itoa(sorted[i]))
		case j == i+1:
			parts = append(parts, strconv.Itoa(sorted[i]), strconv.Itoa(sorted[j]))
		default:
			parts = append(parts, strconv.Itoa(sorted[i])+"-"+strconv.Itoa(sorted[j]))
		}
		shown += j - i + 1
		i = j + 1
	}
	text := "ranks " + strings.Join(parts, ", ")
	if count > shown {
		text += fmt.Sprintf(" and %d others", count-shown)
	}
	return text
}

// seconds with two significant digits.
func seconds(d time.Duration) string {
	switch {
	case d >= 10*time.Second:
		return d.Round(time.Second).String()
	case d >= time.Second:
		return fmt.Sprintf("%.1f s", d.Seconds())
	case d >= 100*time.Millisecond:
		return fmt.Sprintf("%d ms", d.Milliseconds())
	}
	return fmt.Sprintf("%.2g ms", float64(d)/float64(time.Millisecond))
}
