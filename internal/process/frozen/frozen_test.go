// SPDX-License-Identifier: Apache-2.0

package frozen

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestMotions(t *testing.T) {
	const main = "<module> (serve.py:90); serve (serve.py:40); "
	for name, c := range map[string]struct {
		dumps []string // of one thread
		want  Place
	}{
		"waits": {
			[]string{main + "read (queue.py:7)", main + "read (queue.py:7)"},
			Place{Motion: Frozen, Depth: 3},
		},
		"polls, and calls": {
			[]string{main + "read (queue.py:7)", main + "read (queue.py:9); sleep (clock.py:3)", main + "read (queue.py:8)"},
			Place{Motion: Loops, Depth: 3, First: 7, Last: 9},
		},
		"polls on one line": {
			[]string{main + "read (queue.py:7)", main + "read (queue.py:7); sleep (clock.py:3)"},
			Place{Motion: Loops, Depth: 3, First: 7, Last: 7},
		},
		"calls deep": {
			[]string{main + "step (serve.py:7); a (m.py:1); b (m.py:2); c (m.py:3)", main + "step (serve.py:8)"},
			Place{Motion: Moves, Depth: 2},
		},
		"other functions": {
			[]string{main + "read (queue.py:7)", main + "write (queue.py:8)"},
			Place{Motion: Moves, Depth: 2},
		},
		"nothing in common": {
			[]string{"a (m.py:1)", "b (m.py:1)"},
			Place{Motion: Moves},
		},
		"frames without lines": {
			[]string{main + "[truncated]", main + "<native>"},
			Place{Motion: Moves, Depth: 2},
		},
	} {
		t.Run(name, func(t *testing.T) {
			var j Judge
			for _, stack := range c.dumps {
				j.Add(time.Time{}, []Thread{{PID: 1, TID: 1, Stack: strings.Split(stack, "; ")}})
			}
			c.want.TID = 1
			require.Equal(t, []Process{{PID: 1, Motion: c.want.Motion, Threads: []Place{c.want}}}, j.Processes())
		})
	}
}

func TestOneDumpIsNoVerdict(t *testing.T) {
	var j Judge
	j.Add(time.Time{}, []Thread{{PID: 1, TID: 1, Stack: []string{"train (train.py:7)"}}})
	require.Empty(t, j.Processes())
	require.Equal(t, 1, j.Dumps())
}

// A process moves as much as the thread that moves most, and one that starts or ends threads moves.
func TestProcessMovesAsItsThreads(t *testing.T) {
	at := func(pid, tid uint32, stack ...string) Thread { return Thread{PID: pid, TID: tid, Stack: stack} }
	var j Judge
	j.Add(time.Time{}, []Thread{at(1, 1, "a (m.py:1)"), at(1, 2, "b (m.py:1)"), at(3, 3, "a (m.py:1)"), at(4, 4)})
	j.Add(time.Time{}, []Thread{at(1, 1, "a (m.py:1)"), at(1, 2, "b (m.py:2)"), at(3, 3, "a (m.py:1)"), at(3, 5, "a (m.py:1)"), at(4, 4)})
	all := j.Processes()
	require.Len(t, all, 2, "process 4 has no frames")
	require.Equal(t, Loops, all[0].Motion)
	require.Equal(t, []Place{{TID: 1, Motion: Frozen, Depth: 1}, {TID: 2, Motion: Loops, Depth: 1, First: 1, Last: 2}}, all[0].Threads)
	require.Equal(t, Moves, all[1].Motion)
}

// A thread whose line does not change while it uses a processor is not frozen.
func TestThreadThatRunsOnOneLineIsNotFrozen(t *testing.T) {
	var j Judge
	for second := range 11 {
		at := func(pid uint32, cpu time.Duration) Thread {
			return Thread{PID: pid, TID: pid, Stack: []string{"synchronize (m.py:1)"}, Ready: time.Hour + cpu}
		}
		now := time.Unix(int64(second), 0)
		j.Add(now, []Thread{at(1, time.Duration(second)*40*time.Millisecond), at(2, time.Duration(second)*60*time.Millisecond)})
	}
	all := j.Processes()
	require.Equal(t, Frozen, all[0].Motion)
	require.Equal(t, Runs, all[1].Motion)
}

func TestThreadOfManyStacksMoves(t *testing.T) {
	var j Judge
	for n := range maxStacks + 2 {
		j.Add(time.Time{}, []Thread{{PID: 1, TID: 1, Stack: []string{"spin (m.py:" + strings.Repeat("1", n%7+1) + ")", strings.Repeat("x", n)}}})
	}
	require.Equal(t, Moves, j.Processes()[0].Motion)
}
