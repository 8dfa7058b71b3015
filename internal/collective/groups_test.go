// SPDX-License-Identifier: Apache-2.0

package collective

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// at is an observation of a rank that waits with a stack, innermost first.
func at(o Observation, user string, stack ...string) Observation {
	o.Stack, o.UserLine = stack, user
	return o
}

func TestAVerdictNamesTheRanksThatAreNotWhereMostAre(t *testing.T) {
	a := analyzer(t)
	now := 1000 * second
	const waits = "synchronize (train.py:29)"
	stopped := done(rank(1, 486, now-second, now))
	stopped.State = Stopped
	all := []Observation{
		at(rank(0, 487, now, now), waits, "poll (torch/cuda.py:9)", waits, "main (train.py:60)"),
		at(stopped, "", "load (train.py:41)", "main (train.py:60)"),
		at(rank(2, 487, now, now), waits, "sleep (torch/cuda.py:12)", waits, "main (train.py:60)"),
		at(rank(3, 487, now, now), waits, waits, "main (train.py:60)"),
		at(rank(4, 487, now, now), "evaluate (eval.py:7)", "evaluate (eval.py:7)", "main (train.py:61)"),
		rank(5, 487, now, now), // where it is is not known
	}
	for n := range all {
		all[n].Communicator.Size = len(all)
	}
	observe(t, a, all...)
	events := a.Evaluate(now + 2*second)
	require.Len(t, events, 1)
	v := events[0]
	require.Equal(t, []StackGroup{
		{Place: "synchronize (train.py:29), in poll (torch/cuda.py:9)", Ranks: []int{0, 2, 3}, Count: 3},
		{Place: "load (train.py:41)", Ranks: []int{1}, Count: 1},
		{Place: "evaluate (eval.py:7)", Ranks: []int{4}, Count: 1},
	}, v.Groups)
	require.Contains(t, v.String(now+2*second), "at load (train.py:41), process 101 python3; "+
		"3 ranks are at synchronize (train.py:29), in poll (torch/cuda.py:9), but rank 4 at evaluate (eval.py:7)")

	_, _, ok := Odd(v.Groups[1:])
	require.False(t, ok, "no group has the majority")
}

func TestAVerdictWithoutOddRanksDoesNotSpeakOfThem(t *testing.T) {
	a := analyzer(t)
	now := 1000 * second
	missing := done(rank(1, 486, now-second, now))
	observe(t, a, at(rank(0, 487, now, now), "", "b", "a"), at(missing, "", "c", "a"), at(rank(2, 487, now, now), "", "b", "a"))
	events := a.Evaluate(now + 2*second)
	require.Len(t, events, 1)
	require.Len(t, events[0].Groups, 2)
	require.NotContains(t, events[0].String(now+2*second), "ranks are at")
}

// TestACallThatDidNotReturn: it is a word of its own, whether the others have issued more or
// have arrived there, too.
func TestACallThatDidNotReturn(t *testing.T) {
	now := 1000 * second
	inside := func(o Observation) Observation {
		last := &o.Operations[len(o.Operations)-1]
		last.Return, last.PendingAt = 0, 0
		return o
	}
	for name, c := range map[string]struct {
		rank1 Observation
		want  string
	}{
		"all have arrived": {inside(rank(1, 487, now, now)),
			"rank 1 of 3 has entered AllReduce 487 of communicator 0xabcdef0123 and did not return from it (waited 2.0 s by ranks 0, 2); process 101 python3"},
		"others went on": {inside(rank(1, 486, now-second, now)),
			"rank 1 of 3 has entered AllReduce 486 of communicator 0xabcdef0123 and did not return from it (waited 2.0 s by ranks 0, 2); process 101 python3"},
	} {
		a := analyzer(t)
		observe(t, a, rank(0, 487, now, now), c.rank1, rank(2, 487, now, now))
		events := a.Evaluate(now + 2*second)
		require.Len(t, events, 1, name)
		require.Equal(t, Inside, events[0].Reason, name)
		require.Equal(t, c.want, events[0].String(now+2*second), name)
		require.Empty(t, a.Evaluate(now+3*second), "said once")

		observe(t, a, done(rank(0, 488, now+4*second, now+5*second)), done(rank(1, 488, now+4*second, now+5*second)), done(rank(2, 488, now+4*second, now+5*second)))
		events = a.Evaluate(now + 5*second)
		require.Len(t, events, 1, name)
		require.NotZero(t, events[0].Cleared, name)
	}
	a := analyzer(t)
	observe(t, a, inside(rank(0, 487, now, now)), inside(rank(1, 487, now, now)), inside(rank(2, 487, now, now)))
	events := a.Evaluate(now + 2*second)
	require.Len(t, events, 1)
	require.Equal(t, Inside, events[0].Reason)
	require.Contains(t, events[0].String(now+2*second), "all 3 ranks of communicator 0xabcdef0123 have entered AllReduce 487 and none has returned from it, for 2.0 s")
}
