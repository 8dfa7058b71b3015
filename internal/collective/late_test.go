// SPDX-License-Identifier: Apache-2.0

package collective

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func standing(rank int, state State, stack ...string) Standing {
	s := Standing{Process: Process{PID: uint32(100 + rank), Comm: "python3"}, Rank: rank, State: state, Stack: stack}
	if len(stack) > 0 {
		s.Line = stack[len(stack)-1] // the stacks below have one line of the program
	}
	return s
}

// TestARankWhoseWaitIsUnknownIsUndecided: of an old communicator, of which a collective was seen, and no wait for it.
func TestARankWhoseWaitIsUnknownIsUndecided(t *testing.T) {
	a := analyzer(t)
	now := 1000 * second
	late := func(o Observation) Observation {
		o.Late = true
		o.At = now + 5*second
		return o
	}
	unseen := func(o Observation) Observation {
		o.Operations[len(o.Operations)-1].PendingAt = 0
		return o
	}
	undecided := func(at Time, all ...Observation) (pids []uint32) {
		observe(t, a, all...)
		require.Empty(t, a.Evaluate(at))
		for _, p := range a.Undecided(at) {
			pids = append(pids, p.PID)
		}
		return pids
	}
	stopped := late(done(rank(1, 1, now, now)))
	stopped.State = Stopped
	require.Empty(t, undecided(now+second/2, late(unseen(rank(0, 2, now, now))), stopped), "a moment ago")
	require.Equal(t, []uint32{100, 101}, undecided(now+2*second))
	peer := Communicator{Hash: 5, Size: 2}
	working := rank(0, 8, now+2*second, now+5*second)
	working.Communicator = peer
	require.Empty(t, undecided(now+2*second+second/2, late(done(working))), "it calls elsewhere")
	require.Len(t, undecided(now+4*second), 2)
	require.Empty(t, undecided(now+4*second, late(done(rank(0, 2, now, now)))), "it is done")

	receives := late(done(rank(0, 2, now, now)))
	receives.Peers = []Progress{{Kind: Recv, Peer: 1, Issued: 3, Done: 2, Enter: now}}
	require.Len(t, undecided(now+4*second, receives), 2)
	require.Len(t, a.comms, 2)
}

// TestAJobThatAlreadyHangsIsJudgedByItsStacks: calls before the attach are unknown.
func TestAJobThatAlreadyHangsIsJudgedByItsStacks(t *testing.T) {
	waiting := []string{"ProcessGroup.wait (distributed_c10d.py:90)", "train (train.py:29)"}
	for name, c := range map[string]struct {
		all      []Standing
		suspects []int
		text     string
	}{
		"one is elsewhere": {
			[]Standing{standing(0, Sleeping, waiting...), standing(2, Running, waiting...), standing(1, Sleeping, "Rank.load (train.py:41)")}, []int{1},
			"attached to 3 ranks 3s ago, and none has called NCCL since. Probably missing: rank 1 (process 101 python3) at Rank.load (train.py:41). " +
				"2 are inside a wait: ranks 0, 2 at train (train.py:29). " + uncertain,
		},
		"one is stopped in the same wait": {
			[]Standing{standing(0, Sleeping, waiting...), standing(1, Stopped, waiting...)}, []int{1},
			"attached to 2 ranks 3s ago, and none has called NCCL since. Probably missing: rank 1 (process 101 python3), stopped, at train (train.py:29). " +
				"1 is inside a wait: rank 0 (process 100 python3) at train (train.py:29). " + uncertain,
		},
		"one waits for its data": {
			[]Standing{standing(0, Sleeping, "synchronize (torch/cuda/streams.py:105)", "train (train.py:29)"),
				standing(1, Sleeping, "Work.wait (torch/distributed/c10d.py:7)", "train (train.py:29)"),
				standing(2, Sleeping, "Condition.wait (threading.py:327)", "Queue.get (queue.py:171)", "load (train.py:18)"),
				standing(3, Sleeping, "Connection.recv (multiprocessing/connection.py:250)", "load (train.py:19)"),
				standing(4, Sleeping, "init_process_group (torch/distributed/distributed_c10d.py:1710)", "main (train.py:3)")}, []int{2, 3},
			"attached to 5 ranks 3s ago, and none has called NCCL since. Probably missing: rank 2 (process 102 python3) at load (train.py:18); rank 3 (process 103 python3) at load (train.py:19). " +
				"3 are inside a wait: ranks 0, 1 at train (train.py:29); rank 4 (process 104 python3) at main (train.py:3). " + uncertain,
		},
		"all wait": {
			[]Standing{standing(0, Sleeping, waiting...), standing(1, Sleeping, "synchronize (streams.py:9)", "step (b.py:3)")}, nil,
			"attached to 2 ranks 3s ago, and none has called NCCL since. All wait: rank 0 (process 100 python3) at train (train.py:29); rank 1 (process 101 python3) at step (b.py:3). " +
				"The rank at fault may be on another machine; or the network or a GPU is slow. " + uncertain,
		},
		"idle": {
			[]Standing{standing(-1, Sleeping, "Queue.get (queue.py:1)"), standing(-1, Sleeping)}, nil,
			"attached to 2 ranks 3s ago, and none has called NCCL since. None is inside a wait: the job may be idle, or compute. " +
				"process 99 python3 at Queue.get (queue.py:1); process 99 python3 at a line that could not be read. " + uncertain,
		},
		"its calls were seen": {
			[]Standing{standing(0, Sleeping, waiting...), standing(1, Stopped, "f (a.py:1)")}, []int{1},
			"2 ranks last called NCCL 3s ago, and no wait for that was seen. Probably missing: rank 1 (process 101 python3), stopped, at f (a.py:1). " +
				"1 is inside a wait: rank 0 (process 100 python3) at train (train.py:29). " + uncertain,
		},
		"most are elsewhere": {
			[]Standing{standing(0, Sleeping, waiting...), standing(1, Running, "f (a.py:1)"), standing(2, Running, "f (a.py:1)")}, []int{1, 2},
			"attached to 3 ranks 3s ago, and none has called NCCL since. 1 is inside a wait: rank 0 (process 100 python3) at train (train.py:29). " +
				"The others are not: ranks 1, 2 at f (a.py:1). " + uncertain,
		},
	} {
		t.Run(name, func(t *testing.T) {
			l := JudgeLate(c.all, 3*time.Second, name == "its calls were seen")
			require.Equal(t, c.text, l.Text)
			var suspects []int
			for _, s := range l.Suspects {
				suspects = append(suspects, s.Rank)
			}
			require.Equal(t, c.suspects, suspects)
		})
	}
}
