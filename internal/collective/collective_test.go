// SPDX-License-Identifier: Apache-2.0

package collective

import (
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const second = Time(time.Second)

var world = Communicator{Hash: 0xabcdef0123, Size: 3}

// rank returns an observation of a rank that has issued an AllReduce each second, the
// last one at lastEnter, and waits for it.
func rank(n int, issued uint64, lastEnter, at Time) Observation {
	o := Observation{At: at, Process: Process{ID: uint64(n + 1), PID: uint32(100 + n), Comm: "python3"}, Communicator: world,
		Rank: n, Issued: issued, State: Running}
	for i := range min(issued, 4) {
		seq := issued - min(issued, 4) + 1 + i
		op := Operation{Seq: seq, Kind: AllReduce, Count: 64, DType: Float32, Peer: None, Enter: lastEnter - Time(issued-seq)*second}
		op.Return = op.Enter + 1
		if seq < issued {
			op.DoneBy = op.Enter + second/2
			o.Done, o.DoneAt = seq, op.DoneBy
		} else {
			op.PendingAt = at
		}
		o.Operations = append(o.Operations, op)
	}
	return o
}

func observe(t *testing.T, a *Analyzer, all ...Observation) {
	t.Helper()
	for _, o := range all {
		require.NoError(t, a.Observe(o))
	}
}

func analyzer(t *testing.T) *Analyzer {
	t.Helper()
	a, err := New(Config{Hang: time.Second})
	require.NoError(t, err)
	return a
}

// done is the rank's observation with its newest operation complete.
func done(o Observation) Observation {
	last := &o.Operations[len(o.Operations)-1]
	last.DoneBy, last.PendingAt = last.Enter+second/2, 0
	o.Done, o.DoneAt = last.Seq, last.DoneBy
	return o
}

// TestStoppedRankIsNamedAndClears is the story of a tired person, in one line each.
func TestStoppedRankIsNamedAndClears(t *testing.T) {
	a := analyzer(t)
	now := 1000 * second
	stopped := done(rank(1, 486, now-second, now))
	stopped.State, stopped.Stack = Stopped, []string{"train.py:41 step", "train.py:60 main"}
	observe(t, a, rank(0, 487, now, now), stopped, rank(2, 487, now+second/10, now+second/10))
	require.Empty(t, a.Evaluate(now+second/2))

	at := now + 11*second/10
	events := a.Evaluate(at)
	require.Len(t, events, 1)
	require.Equal(t, Dead, events[0].Reason)
	require.Equal(t, "rank 1 of 3 is stopped, before AllReduce 487 of communicator 0xabcdef0123 (waited 1.1 s by ranks 0, 2); at train.py:41 step, process 101 python3",
		events[0].String(at))
	require.Empty(t, a.Evaluate(at+second), "said once")
	require.Len(t, a.Verdicts(), 1)

	// It arrives 5 s after the others, which is observed only later.
	observe(t, a, done(rank(1, 487, now+5*second, now+6*second)))
	events = a.Evaluate(now + 7*second)
	require.Len(t, events, 1)
	require.Equal(t, 5*time.Second, events[0].Waited(0))
	require.Equal(t, "rank 1 of 3 is stopped, before AllReduce 487 of communicator 0xabcdef0123 (was waited for 5.0 s); at train.py:41 step, process 101 python3",
		events[0].String(now))
	require.Empty(t, a.Verdicts())
}

// TestEndedRankIsNamedWhereAllAreIn: it issued the operation, and then it died.
func TestEndedRankIsNamedWhereAllAreIn(t *testing.T) {
	a := analyzer(t)
	now := 1000 * second
	observe(t, a, rank(0, 9, now, now), rank(1, 9, now, now), rank(2, 9, now, now))
	a.Gone(Process{ID: 2}, now+second/10)
	events := a.Evaluate(now + 2*second)
	require.Len(t, events, 1)
	require.Equal(t, Dead, events[0].Reason)
	require.Equal(t, []int{0, 2}, events[0].Waiting)
	require.Contains(t, events[0].String(now+2*second), "rank 1 of 3 has exited, before AllReduce 9 of")
}

// TestAnEndingJobIsNotAHang: all ranks leave, at different times.
func TestAnEndingJobIsNotAHang(t *testing.T) {
	a := analyzer(t)
	now := 1000 * second
	observe(t, a, done(rank(0, 9, now, now)), done(rank(1, 9, now, now)), done(rank(2, 9, now, now)))
	for n := range 3 {
		a.Gone(Process{ID: uint64(n + 1)}, now+Time(n)*second)
		require.Empty(t, a.Evaluate(now+Time(n)*second))
	}
	for i := range 10 {
		require.Empty(t, a.Evaluate(now+Time(i+3)*second))
	}
	require.Equal(t, 3, a.ranks, "the ranks of another node may wait for them")
	require.Empty(t, a.Evaluate(now+keepEnded+3*second))
	require.Zero(t, a.ranks, "and is forgotten")
	require.Empty(t, a.members)
}

// TestAnOperationWithoutAWaitIsNotAHang: no thread waits for it, so its state is unknown.
func TestAnOperationWithoutAWaitIsNotAHang(t *testing.T) {
	a := analyzer(t)
	now := 1000 * second
	for n := range 3 {
		o := rank(n, 9, now, now)
		o.Operations[3].PendingAt = 0
		observe(t, a, o)
	}
	require.Empty(t, a.Evaluate(now+30*second))
}

// TestRanksOfOtherNodesAreNotBlamed: on one node of several, it is only known that its
// own ranks have arrived.
func TestRanksOfOtherNodesAreNotBlamed(t *testing.T) {
	a := analyzer(t)
	now := 1000 * second
	observe(t, a, rank(0, 9, now, now+2*second), rank(1, 9, now, now+2*second))
	events := a.Evaluate(now + 3*second)
	require.Len(t, events, 1)
	require.Equal(t, "all ranks on this node are in AllReduce 9 of communicator 0xabcdef0123, for 3.0 s; rank 2 of it is on another node", events[0].String(now+3*second))
}

// TestMismatchShowsBothCalls, without waiting for the threshold.
func TestMismatchShowsBothCalls(t *testing.T) {
	a := analyzer(t)
	now := 1000 * second
	other := rank(1, 9, now, now)
	other.Operations[3].Count = 65
	observe(t, a, rank(0, 9, now, now), other, rank(2, 9, now, now))
	events := a.Evaluate(now + second/10)
	require.Len(t, events, 1)
	require.Equal(t, "ranks issue different operations as AllReduce 9 of communicator 0xabcdef0123: rank 0 AllReduce of 64 float32, sum; rank 1 AllReduce of 65 float32, sum",
		events[0].String(now))
}

// TestSendWithoutReceive names both ends and the numbers of their calls.
func TestSendWithoutReceive(t *testing.T) {
	a := analyzer(t)
	now := 1000 * second
	from, to := rank(0, 0, now, now), rank(1, 0, now, now)
	from.Operations = []Operation{{Seq: 5, Kind: Send, Count: 8, Peer: 1, Enter: now, PendingAt: now}}
	to.Operations = []Operation{{Seq: 4, Kind: Recv, Count: 8, Peer: 0, Enter: now - second, DoneBy: now - second/2}}
	to.State = Sleeping
	observe(t, a, from, to)
	events := a.Evaluate(now + 2*second)
	require.Len(t, events, 1)
	require.Equal(t, Unmatched, events[0].Reason)
	require.Equal(t, "rank 1 of 3 is missing and sleeps, before Recv 5 from rank 0 of communicator 0xabcdef0123 (waited 2.0 s by rank 0); process 101 python3",
		events[0].String(now+2*second))
}

// TestAWaitBeginsWithItsFirstRank: ranks wait for the same cause since different times.
func TestAWaitBeginsWithItsFirstRank(t *testing.T) {
	a := analyzer(t)
	now := 1000 * second
	from, stopped, to := rank(0, 0, now, now), rank(1, 0, now, now), rank(2, 0, now, now)
	from.Operations = []Operation{{Seq: 5, Kind: Send, Count: 8, Peer: 1, Enter: now, PendingAt: now}}
	stopped.Operations = []Operation{{Seq: 4, Kind: Recv, Count: 8, Peer: 0, Enter: now - 3*second, DoneBy: now - 2*second}}
	stopped.State = Stopped
	to.Operations = []Operation{{Seq: 5, Kind: Recv, Count: 8, Peer: 1, Enter: now - second/2, PendingAt: now}}
	observe(t, a, from, stopped, to)
	require.Empty(t, a.Evaluate(now+second*4/10), "0.9 s")
	events := a.Evaluate(now + second*6/10)
	require.Len(t, events, 1)
	require.Equal(t, []int{0, 2}, events[0].Waiting)
	require.Equal(t, 1100*time.Millisecond, events[0].Waited(now+second*6/10), "more than the threshold")

	stopped.Operations = append(stopped.Operations, Operation{Seq: 5, Kind: Recv, Count: 8, Peer: 0, Enter: now + second, DoneBy: now + second})
	stopped.At, stopped.State = now+2*second, Running
	from.Operations[0].DoneBy, from.Operations[0].PendingAt, from.At = now+second, 0, now+2*second
	to.Operations[0].DoneBy, to.Operations[0].PendingAt, to.At = now+second, 0, now+2*second
	observe(t, a, from, stopped, to)
	events = a.Evaluate(now + 2*second)
	require.Len(t, events, 1)
	require.Equal(t, now+second, events[0].Cleared)
	require.Equal(t, 1500*time.Millisecond, events[0].Waited(0))
}

// TestOldCommunicatorsAreJudgedByWaits: numbers of ranks begin anywhere.
func TestOldCommunicatorsAreJudgedByWaits(t *testing.T) {
	a := analyzer(t)
	now := 1000 * second
	late := func(o Observation) Observation {
		o.Late = true
		return o
	}
	stopped := late(done(rank(1, 77, now-second, now)))
	stopped.State = Stopped
	observe(t, a, late(rank(0, 12, now, now+2*second)), stopped, late(rank(2, 500, now, now+2*second)))
	events := a.Evaluate(now + 2*second)
	require.Len(t, events, 1)
	require.Equal(t, Dead, events[0].Reason)
	require.Equal(t, 1, events[0].Missing[0].Rank)
	require.Contains(t, events[0].String(now+2*second), "older than this run")
	comes := late(done(rank(1, 78, now+4*second, now+5*second)))
	comes.Operations = append(slices.Clone(stopped.Operations[1:]), comes.Operations[3])
	observe(t, a, late(done(rank(0, 12, now, now+5*second))), comes, late(done(rank(2, 500, now, now+5*second))))
	events = a.Evaluate(now + 6*second)
	require.Len(t, events, 1)
	require.Equal(t, 4*time.Second, events[0].Waited(0))
}

// TestARevivedProcessIsNotBlamedAgain: it is seen to run before it is seen to call.
func TestARevivedProcessIsNotBlamedAgain(t *testing.T) {
	a := analyzer(t)
	now := 1000 * second
	culprit := done(rank(1, 8, now-second, now))
	culprit.State = Stopped
	observe(t, a, rank(0, 9, now, now), culprit, rank(2, 9, now, now))
	require.Len(t, a.Evaluate(now+2*second), 1)
	culprit.State, culprit.At = Running, now+3*second
	observe(t, a, culprit)
	require.Empty(t, a.Evaluate(now+3*second))
	require.Empty(t, a.Evaluate(now+5*second))
	events := a.Evaluate(now + 7*second)
	require.Len(t, events, 1, "but it still does not come")
	require.True(t, events[0].Changed)
	require.Equal(t, Missing, events[0].Reason)
}

// TestHostileObservations: a process can claim anything about itself.
func TestHostileObservations(t *testing.T) {
	a, err := New(Config{MaxRanks: 2})
	require.NoError(t, err)
	for _, o := range []Observation{
		{Rank: -1}, {Rank: 3, Communicator: world}, {Rank: 1 << 40}, {Done: 2, Issued: 1}, {Issued: ^uint64(0)},
		{Communicator: Communicator{Size: 1 << 30}},
	} {
		require.ErrorIs(t, a.Observe(o), ErrImplausible)
	}
	o := rank(0, maxIssued, 5, 6)
	for i := range 10000 {
		o.Peers = append(o.Peers, Progress{Kind: Send, Peer: i, Issued: 1 << 60})
	}
	observe(t, a, o, rank(1, 1, 5, 6))
	require.ErrorIs(t, a.Observe(rank(2, 1, 5, 6)), ErrFull)
	a.Evaluate(100 * second)
	require.LessOrEqual(t, len(a.comms[world.Hash].members[0].peers), maxPeers)
}

// TestATenantLeavesRanksToOthers: one that makes communicators all the time.
func TestATenantLeavesRanksToOthers(t *testing.T) {
	a, err := New(Config{MaxRanks: 100})
	require.NoError(t, err)
	fill := func(tenant string, from uint64) (n int) {
		for hash := from; ; hash++ {
			o := rank(0, 1, 5, 6)
			o.Tenant, o.Communicator.Hash, o.Process.ID = tenant, hash, hash
			if a.Observe(o) != nil {
				return n
			}
			n++
		}
	}
	require.Equal(t, 75, fill("hostile", 1))
	require.Equal(t, 25, fill("honest", 1000))
	require.Zero(t, fill("third", 2000))
	for hash := uint64(1); hash <= 75; hash++ {
		a.Gone(Process{ID: hash}, 7*second)
	}
	a.Evaluate(10000 * second)
	require.Zero(t, a.ranks)
	require.Empty(t, a.of)
	require.Equal(t, 75, fill("third", 3000))
}

// TestARestartedJobIsNew: the same communicator's rank in another process.
func TestARestartedJobIsNew(t *testing.T) {
	a := analyzer(t)
	now := 1000 * second
	observe(t, a, rank(0, 9, now, now), done(rank(1, 8, now-second, now)))
	o := rank(1, 9, now, now+second)
	o.Process.ID = 77
	observe(t, a, o)
	require.Equal(t, 2, a.ranks)
	a.Gone(Process{ID: 2}, now+2*second) // of the one before
	require.Zero(t, a.comms[world.Hash].members[1].ended)
}

func TestSignatureNumberIsExactInAFloat(t *testing.T) {
	op := Operation{Kind: AllReduce, Count: 1 << 40, DType: Bfloat16, Peer: None}
	n := op.Signature().Number()
	require.Equal(t, n, uint64(float64(n)))
	op.Count++
	require.NotEqual(t, n, op.Signature().Number())
	send, recv := Operation{Kind: Send, Count: 3, Peer: 1}, Operation{Kind: Recv, Count: 3, Peer: 0}
	require.Equal(t, send.Signature(), recv.Signature())
}

// BenchmarkEvaluate is a node of eight processes with 1,250 communicators each.
func BenchmarkEvaluate(b *testing.B) {
	a, err := New(Config{})
	require.NoError(b, err)
	now := 1000 * second
	for c := range 1250 {
		for n := range 8 {
			o := rank(n, 100, now, now)
			o.Communicator = Communicator{Hash: uint64(c + 1), Size: 8}
			for milestone := uint64(1); milestone <= o.Issued/Milestone; milestone++ {
				o.Digests.Set(milestone, milestone<<32)
			}
			require.NoError(b, a.Observe(o))
		}
	}
	b.ResetTimer()
	for range b.N {
		a.Evaluate(now + second)
	}
}

// TestACallIsNotAWaitForOlderOperations: no thread waits for the operations that these ranks
// issue every 20 s, and one rank is observed inside its newest call, which has just begun.
func TestACallIsNotAWaitForOlderOperations(t *testing.T) {
	for _, late := range []bool{false, true} {
		a := analyzer(t)
		now := 1000 * second
		for n := range 3 {
			o := Observation{At: now, Process: Process{ID: uint64(n + 1)}, Communicator: world, Rank: n, Issued: 3, State: Running, Late: late}
			for i := range Time(3) {
				enter := now - (2-i)*20*second
				o.Operations = append(o.Operations, Operation{Seq: uint64(i + 1), Kind: AllReduce, Peer: None, Enter: enter, Return: enter + 1})
			}
			if n < 2 {
				o.Operations[2].Return = 0
			}
			if late && n == 2 {
				o.Operations[2].Return = 0
			}
			observe(t, a, o)
		}
		require.Empty(t, a.Suspects(now), "late: %t", late)
		require.Empty(t, a.Evaluate(now), "late: %t", late)
		// If the call does not return, it is a hang.
		require.Len(t, a.Evaluate(now+2*second), 1, "late: %t", late)
	}
}

// TestQuietRanksMayBlockRanksElsewhere, but not ranks that wait themselves, or with all
// ranks of their communicator here.
func TestQuietRanksMayBlockRanksElsewhere(t *testing.T) {
	a := analyzer(t)
	now := 1000 * second
	idle, waiting, busy := done(rank(0, 487, now, now)), rank(1, 487, now, now), done(rank(2, 487, now, now))
	observe(t, a, idle, waiting)
	require.Empty(t, a.Quiet(now+second/4), "it has only just issued something")
	quiet := a.Quiet(now + second)
	require.Len(t, quiet, 1)
	require.Equal(t, idle.Process, quiet[0])
	observe(t, a, busy)
	require.Empty(t, a.Quiet(now+second), "all of the communicator are here")
}

// BenchmarkObserve is the cost of one rank's observation in a communicator of many: it must not
// grow with their number.
func BenchmarkObserve(b *testing.B) {
	for _, size := range []int{64, 4096} {
		b.Run(strconv.Itoa(size), func(b *testing.B) {
			a, err := New(Config{})
			if err != nil {
				b.Fatal(err)
			}
			n := 0
			for b.Loop() {
				round, rank := n/size, n%size
				at := Time(round+1) * 1e9
				if err := a.Observe(Observation{At: at, Process: Process{Node: "a", ID: uint64(rank + 1)}, Communicator: Communicator{Hash: 1, Size: size}, Rank: rank,
					Issued: uint64(round + 1), Done: uint64(round), Operations: []Operation{{Seq: uint64(round + 1), Kind: AllReduce, Peer: None, Enter: at}}}); err != nil {
					b.Fatal(err)
				}
				n++
			}
		})
	}
}
