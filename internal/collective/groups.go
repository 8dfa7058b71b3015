// SPDX-License-Identifier: Apache-2.0

package collective

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// StackGroup is the ranks of a communicator that are at the same place: the same stack from the
// program's start to its innermost own line. What they have called there, such as a library
// that polls, does not count.
type StackGroup struct {
	Place string // as Culprit's: the program's own line, and that of a library
	Ranks []int  // sorted; at most MaxNamed of Count
	Count int
}

// Placed is a rank and where it is, the innermost line of the stack first. UserLine is the
// innermost of the program's own; "": it is guessed from the names of the files.
type Placed struct {
	Rank     int
	Stack    []string
	UserLine string
}

// groupStacks groups the ranks that run, wait or are stopped.
func groupStacks(members []*member) []StackGroup {
	var all []Placed
	for _, m := range members {
		if !m.State.IsDead() || m.State == Stopped || m.State == Traced {
			all = append(all, Placed{m.Rank, m.Stack, m.UserLine})
		}
	}
	return GroupStacks(all)
}

// GroupStacks groups ranks by place, the largest group first. Ranks without a stack are in
// none. Most ranks of a job do the same, so that the first group is the healthy one, and what
// the others do differs.
func GroupStacks(all []Placed) (groups []StackGroup) {
	byPlace := map[string]int{}
	for _, m := range all {
		if len(m.Stack) == 0 {
			continue
		}
		c := Culprit{Stack: m.Stack, UserLine: m.UserLine}
		key := strings.Join(ownPart(m.Stack, m.UserLine), "\n")
		n, known := byPlace[key]
		if !known {
			n = len(groups)
			byPlace[key] = n
			groups = append(groups, StackGroup{Place: c.place()})
		}
		g := &groups[n]
		if g.Count++; len(g.Ranks) < MaxNamed {
			g.Ranks = append(g.Ranks, m.Rank)
		}
	}
	slices.SortStableFunc(groups, func(a, b StackGroup) int {
		return cmp.Or(-cmp.Compare(a.Count, b.Count), cmp.Compare(a.Ranks[0], b.Ranks[0]))
	})
	return groups
}

// ownPart is a stack without the library's lines that its innermost own line has called.
func ownPart(stack []string, user string) []string {
	if user == "" {
		user = guess(stack)
	}
	if n := slices.Index(stack, user); n > 0 {
		return stack[n:]
	}
	return stack
}

// Odd splits groups into the dominant one, which has more than half of the ranks, and the
// others. ok is false where there is none, or nothing else.
func Odd(groups []StackGroup) (dominant StackGroup, odd []StackGroup, ok bool) {
	total := 0
	for _, g := range groups {
		total += g.Count
	}
	if len(groups) < 2 || groups[0].Count*2 <= total {
		return StackGroup{}, nil, false
	}
	return groups[0], groups[1:], true
}

// String is "ranks 3, 5 at evaluate (eval.py:7)".
func (g StackGroup) String() string {
	return ranks(g.Ranks, g.Count) + " at " + g.Place
}

// maxOdd bounds the groups that a text has.
const maxOdd = 4

// oddText names the ranks that are neither where most are nor at fault, whose lines the text
// has already; "" where there are none.
func (v *Verdict) oddText() string {
	dominant, odd, ok := Odd(v.Groups)
	if !ok {
		return ""
	}
	named := map[int]bool{}
	for n := range v.Missing[:min(len(v.Missing), maxLines)] {
		named[v.Missing[n].Rank] = true
	}
	var parts []string
	more := 0
	for _, g := range odd {
		if !slices.ContainsFunc(g.Ranks, func(rank int) bool { return !named[rank] }) {
			continue
		}
		if len(parts) == maxOdd {
			more++
			continue
		}
		parts = append(parts, g.String())
	}
	if len(parts) == 0 {
		return ""
	}
	text := fmt.Sprintf("; %d ranks are at %s, but %s", dominant.Count, dominant.Place, strings.Join(parts, ", "))
	if more > 0 {
		text += fmt.Sprintf(", and others at %d more lines", more)
	}
	return text
}
