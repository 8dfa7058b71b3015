// SPDX-License-Identifier: Apache-2.0

package idle

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/internal/timeline/weave"
)

func at(function string) *weave.Stack {
	return &weave.Stack{ID: 1, Python: []weave.Frame{{Name: function, Place: "x.py:1", Key: function}}}
}

var me = weave.Thread{Process: 1, PID: 7, TID: 7}

func launch(start, end uint64, in string) *weave.Call {
	return &weave.Call{Thread: me, Start: start, End: end, Kind: weave.Launch, Function: "cuLaunchKernel", Stream: 9, Stack: at(in)}
}

func wait(start, end uint64) *weave.Call {
	return &weave.Call{Thread: me, Start: start, End: end, Kind: weave.Wait, Function: "cuStreamSynchronize", Stream: 9}
}

func TestAGapIsFromAWaitToTheNextLaunch(t *testing.T) {
	g := New()
	g.Call(launch(100, 110, "forward"))
	g.Call(wait(120, 500))
	g.Call(wait(600, 610)) // it was done already
	g.Call(launch(1500, 1510, "tokenize"))
	g.Call(launch(2500, 2510, "forward")) // no thread has waited
	g.End()
	idle, of := g.Total()
	require.EqualValues(t, 1000, idle)
	require.EqualValues(t, 2410, of)
	require.Equal(t, []Place{{At: "before tokenize (x.py:1)", Idle: 1000, Gaps: 1, Longest: 1000}}, g.Top(5))
}

func TestAGapBelongsToWhatRanMeanwhile(t *testing.T) {
	g := New()
	g.Call(launch(100, 110, "forward"))
	g.Call(wait(120, 500))
	for n, in := range []string{"encode", "encode", "log", "encode"} {
		g.Sample(&weave.Host{Thread: me, Kind: weave.Sample, Start: 600 + uint64(n), Stack: at(in)})
	}
	other := me
	other.TID = 8
	g.Sample(&weave.Host{Thread: other, Kind: weave.Sample, Start: 700, Stack: at("elsewhere")})
	g.Sample(&weave.Host{Thread: me, Kind: weave.Sample, Start: 300, Stack: at("before")})
	g.Call(launch(1500, 1510, "forward"))
	g.End()
	require.Equal(t, []Place{
		{At: "encode (x.py:1)", Idle: 750, Gaps: 1, Longest: 750},
		{At: "log (x.py:1)", Idle: 250, Gaps: 1, Longest: 250},
	}, g.Top(5))
}

// PyTorch for ROCm waits in its copies to the host.
func TestACopyThatIsDoneWhenItReturnsBeginsAGap(t *testing.T) {
	copied := func(start, end uint64, function, direction string) *weave.Call {
		return &weave.Call{Thread: me, Start: start, End: end, Kind: weave.Copy, Function: function, Direction: direction, Stream: 9}
	}
	for name, c := range map[string]struct {
		calls []*weave.Call
		want  uint64
	}{
		"to the host":           {[]*weave.Call{copied(120, 500, "hipMemcpyWithStream", "DtoH")}, 1000},
		"from the host":         {[]*weave.Call{copied(120, 500, "hipMemcpyWithStream", "HtoD")}, 1000},
		"to the host, of CUDA":  {[]*weave.Call{copied(120, 500, "cuMemcpyDtoH_v2_ptds", "DtoH")}, 1000},
		"between two":           {[]*weave.Call{copied(120, 200, "hipMemcpyWithStream", "DtoH"), copied(300, 500, "hipMemcpyWithStream", "DtoH")}, 1100},
		"between devices":       {[]*weave.Call{copied(120, 500, "hipMemcpyWithStream", "DtoD")}, 0},
		"staged":                {[]*weave.Call{copied(120, 500, "cuMemcpyHtoD_v2_ptds", "HtoD")}, 0},
		"queued, of CUDA":       {[]*weave.Call{copied(120, 500, "cuMemcpyDtoHAsync_v2", "DtoH")}, 0},
		"queued":                {[]*weave.Call{copied(120, 500, "hipMemcpyAsync", "DtoH")}, 0},
		"submitted meanwhile":   {[]*weave.Call{launch(130, 140, "f"), copied(120, 500, "hipMemcpyWithStream", "DtoH")}, 0},
		"submitted until later": {[]*weave.Call{copied(120, 500, "hipMemcpyWithStream", "DtoH"), launch(499, 510, "f")}, 0},
	} {
		g := New()
		g.Call(launch(100, 110, "f"))
		for _, call := range c.calls {
			g.Call(call)
		}
		g.Call(launch(1500, 1510, "f"))
		g.End()
		idle, _ := g.Total()
		require.Equal(t, c.want, uint64(idle), name)
	}
}

// TestUnknownTimeIsNotAGap: each of these calls leaves open whether the stream is idle.
func TestUnknownTimeIsNotAGap(t *testing.T) {
	event, failed := wait(120, 500), wait(120, 500)
	event.Function, failed.Error = "cuEventSynchronize", "CUDA_ERROR_ILLEGAL_ADDRESS"
	during, somewhere := launch(130, 140, "f"), launch(510, 520, "f")
	somewhere.Stream = weave.NoStream
	hip, context := *event, wait(120, 500)
	hip.Function = "hipEventSynchronize"
	context.Function, context.Stream, context.Device = "cuCtxSynchronize", weave.NoStream, weave.DeviceOf(1)
	of, named := *context, *context
	of.Function, named.Function = "hipDeviceSynchronize", "cuCtxSynchronize_v2"
	for name, calls := range map[string][]*weave.Call{
		"an event":                          {event},
		"an event of HIP":                   {&hip},
		"a context that may be another one": {context},
		"a device of HIP":                   {&of},
		"a context that CUDA 13 names":      {&named},
		"a wait that failed":                {failed},
		"submitted during the wait":         {during, wait(120, 500)},
		"submitted at its end":              {wait(120, 500), launch(499, 510, "f")},
		"stream not known":                  {wait(120, 500), somewhere},
	} {
		g := New()
		g.Call(launch(100, 110, "f"))
		for _, c := range calls {
			g.Call(c)
		}
		g.Call(launch(1500, 1510, "f"))
		g.End()
		idle, _ := g.Total()
		require.Zero(t, idle, name)
	}
	g := New()
	g.Call(launch(100, 110, "f"))
	g.Call(wait(120, 500))
	refused := launch(700, 710, "f")
	refused.Error = "CUDA_ERROR_INVALID_VALUE"
	g.Call(refused)
	g.Call(launch(1500, 1510, "f"))
	g.End()
	idle, _ := g.Total()
	require.EqualValues(t, 1000, idle)
}

// device runs the work of streams, each in order, and reports how long they were idle.
type device struct {
	busyUntil map[uint64]uint64
	idle      uint64
	begun     map[uint64]bool
}

// put gives a stream work at a time; it starts then, or when the stream is done.
func (d *device) put(stream, now, length uint64) {
	if d.begun[stream] && now > d.busyUntil[stream] {
		d.idle += now - d.busyUntil[stream]
	}
	d.begun[stream] = true
	d.busyUntil[stream] = max(d.busyUntil[stream], now) + length
}

// TestNeverMoreThanTheTruth: random programs of several threads and streams.
func TestNeverMoreThanTheTruth(t *testing.T) {
	found := 0
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 11))
		d := &device{busyUntil: map[uint64]uint64{}, begun: map[uint64]bool{}}
		threads, streams := 1+rng.IntN(4), 1+rng.IntN(3)
		clock := make([]uint64, threads)
		for n := range clock {
			clock[n] = 1000 + rng.Uint64N(1000)
		}
		var calls []*weave.Call
		for range 500 {
			// The thread whose call is next, so that the device sees the calls in the
			// order of time.
			n := 0
			for m := range clock {
				if clock[m] < clock[n] {
					n = m
				}
			}
			now := clock[n]
			by := me
			by.TID = uint32(7 + n)
			c := &weave.Call{Thread: by, Start: now, Stream: 10 + rng.Uint64N(uint64(streams))}
			switch rng.IntN(6) {
			case 0:
				c.Kind, c.Function = weave.Wait, "cuStreamSynchronize"
				c.End = max(now, d.busyUntil[c.Stream]) + 1 + rng.Uint64N(20)
			case 1:
				c.Kind, c.Function, c.Stream = weave.Wait, "cuCtxSynchronize", weave.NoStream
				c.End = now
				for _, until := range d.busyUntil {
					c.End = max(c.End, until)
				}
				c.End += 1 + rng.Uint64N(20)
			default:
				c.Kind, c.Function = weave.Launch, "cuLaunchKernel"
				c.End = now + 1 + rng.Uint64N(30)
				// It reaches the device somewhere within the call. Another thread's
				// call may reach it between, which only makes the truth larger.
				d.put(c.Stream, now, rng.Uint64N(900))
			}
			// A wait covers work submitted until it began; submissions by others
			// during the wait are not part of it, as with the real driver.
			clock[n] = c.End + rng.Uint64N(400)
			calls = append(calls, c)
		}
		slices.SortStableFunc(calls, func(a, b *weave.Call) int { return cmp.Compare(a.End, b.End) })
		g := New()
		for _, c := range calls {
			g.Call(c)
		}
		g.End()
		idle, _ := g.Total()
		require.LessOrEqual(t, uint64(idle), d.idle, "seed %d", seed)
		if idle > 0 {
			found++
		}
	}
	require.Greater(t, found, 100, "a lower bound of nothing is no estimate")
}

func TestLinesAreMarkedAsEstimates(t *testing.T) {
	g := New()
	g.Call(launch(100, 110, "forward"))
	g.Call(wait(120, 500))
	g.Call(launch(2_500_500, 2_500_510, "tokenize"))
	g.End()
	text := strings.Join(g.Lines(5), "\n")
	require.Contains(t, text, "an estimate: streams had nothing to do for at least 2.5ms together, in 2.5ms")
	require.Contains(t, text, "2.5ms        1      2.5ms  before tokenize (x.py:1)")
	require.Equal(t, "1.23s", short(1_234_567_890*time.Nanosecond))
}

func TestNoGapIsSaidToBeNone(t *testing.T) {
	g := New()
	g.Call(launch(100, 110, "forward"))
	g.Call(launch(120, 130, "forward"))
	g.End()
	require.Equal(t, []string{"what the GPU waited for, an estimate: no time was found in which streams had nothing to do, in 30ns"}, g.Lines(5))
}

// TestACallThatWasUnderWayEndsAGap: the call is passed later, because it took longer.
func TestACallThatWasUnderWayEndsAGap(t *testing.T) {
	g := New()
	g.Call(launch(100, 110, "f"))
	g.Call(wait(120, 500))
	g.Call(launch(610, 615, "short"))
	long := launch(600, 630, "long")
	long.TID = 8
	g.Call(long)
	g.End()
	idle, _ := g.Total()
	require.EqualValues(t, 100, idle)
}

// TestAWaitForAContextDoesNotCoverAnotherDevice: what the other one does goes on.
func TestAWaitForAContextDoesNotCoverAnotherDevice(t *testing.T) {
	g := New()
	on := func(device int32, c *weave.Call) *weave.Call {
		c.Device = weave.DeviceOf(device)
		return c
	}
	other := launch(0, 1, "a")
	other.Stream = 10
	g.Call(on(1, other))
	g.Call(on(0, launch(0, 1, "b")))
	all := wait(2, 3)
	all.Function, all.Stream = "cuCtxSynchronize", weave.NoStream
	g.Call(on(0, all))
	again := launch(100, 101, "c")
	again.Stream = 10
	g.Call(on(1, again))
	g.Call(on(0, launch(50, 51, "d")))
	g.End()
	idle, _ := g.Total()
	require.EqualValues(t, 47, idle)
}
