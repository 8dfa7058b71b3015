// SPDX-License-Identifier: Apache-2.0

package ras

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// Local is a rank that we observe, by its number in the communicator and its process's own pid.
type Local struct {
	Rank, PID int
	// Issued is our count of collectives; not compared if IsLate.
	Issued uint64
	IsLate bool
}

// Find returns the communicator that has these ranks; nil if there is none, or more than
// one candidate. identity is ours, which is NCCL's hash for communicators that are older
// than the run.
func (s *Status) Find(identity uint64, size int, ranks []Local) *Communicator {
	var found []*Communicator
	for i := range s.Communicators {
		c := &s.Communicators[i]
		if c.Hash == "0x"+strconv.FormatUint(identity, 16) {
			return c
		}
		if c.Size == size && c.has(ranks) {
			found = append(found, c)
		}
	}
	if len(found) > 1 { // groups of the same ranks, by their progress
		found = slices.DeleteFunc(found, func(c *Communicator) bool { return !c.agrees(ranks) })
	}
	if len(found) != 1 {
		return nil
	}
	return found[0]
}

func (c *Communicator) has(ranks []Local) bool {
	pids := map[int]int{}
	for _, r := range c.Ranks {
		pids[r.Rank] = r.PID
	}
	for _, r := range c.Missing {
		pids[r.Rank] = r.PID
	}
	for _, r := range ranks {
		if pid, ok := pids[r.Rank]; !ok || pid != r.PID {
			return false
		}
	}
	return len(ranks) > 0
}

func (c *Communicator) agrees(ranks []Local) bool {
	for _, l := range ranks {
		for i := range c.Ranks {
			if r := &c.Ranks[i]; r.Rank == l.Rank && !l.IsLate && r.issued() != l.Issued {
				return false
			}
		}
	}
	return true
}

// Opinion on a verdict.
type Opinion struct {
	// Verdict is agrees or disagrees.
	Verdict string
	// Text is RAS's view, human-readable.
	Text string
}

// maxText bounds how much of an answer is shown.
const maxText = 300

// Judge describes the communicator's ranks as RAS sees them, and whether that matches the
// ranks that we hold at fault; none: no rank here is (slow, elsewhere).
func (c *Communicator) Judge(missing []int) Opinion {
	behind := c.behind()
	texts := []string{}
	blamed := map[int]bool{}
	for _, m := range c.Missing {
		blamed[m.Rank] = true
		what := "does not answer"
		if m.Status.Dead {
			what = "is considered dead"
		}
		texts = append(texts, fmt.Sprintf("rank %d (%s, pid %d) %s", m.Rank, printable(m.Host), m.PID, what))
	}
	for _, r := range c.Ranks {
		switch {
		case r.Status.Abort:
			blamed[r.Rank] = true
			texts = append(texts, fmt.Sprintf("rank %d (%s, pid %d) has aborted", r.Rank, printable(r.Host), r.PID))
		case behind[r.Rank] != 0:
			blamed[r.Rank] = true
			texts = append(texts, fmt.Sprintf("rank %d (%s, pid %d) is %d behind", r.Rank, printable(r.Host), r.PID, behind[r.Rank]))
		}
	}
	o := Opinion{Verdict: "disagrees", Text: strings.Join(texts, ", ")}
	if len(texts) == 0 {
		o.Text = fmt.Sprintf("all %d ranks answer and have issued the same", len(c.Ranks))
	}
	if len(o.Text) > maxText {
		o.Text = strings.ToValidUTF8(o.Text[:maxText], "") + "…"
	}
	ours := map[int]bool{}
	for _, r := range missing {
		ours[r] = true
	}
	if maps.Equal(ours, blamed) {
		o.Verdict = "agrees"
	}
	return o
}

// behind returns the ranks that have issued fewer collectives than the one with most, and
// by how many.
func (c *Communicator) behind() map[int]uint64 {
	most := uint64(0)
	for i := range c.Ranks {
		most = max(most, c.Ranks[i].issued())
	}
	out := map[int]uint64{}
	least := most
	for i := range c.Ranks {
		least = min(least, c.Ranks[i].issued())
	}
	for i := range c.Ranks {
		// Ranks in between wait for those that are farthest behind.
		if n := c.Ranks[i].issued(); n < most && n == least {
			out[c.Ranks[i].Rank] = most - n
		}
	}
	return out
}

// printable keeps untrusted text from controlling a terminal.
func printable(s string) string {
	s = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r >= 0x80 && r < 0xa0 {
			return -1
		}
		return r
	}, strings.ToValidUTF8(s, "?"))
	if len(s) > 64 {
		s = strings.ToValidUTF8(s[:64], "")
	}
	return s
}
