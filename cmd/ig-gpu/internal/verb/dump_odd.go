// SPDX-License-Identifier: Apache-2.0

package verb

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/gpu-gadgets/gpu-gadgets/cmd/ig-gpu/internal/targets"
	"github.com/gpu-gadgets/gpu-gadgets/internal/collective"
	"github.com/gpu-gadgets/gpu-gadgets/internal/collective/membership"
)

// odd is a group of ranks that are at the same place.
type odd struct {
	Ranks []int `json:"ranks"`
	Count int   `json:"count"`
	// IsDominant: more than half of the ranks are here.
	IsDominant bool     `json:"dominant"`
	Place      string   `json:"place"`
	PIDs       []uint32 `json:"pids"`
	Stack      []string `json:"stack"` // of the first of them, outermost frame first
}

// dumpOdd dumps processes and prints which of them are not where most are.
func dumpOdd(ctx context.Context, cfg Config, pids []uint32, w io.Writer, asJSON bool) error {
	threads, err := dumpThreads(ctx, cfg, pids)
	if err != nil {
		return err
	}
	ranks := ranksOf(cfg.ProcFS, threads)
	if len(ranks) < 2 {
		return fmt.Errorf("of these processes, %d have NCCL and threads of Python: two are needed to compare them; name all ranks, or what started them", len(ranks))
	}
	return writeOdd(w, grouped(ranks), asJSON)
}

// dumped is the main thread of a process.
type dumped struct {
	rank  int
	pid   uint32
	stack []string // outermost first
	user  string
}

// ranksOf are the processes that are ranks (internal/collective/membership). Where there are not two of these: that
// have mapped NCCL, or, where none has, CUDA. Their children that load data, which have it mapped if they were forked,
// and the program that started them are none. The number of each is that of its environment, as torchrun and others set
// it, or, if one has none, its place in the list.
func ranksOf(procfs string, threads []thread) (all []dumped) {
	var certain, byNCCL, byCUDA []dumped
	for _, t := range threads {
		if t.PID != t.TID || len(t.Stack) == 0 {
			continue
		}
		d := dumped{membership.Rank(procfs, t.PID), t.PID, t.Stack, t.User}
		libraries, _ := targets.Libraries(procfs, t.PID) // none of one that has ended
		if hasCollectives(libraries) {
			byNCCL = append(byNCCL, d)
			if membership.IsRank(procfs, t.PID) {
				certain = append(certain, d)
			}
		} else if mapped(libraries, nvidia.library) != "" || mapped(libraries, amd.library) != "" {
			byCUDA = append(byCUDA, d)
		}
	}
	if all = withoutFamily(procfs, certain); len(all) < 2 {
		all = withoutFamily(procfs, byNCCL)
	}
	if len(all) < 2 {
		all = withoutFamily(procfs, append(byNCCL, byCUDA...))
	}
	slices.SortFunc(all, func(a, b dumped) int { return int(a.pid) - int(b.pid) })
	if slices.ContainsFunc(all, func(d dumped) bool { return d.rank < 0 }) {
		for n := range all {
			all[n].rank = n
		}
	}
	return all
}

// withoutFamily leaves out workers that ranks have started, and what started them.
func withoutFamily(procfs string, all []dumped) []dumped {
	pids := make([]uint32, len(all))
	for n, d := range all {
		pids[n] = d.pid
	}
	pids = membership.WithoutFamily(procfs, pids)
	return slices.DeleteFunc(slices.Clone(all), func(d dumped) bool { return !slices.Contains(pids, d.pid) })
}

func grouped(ranks []dumped) (all []odd) {
	placed := make([]collective.Placed, len(ranks))
	for n, r := range ranks {
		innermost := slices.Clone(r.stack)
		slices.Reverse(innermost)
		placed[n] = collective.Placed{Rank: n, Stack: innermost, UserLine: r.user} // two jobs may have the same ranks
	}
	groups := collective.GroupStacks(placed)
	_, _, isOdd := collective.Odd(groups)
	for n, g := range groups {
		o := odd{Count: g.Count, Place: g.Place, IsDominant: n == 0 && (isOdd || len(groups) == 1), Stack: ranks[g.Ranks[0]].stack}
		for _, at := range g.Ranks {
			o.Ranks, o.PIDs = append(o.Ranks, ranks[at].rank), append(o.PIDs, ranks[at].pid)
		}
		all = append(all, o)
	}
	return all
}

func writeOdd(w io.Writer, groups []odd, asJSON bool) error {
	if asJSON {
		return writeLines(w, "print a group of ranks", groups)
	}
	var b strings.Builder
	total := 0
	for _, g := range groups {
		total += g.Count
	}
	switch {
	case len(groups) == 1:
		fmt.Fprintf(&b, "All %d ranks are at %s.\n", total, groups[0].Place)
	case groups[0].IsDominant:
		fmt.Fprintf(&b, "%d of %d ranks are at %s. The others are not:\n", groups[0].Count, total, groups[0].Place)
		groups = groups[1:]
	default:
		fmt.Fprintf(&b, "The %d ranks are at %d places, none of which has most of them:\n", total, len(groups))
	}
	for _, g := range groups {
		if g.Count == total {
			break
		}
		fmt.Fprintf(&b, "\n%s\n", collective.StackGroup{Place: g.Place, Ranks: g.Ranks, Count: g.Count})
		fmt.Fprintf(&b, "  process %s\n", joined(g.PIDs))
		for _, frame := range slices.Backward(g.Stack) {
			fmt.Fprintf(&b, "    %s\n", frame)
		}
	}
	_, err := io.WriteString(w, b.String())
	return errors.Join(err)
}
