// SPDX-License-Identifier: Apache-2.0

package collective

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// ahead returns an observation of a rank that has issued so many, of which those from the 21st on are not done; it waits for
// them or not.
func ahead(n int, issued uint64, at Time, waits bool) Observation {
	o := rank(n, 20, start, at)
	for i := range o.Operations {
		o.Operations[i].DoneBy, o.Operations[i].PendingAt = o.Operations[i].Enter+second/2, 0
	}
	o.Issued, o.Done, o.DoneAt = issued, 20, start+second/2
	for seq := uint64(21); seq <= issued; seq++ {
		op := Operation{Seq: seq, Kind: AllReduce, Count: 64, DType: Float32, Peer: None, Enter: start + Time(seq)*1000, Return: start + Time(seq)*1000 + 1}
		if waits {
			op.PendingAt = at
		}
		o.Operations = append(o.Operations, op)
	}
	o.Operations = o.Operations[max(0, len(o.Operations)-History):]
	return o
}

// TestARankThatReadsTheLossIsNotMissing: it waits for what all have issued, and the others have run ahead of it.
func TestARankThatReadsTheLossIsNotMissing(t *testing.T) {
	for _, c := range []struct {
		name  string
		size  int
		waits bool
		want  Reason
	}{
		{"all are here", 3, true, Slow}, {"one is elsewhere", 4, true, Elsewhere}, {"it does something else", 3, false, Missing},
		{"it does something else, and one is elsewhere", 4, false, Missing},
	} {
		t.Run(c.name, func(t *testing.T) {
			a := analyzer(t)
			at := start + 5*second
			for n, issued := range []uint64{21, 60, 60} {
				o := ahead(n, issued, at, n > 0 || c.waits)
				o.Communicator.Size = c.size
				observe(t, a, o)
			}
			events := a.Evaluate(at)
			require.Len(t, events, 1)
			require.Equal(t, c.want, events[0].Reason, events[0].String(at))
			if c.want != Missing {
				require.EqualValues(t, 21, events[0].Seq)
			} else {
				require.Equal(t, 0, events[0].Missing[0].Rank)
			}
		})
	}
}

// TestAMismatchIsFoundHoweverFarRanksRunAhead, if it was among the newest operations once.
func TestAMismatchIsFoundHoweverFarRanksRunAhead(t *testing.T) {
	a := analyzer(t)
	for s := range Time(10) {
		at := start + (1+s)*second
		for n := range 3 {
			o := ahead(n, 22+20*uint64(s), at, true)
			for i := range o.Operations {
				if n == 1 && o.Operations[i].Seq == 21 {
					o.Operations[i].Count = 65
				}
			}
			observe(t, a, o)
		}
		a.Evaluate(at)
	}
	verdicts := a.Verdicts()
	require.Len(t, verdicts, 1)
	require.Equal(t, Mismatch, verdicts[0].Reason, verdicts[0].String(start))
	require.EqualValues(t, 21, verdicts[0].Seq)
	for _, c := range a.comms {
		for _, m := range c.members {
			require.LessOrEqual(t, len(m.Operations), 2*History)
		}
	}
}

// TestHowMuchRanksAreBlocked: one that is done waits for nothing.
func TestHowMuchRanksAreBlocked(t *testing.T) {
	a := analyzer(t)
	for s := range Time(300) {
		at := start + s*second
		observe(t, a, done(rank(0, 20, start, at)), rank(1, 20, start, at))
	}
	ranks := a.Ranks(start + 300*second)
	require.InDelta(t, 0, ranks[0].Blocked, 0.01)
	require.InDelta(t, 1, ranks[1].Blocked, 0.02)
}

// TestAMismatchIsReportedOnce, if ranks that made the same calls are observed later.
func TestAMismatchIsReportedOnce(t *testing.T) {
	a := analyzer(t)
	found := 0
	for s := range Time(10) {
		at := start + (1+s)*second
		for n := range 3 {
			o := ahead(n, 22, at, true)
			if n == 2 {
				o.Operations[len(o.Operations)-1].Count = 65
			}
			if n > 0 || s > 1 {
				observe(t, a, o)
			}
		}
		found += len(a.Evaluate(at))
	}
	require.Equal(t, 1, found)
	require.Equal(t, 0, a.Verdicts()[0].Missing[0].Rank)
}
