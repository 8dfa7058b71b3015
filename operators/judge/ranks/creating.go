// SPDX-License-Identifier: Apache-2.0

package ranks

import (
	"github.com/gpu-gadgets/gpu-gadgets/internal/collective"
)

// creating is the state of a row that stands for a call that makes a communicator and has not returned.
const creating = "creating"

func (r *row) isCreating() bool { return r.inactive == creating }

// kept is for how long a row is kept that is not read again. The gadget deletes the row of a call at its return.
func (r *row) kept() collective.Time {
	if r.isCreating() {
		return 5 * collective.Time(period)
	}
	return forgotten
}

// thread is one that calls NCCL.
type thread struct {
	process uint64
	tid     uint32
}

// creations calls fn with the rows of calls that make a communicator. One whose return was not seen, as its thread has
// called something since, is none.
func creations(rows map[rankKey]*rank, fn func(*rank)) {
	var newest map[thread]collective.Time
	for _, r := range rows {
		if !r.isCreating() || r.exited != 0 || r.Rank < 0 || r.split.created == 0 {
			continue
		}
		if newest == nil {
			newest = newestCalls(rows)
		}
		if newest[thread{r.Process.ID, r.tid}] <= r.split.created {
			fn(r)
		}
	}
}

// newestCalls is when each thread has called last.
func newestCalls(rows map[rankKey]*rank) map[thread]collective.Time {
	newest := map[thread]collective.Time{}
	for _, r := range rows {
		if n := len(r.Operations); n > 0 {
			of := thread{r.Process.ID, r.tid}
			newest[of] = max(newest[of], r.Operations[n-1].Enter)
		}
	}
	return newest
}

// creation is the row for the analyzer, on a node, whose clock is so far behind.
func (r *rank) creation(node string, by collective.Time) collective.Creation {
	return collective.Creation{At: shift(r.At, by), Process: r.process(node), Tenant: r.tenant(node), Communicator: r.Communicator, Rank: r.Rank,
		Parent: r.split.parent, Since: shift(r.split.created, by)}
}
