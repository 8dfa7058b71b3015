// SPDX-License-Identifier: Apache-2.0

package ranks

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/internal/collective"
	"github.com/gpu-gadgets/gpu-gadgets/internal/stack"
)

func python(lines ...stack.Frame) (s stack.Stack) {
	for _, f := range lines {
		f.Kind = stack.KindPython
		s = append(s, f)
	}
	return s
}

var (
	loadBatch = stack.Frame{Function: "Trainer.load_batch", File: "/app/train.py", Line: 18}
	relay     = stack.Frame{Function: "Relay.run", File: "/app/relay.py", Line: 7}
	start     = stack.Frame{Function: "main", File: "/app/train.py", Line: 60}
	backward  = stack.Frame{Function: "Function.apply", File: "/usr/lib/python3/dist-packages/torch/autograd/function.py", Line: 300, Library: true}
	wait      = stack.Frame{Function: "Condition.wait", File: "/usr/lib/python3.11/threading.py", Line: 327, Library: true}
	join      = stack.Frame{Function: "Thread.join", File: "/usr/lib/python3.11/threading.py", Line: 1112, Library: true}
	loop      = stack.Frame{Function: "BaseEventLoop.run_forever", File: "/usr/lib/python3.11/asyncio/base_events.py", Line: 607, Library: true}
)

func TestTheThreadToBlame(t *testing.T) {
	const pid = 100
	const nobody = 0
	for _, c := range []struct {
		name    string
		threads map[uint32]Trace
		callers []uint32
		want    uint32
	}{
		{"the main thread sleeps in the training loop, and autograd's issued the last collective",
			map[uint32]Trace{100: {Stack: python(loadBatch, start), Syscall: "clock_nanosleep"}, 104: {Stack: python(backward), Syscall: "futex"}},
			[]uint32{100, 104}, 100},
		{"autograd's thread has no frame of Python",
			map[uint32]Trace{100: {Stack: python(loadBatch, start), Syscall: "clock_nanosleep"}}, []uint32{104}, 100},
		{"a thread that issues for others waits for them",
			map[uint32]Trace{100: {Stack: python(loadBatch, start)}, 104: {Stack: python(wait, relay), Syscall: "futex"}}, []uint32{104}, 100},
		{"the main thread waits for batches, and so does the one that issues",
			map[uint32]Trace{100: {Stack: python(wait, loadBatch, start), Syscall: "futex"}, 104: {Stack: python(wait, relay), Syscall: "futex"}},
			[]uint32{104}, 100},
		{"the main thread waits for batches, and a thread that is none of the job's works",
			map[uint32]Trace{100: {Stack: python(wait, loadBatch, start), Syscall: "futex"}, 104: {Stack: python(relay)}}, []uint32{100}, 100},
		{"the training loop is in another thread, which the main thread joins",
			map[uint32]Trace{100: {Stack: python(join, start), Syscall: "futex"}, 104: {Stack: python(loadBatch), Syscall: "clock_nanosleep"}},
			[]uint32{104}, 104},
		{"the main thread runs an event loop",
			map[uint32]Trace{100: {Stack: python(loop, start), Syscall: "epoll_wait"}, 104: {Stack: python(wait, loadBatch), Syscall: "futex"}},
			[]uint32{104}, 104},
		{"the main thread joins the training loop, which another thread issues for",
			map[uint32]Trace{100: {Stack: python(join, start), Syscall: "futex"}, 104: {Stack: python(wait, relay), Syscall: "futex"},
				103: {Stack: python(loadBatch)}}, []uint32{104}, 103},
		{"a thread that waits for the GIL works",
			map[uint32]Trace{100: {Stack: python(wait, start), Syscall: "futex"}, 104: {Stack: python(loadBatch), Syscall: "futex", WaitsForGIL: true}},
			[]uint32{104}, 104},
		{"only libraries run", map[uint32]Trace{100: {Stack: python(wait), Syscall: "futex"}, 104: {Stack: python(backward)}}, []uint32{104}, 100},
		{"the main thread is none of Python's", map[uint32]Trace{104: {Stack: python(relay)}, 105: {Stack: python(wait, relay), Syscall: "futex"}}, nil, 104},
		{"no Python", nil, []uint32{104}, nobody},
	} {
		t.Run(c.name, func(t *testing.T) {
			threads := map[Thread]Trace{{PID: 99, TID: 99}: {Stack: python(loadBatch)}}
			for tid, trace := range c.threads {
				threads[Thread{pid, tid}] = trace
			}
			callers := map[uint32]bool{}
			for _, tid := range c.callers {
				callers[tid] = true
			}
			tid, ok := blame(threads, pid, callers)
			require.Equal(t, c.want, tid)
			require.Equal(t, c.want != nobody, ok)
		})
	}
}

func TestAPlaceIsTheProgramsLineInTheLibrarys(t *testing.T) {
	p := placeOf(7, python(wait, loadBatch, start))
	require.Equal(t, "Trainer.load_batch (train.py:18), in Condition.wait (threading.py:327)", p.where())
	require.Equal(t, "Trainer.load_batch (train.py:18)", p.user)
	require.Equal(t, []string{"Condition.wait (threading.py:327)", "Trainer.load_batch (train.py:18)", "main (train.py:60)"}, p.lines)
	require.Empty(t, place{}.where())
	native := place{user: "Trainer::step() (server)", lines: []string{"0x1f3a0 (libcuda.so.575.51)"}}
	require.Equal(t, "Trainer::step() (server)", native.where())
	native.user = "" // as of another node
	require.Equal(t, "0x1f3a0 (libcuda.so.575.51)", native.where())
}

// TestAFailedReadLeavesNoOldPlace: a rank was read in a checkpoint, went on, and could not be read where it hangs.
func TestAFailedReadLeavesNoOldPlace(t *testing.T) {
	answer := map[Thread]Trace{{7, 7}: {Stack: stack.ParseFolded("main (train.py:60); save_checkpoint (train.py:300)")}}
	i := &instance{cfg: Config{Dump: func(context.Context, string, []uint32) (map[Thread]Trace, error) { return answer, nil }},
		processes: map[uint64]*process{1: {pid: 7, changed: 1}}, out: &output{}}
	const second = collective.Time(time.Second)
	p := i.processes[1]
	read := func(at collective.Time) {
		i.dump(t.Context(), []collective.Process{{ID: 1, PID: 7}}, nil, at)
		i.wait.Wait()
	}
	read(100 * second)
	require.True(t, p.isDumped())
	answer = nil
	read(120 * second)
	require.True(t, p.isDumped(), "it has done nothing since")
	p.changed = 880 * second
	require.False(t, p.isDumped())
	read(900 * second)
	require.False(t, p.isDumped())
}
