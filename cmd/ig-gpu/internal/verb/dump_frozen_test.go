// SPDX-License-Identifier: Apache-2.0

package verb

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/internal/process/frozen"
	"github.com/gpu-gadgets/gpu-gadgets/internal/process/waits"
)

func TestStandstillInWords(t *testing.T) {
	pipe := func(pid uint32) []waited {
		return []waited{{Syscall: "read", Kind: "pipe", Name: "a pipe", PIDs: []uint32{pid}}}
	}
	engine := still{PID: 7, Process: "python3", Motion: "frozen", Seconds: 10.1, Circle: []uint32{7, 9}, IsDeadlock: true, Threads: []stillThread{
		{TID: 7, Motion: "frozen", State: "sleeping", Place: "step (engine.py:2), in recv (connection.py:3)", Waits: pipe(9)},
		{TID: 8, Motion: "frozen", State: "sleeping", Place: "feed (queues.py:2)", Waits: []waited{{Syscall: "futex", Kind: "lock", Name: "a lock of its process"}}},
	}}
	worker := still{PID: 9, Process: "python3", Motion: "frozen", Seconds: 10.1, Circle: []uint32{7, 9}, IsDeadlock: true, Threads: []stillThread{
		{TID: 9, Motion: "frozen", State: "sleeping", Place: "loop (worker.py:2)", Waits: pipe(7)},
	}}
	other := still{PID: 11, Process: "python3", Motion: "moves", Seconds: 10.1}
	require.Equal(t, `Deadlock: processes 7, 9 wait for each other (7 → 9 → 7), and nothing else can wake a thread. No line changed for 10.1s.

Process 7 python3 is frozen: no line changed for 10.1s.
  thread 7 at step (engine.py:2), in recv (connection.py:3)
    waits in read for a pipe, which process 9 can end
  and another thread, which no other process can wake: ig-gpu dump shows it

Process 9 python3 is frozen: no line changed for 10.1s.
  thread 9 at loop (worker.py:2)
    waits in read for a pipe, which process 7 can end

Process 11 python3 moves.
`, describeStill([]still{engine, worker, other}))

	moving := engine
	moving.Motion = "moves"
	require.Contains(t, describeStill([]still{moving}), `Process 7 python3 moves, but its main thread did not for 10.1s:
  thread 7 at step (engine.py:2), in recv (connection.py:3)
    waits in read for a pipe, which process 9 can end
`)
	moving.Threads = moving.Threads[1:]
	require.Contains(t, describeStill([]still{moving}), "Process 7 python3 moves.\n")

	engine.IsDeadlock = false
	require.Contains(t, describeStill([]still{engine}), "Processes 7, 9 wait for each other (7 → 9 → 7). No line changed for 10.1s; another thread, a timer or a device may still wake them.\n")
	engine.Circle, engine.IsDeadlock = []uint32{7}, true
	require.Contains(t, describeStill([]still{engine}), "Deadlock: each Python thread of process 7 waits for a lock of the process, and nothing else can wake a thread.")

	worker.Circle = nil
	worker.Motion = "loops"
	worker.Threads = []stillThread{
		{TID: 9, Motion: "loops", State: "running", Place: "poll (worker.py:2)", Lines: []int{2, 5}},
		{TID: 10, Motion: "frozen", Place: "a (b.py:1)", Waits: []waited{
			{Syscall: "recvfrom", Kind: "socket", Name: "a socket", Address: "10.0.0.2:29500"},
			{Syscall: "wait4", Kind: "child", Name: "a child", PIDs: []uint32{12}},
			{Syscall: "nanosleep", Kind: "timer", Name: "a timer"},
			{Syscall: "ioctl", Kind: "device", Name: "/dev/nvidia0"},
		}},
	}
	require.Equal(t, `0 of 1 processes did not move.

Process 9 python3 moves within one function only, as a loop that polls does:
  thread 9 at poll (worker.py:2), between lines 2 and 5
    is running, in no system call that waits
  thread 10 at a (b.py:1)
    waits in recvfrom for a socket to 10.0.0.2:29500
    waits in wait4 for its child 12 to end
    sleeps in nanosleep until its time is over
    waits in ioctl for /dev/nvidia0
`, describeStill([]still{worker}))
}

// A wait of a thread that is stopped says nothing of why it does not move, and is no part of a deadlock.
func TestAStoppedThreadDoesNotWait(t *testing.T) {
	s := still{PID: 7, Process: "python3", Motion: "frozen", Seconds: 3, Circle: []uint32{7}, waits: []waits.Wait{{TID: 8}}, Threads: []stillThread{
		{TID: 7, Motion: "frozen", State: "stopped", Place: "nap (serve.py:2)", Waits: []waited{{Syscall: "clock_nanosleep", Kind: "timer", Name: "a timer"}}}}}
	text := describeStill([]still{s})
	require.Contains(t, text, "  thread 7 at nap (serve.py:2)\n    is stopped by a signal or a debugger: kill -CONT 7 continues it, unless a debugger holds it\n")
	require.NotContains(t, text, "sleeps in")

	reader := waits.NewReader(t.TempDir())
	require.False(t, isDeadlock(reader, []still{s}, s.Circle))
}

// One dump shows nothing that moves, however it came to be the only one.
func TestFrozenTakesAtLeastTwoDumps(t *testing.T) {
	one := []thread{{PID: 7, TID: 7, Stack: []string{"train (train.py:7)"}}}
	taken := 0
	dump := func() ([]thread, error) {
		taken++
		return one, nil
	}
	judge, last, err := dumpRepeatedly(t.Context(), t.TempDir(), time.Nanosecond, dump)
	require.NoError(t, err)
	require.Equal(t, 2, taken)
	require.Equal(t, frozen.Frozen, judge.Processes()[0].Motion)
	require.Equal(t, one, last)

	for _, interruptedIn := range []int{1, 2} { // the dump during which Ctrl-C comes
		ctx, interrupt := context.WithCancel(t.Context())
		taken = 0
		_, _, err = dumpRepeatedly(ctx, t.TempDir(), time.Minute, func() ([]thread, error) {
			if taken++; taken == interruptedIn {
				interrupt()
				return nil, context.Canceled
			}
			return one, nil
		})
		require.ErrorContains(t, err, "interrupted after "+count(interruptedIn-1, "dump")+": there is nothing to compare")
	}
}

// A thread that ended before the last dump is left out, and with it a process without others.
func TestStandstillIsOfThreadsThatLive(t *testing.T) {
	verdicts := []frozen.Process{
		{PID: 7, Motion: frozen.Moves, Threads: []frozen.Place{{TID: 7, Motion: frozen.Frozen, Depth: 2}, {TID: 8, Motion: frozen.Moves}}},
		{PID: 9, Motion: frozen.Moves, Threads: []frozen.Place{{TID: 9, Motion: frozen.Moves}}},
	}
	last := []thread{{PID: 7, TID: 7, Process: "python3", Name: "main", State: "sleeping", User: "step (engine.py:2)",
		Stack: []string{"step (engine.py:2)", "recv (connection.py:3)"}}}
	all := standstill(t.TempDir(), verdicts, last, 3*time.Second)
	require.Len(t, all, 1)
	require.Equal(t, []stillThread{{TID: 7, Name: "main", Motion: "frozen", State: "sleeping",
		Place: "step (engine.py:2), in recv (connection.py:3)", Stack: last[0].Stack}}, all[0].Threads)
	require.Empty(t, all[0].Circle)
}

// TestNoNameInTheTextOfAStandstillDrivesATerminal, or adds a line to it.
func TestNoNameInTheTextOfAStandstillDrivesATerminal(t *testing.T) {
	const name = "\x1b]52;c;ZXZpbA==\a\x1b[2J\nDeadlock"
	for _, motion := range []string{"frozen", "loops", "runs", "moves"} {
		s := still{PID: 7, Process: name, Motion: motion, Seconds: 10, Threads: []stillThread{{TID: 7, Motion: "frozen", State: name, Place: name, Waits: []waited{
			{Syscall: name, Kind: "file", Name: name}, {Syscall: "read", Kind: "pipe", Name: name, PIDs: []uint32{9}},
			{Syscall: "connect", Kind: "socket", Name: name, Address: name}, {Syscall: "futex", Kind: "lock", Name: name}}}}}
		text := describeStill([]still{s})
		require.NotContains(t, text, "\x1b")
		require.NotContains(t, text, "\a")
		require.NotContains(t, text, "\nDeadlock")
		require.Contains(t, text, "]52;c;ZXZpbA==")
		require.Equal(t, name, s.Threads[0].Waits[0].Name, "JSON has the name as it is")
	}
}
