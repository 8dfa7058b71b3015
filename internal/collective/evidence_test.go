// SPDX-License-Identifier: Apache-2.0

package collective

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// of4 is rank n of a communicator of four.
func of4(n int, issued, done uint64, at Time, ops ...Operation) Observation {
	return Observation{At: at, Process: Process{ID: uint64(n + 1), PID: uint32(100 + n)}, Communicator: Communicator{Hash: 7, Size: 4}, Rank: n,
		Issued: issued, Done: done, State: Running, Operations: ops}
}

func op(kind Kind, seq uint64, enter Time) Operation {
	o := Operation{Seq: seq, Kind: kind, Count: 8, DType: Float32, Peer: None, Enter: enter, Return: enter + 1}
	if kind.hasRoot() {
		o.Peer = 0
	}
	return o
}

// doneBy and pending are what is known of an operation at a time.
func (o Operation) doneBy(t Time) Operation  { o.DoneBy = t; return o }
func (o Operation) pending(t Time) Operation { o.PendingAt = t; return o }

// judged calls all for each second, and returns the verdicts' texts, with the second of each.
func judged(t *testing.T, seconds int, all func(a *Analyzer, at Time)) (texts []string) {
	t.Helper()
	a, err := New(Config{})
	require.NoError(t, err)
	for s := range Time(seconds) {
		at := (1000 + s) * second
		all(a, at)
		for _, v := range a.Evaluate(at) {
			what := "found"
			switch {
			case v.Cleared != 0:
				what = "cleared"
			case v.Changed:
				what = "changed"
			}
			texts = append(texts, what+" at "+time.Duration(s*second).String()+": "+v.String(at))
		}
	}
	return texts
}

const start = 1000 * second

// TestABroadcastIsDoneWithoutAMissingRank: its root, and the ranks that pass the data on, are done as soon as it is in the
// buffers of the next one. PyTorch broadcasts a module's buffers before each forward pass.
func TestABroadcastIsDoneWithoutAMissingRank(t *testing.T) {
	stopped := func(at Time) Observation {
		o := of4(3, 4, 4, at, op(AllReduce, 4, start-second).doneBy(start-second/2))
		o.State = Stopped
		return o
	}
	for name, c := range map[string]struct {
		waiting string
		all     func(a *Analyzer, at Time)
	}{
		"all others are done, and wait in the next one": {"0-2", func(a *Analyzer, at Time) {
			for n := range 3 {
				observe(t, a, of4(n, 6, 5, at, op(Broadcast, 5, start).doneBy(start+second/1000), op(AllReduce, 6, start+1).pending(at)))
			}
		}},
		"the root alone is done, and computes": {"1, 2", func(a *Analyzer, at Time) {
			observe(t, a, of4(0, 5, 5, at, op(Broadcast, 5, start).doneBy(start+second/1000)))
			for n := 1; n < 3; n++ {
				observe(t, a, of4(n, 5, 4, at, op(Broadcast, 5, start).pending(at)))
			}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, []string{"found at 30s: rank 3 of 4 is stopped, before Broadcast 5 of communicator 0x00000007 (waited 30s by ranks " + c.waiting + "); process 103"},
				judged(t, 100, func(a *Analyzer, at Time) { c.all(a, at); observe(t, a, stopped(at)) }))
		})
	}
}

// TestARankThatIsObservedLateIsNotMissing: what another one has completed shows that it has issued it.
func TestARankThatIsObservedLateIsNotMissing(t *testing.T) {
	for _, kind := range []Kind{AllReduce, AllGather, ReduceScatter, AllToAll, Broadcast} {
		require.Empty(t, judged(t, 50, func(a *Analyzer, at Time) {
			for n := range 3 {
				observe(t, a, of4(n, 6, 5, at, op(kind, 5, start).doneBy(start+second), op(AllReduce, 6, start+2*second).pending(at)))
			}
			observe(t, a, of4(3, 4, 4, start+second/2)) // silent since
		}), kind)
	}
}

// TestASendIsDoneWithoutItsReceive: small ones are buffered.
func TestASendIsDoneWithoutItsReceive(t *testing.T) {
	run := func(waits bool) []string {
		return judged(t, 100, func(a *Analyzer, at Time) {
			from, to := of4(0, 0, 0, at), of4(1, 0, 0, at)
			for seq := uint64(4); seq <= 9; seq++ {
				o := op(Send, seq, start+Time(seq))
				o.Peer = 1
				if o = o.doneBy(o.Enter + 1000); seq == 9 && waits {
					o = o.doneBy(0).pending(at)
				}
				from.Operations = append(from.Operations, o)
			}
			received := op(Recv, 4, start)
			received.Peer = 0
			to.Operations = []Operation{received.doneBy(start + 1)}
			observe(t, a, from, to)
		})
	}
	require.Equal(t, []string{"found at 31s: rank 1 of 4 is missing and runs, before Recv 5 from rank 0 of communicator 0x00000007 (waited 31s by rank 0); process 101"}, run(true))
	require.Empty(t, run(false), "the sender waits for nothing")
}

// TestCapturedCollectivesProveNothing: ranks 0 to 2 capture pieces of a graph, and synchronize before each, as vLLM does. Rank 3
// stops in between.
func TestCapturedCollectivesProveNothing(t *testing.T) {
	run := func(isCaptured bool) []string {
		return judged(t, 60, func(a *Analyzer, at Time) {
			captured := op(AllReduce, 5, start).doneBy(start + second/10)
			captured.Captured = isCaptured
			for n := range 3 {
				observe(t, a, of4(n, 6, 5, at, captured, op(AllReduce, 6, start+second).pending(at)))
			}
			stopped := of4(3, 4, 4, at, op(AllReduce, 4, start-second).doneBy(start-second/2))
			stopped.State = Stopped
			observe(t, a, stopped)
		})
	}
	require.Equal(t, []string{"found at 30s: rank 3 of 4 is stopped, before AllReduce 5 of communicator 0x00000007 (waited 30s by ranks 0-2); process 103"}, run(true))
	require.Empty(t, run(false), "it has issued it, and is observed late")
}

// TestCustomReductionsMatch: their numbers have the address of the communicator in them.
func TestCustomReductionsMatch(t *testing.T) {
	signatures := map[uint64]bool{}
	require.Empty(t, judged(t, 5, func(a *Analyzer, at Time) {
		for n := range 4 {
			o := op(ReduceScatter, 1, start).pending(at)
			if o.Reduction = int32(0x12345 * (n + 1)); n == 3 {
				o.Reduction = -7
			}
			signatures[o.Signature().Number()] = true
			observe(t, a, of4(n, 1, 0, at, o))
		}
	}))
	require.Len(t, signatures, 1)
	o := op(AllReduce, 1, 0)
	o.Reduction = 0x12345
	require.Equal(t, "AllReduce of 8 float32, custom reduction", o.Signature().String())
}

// TestTheFirstToGiveUpIsNotTheCause: all have arrived and waited for ten minutes, until the watchdog of one aborts, or it exits.
func TestTheFirstToGiveUpIsNotTheCause(t *testing.T) {
	for _, how := range []string{"abort", "exit"} {
		run := func(after Time) []string {
			return judged(t, 700, func(a *Analyzer, at Time) {
				for n := range 4 {
					o := of4(n, 5, 4, at, op(AllReduce, 5, start).pending(at))
					if n == 2 && at-start >= after {
						if how == "exit" {
							a.Gone(o.Process, start+after)
							continue
						}
						o.State = Aborted
					}
					observe(t, a, o)
				}
			})
		}
		require.Equal(t, []string{"found at 30s: all ranks of 4 of communicator 0x00000007 are in AllReduce 5 and none has completed it, for 30s: network, GPU, or earlier work in its stream"}, run(600*second))
		soon := run(10 * second)
		require.Len(t, soon, 1)
		require.Contains(t, soon[0], "found at 40s: rank 2 of 4 has ")
	}
}

// TestOtherRanksAtFaultAreReported: two are missing, and one of them comes.
func TestOtherRanksAtFaultAreReported(t *testing.T) {
	texts := judged(t, 100, func(a *Analyzer, at Time) {
		for n := range 4 {
			switch {
			case n < 2:
				observe(t, a, of4(n, 5, 4, at, op(AllReduce, 5, start).pending(at)))
			case n == 2 && at-start > 40*second:
				observe(t, a, of4(n, 5, 4, at, op(AllReduce, 5, start+40*second).pending(at)))
			default:
				observe(t, a, of4(n, 4, 4, at, op(AllReduce, 4, start-second).doneBy(start-second/2)))
			}
		}
	})
	require.Len(t, texts, 2)
	require.Contains(t, texts[0], "found at 30s: ranks 2, 3 of 4 are missing")
	require.Contains(t, texts[1], "changed at 44s: rank 3 of 4 is missing and runs, before AllReduce 5 of communicator 0x00000007 (waited 44s by ranks 0-2)")
}

// TestASilentPeerIsNotBlamed: its node is cut off.
func TestASilentPeerIsNotBlamed(t *testing.T) {
	a, err := New(Config{Silent: 15 * time.Second})
	require.NoError(t, err)
	peers := func(n int, at Time, p Progress) Observation {
		o := of4(n, 0, 0, at)
		o.Peers = []Progress{p}
		return o
	}
	observe(t, a, peers(1, start, Progress{Kind: Recv, Peer: 0, Issued: 90, Done: 90, Enter: start}))
	for s := range Time(120) {
		observe(t, a, peers(0, start+s*second, Progress{Kind: Send, Peer: 1, Issued: 100, Enter: start + 20*second}))
		require.Empty(t, a.Evaluate(start+s*second))
	}
}

// TestRanksThatAreFarAhead: hosts with FSDP issue dozens of collectives before they wait, so no rank's history has the one
// that is missing.
func TestRanksThatAreFarAhead(t *testing.T) {
	a := analyzer(t)
	now := 1000 * second
	ahead := func(n int) Observation {
		o := rank(n, 4711+40, now, now)
		o.Done = 4710
		for i := range o.Operations {
			o.Operations[i].DoneBy = 0
		}
		return o
	}
	observe(t, a, ahead(0), done(rank(1, 4710, now-second, now)), ahead(2))
	events := a.Evaluate(now + 2*second)
	require.Len(t, events, 1)
	require.Equal(t, "rank 1 of 3 is missing and runs, before collective 4711 of communicator 0xabcdef0123 (waited 2.0 s by ranks 0, 2); process 101 python3",
		events[0].String(now+2*second))
}
