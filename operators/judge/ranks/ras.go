// SPDX-License-Identifier: Apache-2.0

package ranks

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/gpu-gadgets/gpu-gadgets/internal/collective"
	"github.com/gpu-gadgets/gpu-gadgets/internal/collective/ras"
	"github.com/gpu-gadgets/gpu-gadgets/internal/process/holder"
)

const (
	// rasTries: processes of a node share a port, and the kernel chooses which one gets
	// the connection; it may be the one that hangs. One that is stopped accepts it, too, which costs 2 s.
	rasTries, rasSilent = 3, 10
	// rasLimit is for all tries, of which each has its own.
	rasLimit = time.Minute
)

// rasKey is a verdict that RAS is queried about once.
type rasKey struct {
	comm, seq uint64
	reason    collective.Reason
	since     collective.Time
}

// witness is a query to NCCL's RAS.
type witness struct {
	verdict collective.Verdict
	key     rasKey
	pids    []uint32 // whose RAS may be queried, those that wait first
	locals  []ras.Local
}

// consult asks NCCL's RAS about verdicts that hold and that it was not asked about, one
// after the other, in the background; the lock is held.
func (i *instance) consult(ctx context.Context, open []collective.Verdict) {
	if !i.asksRAS || i.asking {
		return
	}
	held := map[rasKey]bool{}
	var next *witness
	for n := range open {
		v := &open[n]
		switch v.Reason {
		case collective.Missing, collective.Dead, collective.Slow, collective.Elsewhere:
		default:
			continue // it counts operations, and knows nothing of their arguments and peers
		}
		key := rasKey{v.Communicator.Hash, v.Seq, v.Reason, v.Since}
		held[key] = i.asked[key]
		if !i.asked[key] && next == nil && !v.Kind.IsPeer() {
			if w := i.witness(v, key); len(w.pids) > 0 {
				next, held[key] = w, true
			}
		}
	}
	i.asked = held
	if next == nil {
		return
	}
	i.asking = true
	i.wait.Go(func() {
		ctx, cancel := context.WithTimeout(ctx, rasLimit)
		defer cancel()
		status, err := i.askRAS(ctx, next.pids)
		i.mu.Lock()
		i.asking = false
		holds := slices.ContainsFunc(i.analyzer.Verdicts(), func(v collective.Verdict) bool {
			return rasKey{v.Communicator.Hash, v.Seq, v.Reason, v.Since} == next.key
		})
		i.mu.Unlock()
		if err != nil {
			if ctx.Err() == nil {
				i.warn("ask NCCL's RAS: %v", err)
			}
			return
		}
		if holds {
			i.testify(next, status)
		}
	})
}

// witness collects whose RAS can be queried about a verdict: the processes here that have a rank
// of the communicator and live.
func (i *instance) witness(v *collective.Verdict, key rasKey) *witness {
	w := &witness{verdict: *v, key: key}
	type candidate struct {
		pid    uint32
		wrong  bool
		issued uint64
	}
	var all []candidate
	for _, r := range i.rows {
		p := i.processes[r.Process.ID]
		if r.Communicator.Hash != v.Communicator.Hash || r.isCreating() || p == nil || p.gone {
			continue
		}
		w.locals = append(w.locals, ras.Local{Rank: r.Rank, PID: holder.InnerPID(i.cfg.ProcFS, p.pid), Issued: r.Issued, IsLate: r.Late})
		wrong := slices.ContainsFunc(v.Missing, func(c collective.Culprit) bool { return c.Process.ID == r.Process.ID })
		all = append(all, candidate{p.pid, wrong, r.Issued})
	}
	slices.SortFunc(all, func(a, b candidate) int {
		switch {
		case a.wrong != b.wrong && b.wrong:
			return -1
		case a.wrong != b.wrong:
			return 1
		}
		return cmp.Compare(a.pid, b.pid)
	})
	for n := 0; n < len(all) && n < rasTries; n++ {
		w.pids = append(w.pids, all[n].pid)
	}
	slices.SortFunc(w.locals, func(a, b ras.Local) int { return cmp.Compare(a.Rank, b.Rank) })
	return w
}

// askRAS tries processes until one answers.
func (i *instance) askRAS(ctx context.Context, pids []uint32) (status *ras.Status, err error) {
	for tries, silent := 0, 0; tries < rasTries && silent < rasSilent; {
		pid := pids[(tries+silent)%len(pids)]
		if status, err = i.cfg.RAS(ctx, pid); err == nil {
			return status, nil
		}
		err = fmt.Errorf("of process %d: %w", pid, err)
		switch {
		case errors.Is(err, ras.ErrOld) || errors.Is(err, ras.ErrNotRAS) || ctx.Err() != nil:
			return nil, err
		case errors.Is(err, ras.ErrSilent):
			silent++
		default:
			tries++
		}
	}
	return nil, err
}

// ask is Config.RAS for real processes.
func ask(procfs string) func(context.Context, uint32) (*ras.Status, error) {
	return func(ctx context.Context, pid uint32) (*ras.Status, error) {
		at, err := ras.AddressOf(procfs, pid)
		if err != nil {
			return nil, err
		}
		c, err := ras.Dial(ctx, procfs, pid, at)
		if err != nil {
			return nil, err
		}
		return ras.Query(ctx, c)
	}
}

// testify reports the answer of RAS about a verdict.
func (i *instance) testify(w *witness, status *ras.Status) {
	v := &w.verdict
	c := status.Find(v.Communicator.Hash, v.Communicator.Size, w.locals)
	if c == nil {
		i.warn("NCCL's RAS (%s) has no communicator that is certainly %s", oneLine(status.Version), v.Communicator)
		return
	}
	var missing []int
	for _, m := range v.Missing {
		missing = append(missing, m.Rank)
	}
	o := c.Judge(missing)
	if v.Reason == collective.Elsewhere && o.Verdict == "disagrees" {
		o.Verdict = "knows more" // we see some of the ranks
	}
	now := bootTime()
	row := hang(v, now, i.mntns)
	row["event"], row["ras"] = "ras", o.Verdict
	row["text"] = oneLine(fmt.Sprintf("NCCL's RAS %s on communicator %s: %s", o.Verdict, v.Communicator, o.Text))
	if o.Verdict == "disagrees" {
		row["text"] = row["text"].(string) + "; we say: " + oneLine(v.String(now))
	}
	i.reporting.Lock()
	defer i.reporting.Unlock()
	if err := i.out.emitHang(row); err != nil {
		i.warn("emit: %v", err)
	}
}
