// SPDX-License-Identifier: Apache-2.0

package weave

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/internal/timeline/track"
)

// TestFunctionsReachFromFirstToLastSign: a step's three methods, twice.
func TestFunctionsReachFromFirstToLastSign(t *testing.T) {
	r := record(t)
	w := New(r)
	load, forward, sample := python(1, "main", "step", "load"), python(2, "main", "step", "forward"), python(3, "main", "step", "sample")
	at := uint64(1_000_000)
	call := func(kind Kind, s *Stack) {
		w.Call(&Call{Thread: me, Start: at, End: at + 1000, Function: "cu", Kind: kind, Stack: s})
		at += 5000
	}
	for range 2 {
		call(Copy, load)
		for range 3 {
			call(Launch, forward)
		}
		call(Copy, sample)
	}
	w.End()
	all := r.of(mine, "python")
	var text []string
	for _, s := range all {
		text = append(text, s.Name)
	}
	require.Equal(t, "main step load forward sample load forward sample", strings.Join(text, " "))
	require.EqualValues(t, 1_005_000, all[3].Start)
	require.EqualValues(t, 1_016_000, all[3].End)
	require.EqualValues(t, at-4000, all[0].End)
	for _, c := range r.of(mine, "launch") {
		inside := 0
		for _, f := range all {
			if f.Name == "forward" && f.Start <= c.Start && c.End <= f.End {
				inside++
			}
		}
		require.Equal(t, 1, inside)
	}
	require.Equal(t, []string{"load", "step", "main"}, r.stacks[1])
}

func TestAFunctionEndsAfterASecondWithoutSamples(t *testing.T) {
	r := record(t)
	w := New(r)
	for _, at := range []uint64{10, gapNS, 3 * gapNS} {
		w.Host(&Host{Thread: me, Kind: Sample, Start: at, End: at, Stack: python(1, "f")})
	}
	w.End()
	all := r.of(mine, "python")
	require.Len(t, all, 2)
	require.EqualValues(t, gapNS, all[0].End)
	require.EqualValues(t, 3*gapNS, all[1].Start)
}

// TestArrowsLeadFromTheNewestLaunch to the wait for its stream, once.
func TestArrowsLeadFromTheNewestLaunch(t *testing.T) {
	r := record(t)
	w := New(r)
	launch := func(stream, at uint64) {
		w.Call(&Call{Thread: me, Start: at, End: at + 1, Function: "cuLaunchKernel", Kind: Launch, Kernel: "gemm", Stream: stream})
	}
	launch(0x10, 100)
	launch(0x10, 200)
	launch(0x20, 300)
	wait := func(stream, at uint64) {
		w.Call(&Call{Thread: me, Start: at, End: at + 50, Function: "wait", Kind: Wait, Stream: stream})
	}
	wait(0x10, 400)
	wait(0x10, 500)
	require.Len(t, r.arrows, 1)
	require.EqualValues(t, 200, r.arrows[0].FromNS)
	require.EqualValues(t, 400, r.arrows[0].ToNS)
	launch(0x10, 600)
	wait(NoStream, 700) // the context: both streams
	require.Len(t, r.arrows, 3)
	ids := map[uint64]bool{}
	for _, a := range r.arrows {
		ids[a.ID] = true
	}
	require.Len(t, ids, 3)
}

// TestStreamsOfTwoThreadsDoNotOverlap: slices of one track never do.
func TestStreamsOfTwoThreadsDoNotOverlap(t *testing.T) {
	r := record(t)
	w := New(r)
	rng := rand.New(rand.NewPCG(1, 2))
	var next [3]uint64
	for range 2000 {
		tid := rng.IntN(3)
		start := next[tid] + rng.Uint64N(100)
		next[tid] = start + rng.Uint64N(300)
		by := me
		by.TID = uint32(7 + tid)
		w.Call(&Call{Thread: by, Start: start, End: next[tid], Function: "cu", Kind: Launch, Stream: 5})
	}
	w.End()
	count := 0
	for on, all := range r.slices {
		if r.names[on] != "stream 0x5" {
			continue
		}
		slices.SortFunc(all, func(a, b slice) int { return int(int64(a.Start) - int64(b.Start)) })
		for i := range all[1:] {
			require.LessOrEqual(t, all[i].End, all[i+1].Start)
		}
		count += len(all)
	}
	require.Equal(t, 2000, count)
}

// TestRatesHaveAllBytes: whatever the order and the length of the copies.
func TestRatesHaveAllBytes(t *testing.T) {
	for seed := range uint64(50) {
		r := record(t)
		w := New(r)
		rng := rand.New(rand.NewPCG(seed, 3))
		var sum float64
		at := uint64(rng.Int64N(1e15))
		for range 300 {
			at += uint64(rng.Int64N(3e8))
			length := uint64(rng.Int64N(1e6))
			if rng.IntN(20) == 0 {
				length = uint64(rng.Int64N(3e10)) // half a minute
			}
			bytes := uint64(rng.Int64N(1e9))
			sum += float64(bytes)
			w.Call(&Call{Thread: me, Start: at - min(at, length), End: at, Function: "cuMemcpy", Kind: Copy, Direction: "HtoD", Bytes: bytes})
			if rng.IntN(10) == 0 {
				w.Tick(at)
			}
		}
		w.End()
		points := r.counters["HtoD GB/s"]
		require.Zero(t, points[len(points)-1].value)
		var shown float64
		for i, p := range points[:len(points)-1] {
			require.Less(t, p.ns, points[i+1].ns)
			shown += p.value * float64(points[i+1].ns-p.ns)
		}
		require.InEpsilon(t, sum, shown, 1e-6)
	}
}

// TestMergeSortsWithinItsWindow: events of four rings, each in its own order.
func TestMergeSortsWithinItsWindow(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	var got []uint64
	m := NewMerge(1000, 1<<20, func(e any) { got = append(got, e.(uint64)) })
	const n = 5000
	for i := range uint64(n) {
		end := 10_000 + i*100 - rng.Uint64N(900)
		m.Add(end, end)
	}
	m.Until(^uint64(0))
	require.Len(t, got, n)
	require.True(t, slices.IsSorted(got))
	require.Zero(t, m.Late())
}

// TestMergeIsBounded: with little room it emits early, and counts late events.
func TestMergeIsBounded(t *testing.T) {
	n := 0
	m := NewMerge(^uint64(0)>>1, 100, func(any) { n++ })
	for i := range uint64(1000) {
		m.Add(1_000_000+i, i)
	}
	require.Equal(t, 900, n)
	m.Add(5, "late")
	require.EqualValues(t, 1, m.Late())
}

// TestManyThreadsAreBounded: ended threads leave nothing behind.
func TestManyThreadsAreBounded(t *testing.T) {
	r := record(t)
	w := New(r)
	for i := range uint64(3 * maxThreads) {
		by := Thread{Process: i, PID: uint32(i), TID: uint32(i), Comm: "x"}
		w.Call(&Call{Thread: by, Start: i * 10, End: i*10 + 1, Function: "f", Kind: Launch, Stream: i, Stack: python(i+1, "f")})
	}
	require.LessOrEqual(t, len(w.threads), maxThreads)
	require.LessOrEqual(t, len(w.streams), maxStreams)
	require.LessOrEqual(t, len(w.processes), maxProcesses)
	require.LessOrEqual(t, len(w.stacks), maxStacks)
	w.End()
	for _, open := range r.open {
		require.Empty(t, open)
	}
}

// TestACallMayHaveATrackOfItsOwn: an operation of NCCL until it is done, beside its call.
func TestACallMayHaveATrackOfItsOwn(t *testing.T) {
	r := record(t)
	w := New(r)
	w.Call(&Call{Thread: me, Start: 10, End: 20, Function: "ncclAllReduce", Kind: Collective, Stack: python(1, "f")})
	w.Call(&Call{Thread: me, Start: 10, End: 90, Function: "ncclAllReduce", Kind: Collective, Track: "NCCL rank 0 of 2", Stream: 0x77, Stack: python(1, "f")})
	w.End()
	require.Len(t, r.of(mine, "nccl"), 1)
	require.EqualValues(t, 20, r.of(mine, "python")[0].End)
	found := 0
	for on, name := range r.names {
		if name == "NCCL rank 0 of 2" {
			require.EqualValues(t, 90, r.slices[on][0].End)
			found++
		}
	}
	require.Equal(t, 1, found)
}

// TestASendLeadsToItsReceive, whichever of them is known to be done first; ends without a
// counterpart are bounded.
func TestASendLeadsToItsReceive(t *testing.T) {
	r := record(t)
	w := New(r)
	peer := Thread{Process: 8, PID: 43, TID: 43, Comm: "python3"}
	pair := func(n uint64) *Pair { return &Pair{Communicator: 0x77, Sender: 0, Receiver: 1, Number: n} }
	send := func(n, start, end uint64) {
		w.Call(&Call{Thread: me, Start: start, End: end, Function: "ncclSend", Kind: Collective, Track: "rank 0", Stream: 0x1000, Pair: pair(n)})
	}
	receive := func(n, start, end uint64) {
		w.Call(&Call{Thread: peer, Start: start, End: end, Function: "ncclRecv", Kind: Collective, Track: "rank 1", Stream: 0x2000, Pair: pair(n)})
	}
	receive(1, 10, 60)
	require.Empty(t, r.arrows)
	send(1, 40, 70)
	send(2, 80, 90)
	receive(2, 85, 120)
	receive(3, 130, 140)
	require.Len(t, r.arrows, 2)
	for n, want := range []struct{ from, to uint64 }{{40, 59}, {80, 119}} {
		a := r.arrows[n]
		require.Equal(t, want.from, a.FromNS)
		require.Equal(t, want.to, a.ToNS)
		require.Equal(t, me.PID, a.From.PID)
		require.EqualValues(t, 43, a.To.PID)
		require.Equal(t, "is received", a.Name)
	}
	require.NotEqual(t, r.arrows[0].ID, r.arrows[1].ID)
	for n := range uint64(3 * maxPairs) {
		send(10+n, 200+n, 201+n)
	}
	require.LessOrEqual(t, len(w.pairs), maxPairs)
}

// TestStreamsOfTwoDevices: tracks are named by GPU; each device has a default stream; a
// stream whose device becomes known later is named then; and a wait for a context does
// not cover another device's streams.
func TestStreamsOfTwoDevices(t *testing.T) {
	r := record(t)
	w := New(r)
	at := uint64(1000)
	call := func(kind Kind, function string, ordinal int32, stream uint64) {
		w.Call(&Call{Thread: me, Start: at, End: at + 10, Function: function, Kind: kind, Device: DeviceOf(ordinal), Stream: stream})
		at += 100
	}
	call(Copy, "cuMemcpyHtoDAsync_v2", 1, 0x50) // another device's stream may be waited for and copied on
	call(Launch, "cuLaunchKernel", -1, 0x50)
	require.Equal(t, []string{"GPU 1, stream 0x50"}, r.titles())
	call(Launch, "cuLaunchKernel", 0, 0x50)
	require.Equal(t, []string{"GPU 0, stream 0x50"}, r.titles())
	call(Copy, "cuMemcpyHtoDAsync_v2", 1, 0x50)
	call(Set, "cuMemsetD8Async", -1, 0x60)
	require.Equal(t, []string{"GPU 0, stream 0x50", "stream 0x60"}, r.titles())
	call(Launch, "cuLaunchKernel", 0, DefaultStream)
	call(Launch, "cuLaunchKernel", 1, DefaultStream)
	call(Launch, "cuLaunchKernel", 1, ThreadsOwnStream)
	require.Equal(t, []string{"GPU 0, default stream", "GPU 0, stream 0x50", "GPU 1, default stream", "GPU 1, default stream of thread 7", "stream 0x60"}, r.titles())
	call(Wait, "cuStreamSynchronize", 1, DefaultStream)
	require.Equal(t, "GPU 1, default stream", r.names[r.arrows[0].From])
	call(Wait, "cuCtxSynchronize", 1, NoStream)
	require.Len(t, r.arrows, 3)
	require.Equal(t, "stream 0x60", r.names[r.arrows[1].From], "its device is not known")
	require.Equal(t, "GPU 1, default stream of thread 7", r.names[r.arrows[2].From])
	call(Wait, "cuCtxSynchronize", 0, NoStream)
	require.Len(t, r.arrows, 5)
	require.Equal(t, []track.Arg{{Key: "device", Number: 1}}, r.of(mine, "launch")[3].Args)
}

// titles of all tracks but threads'.
func (r *recorder) titles() (all []string) {
	for _, name := range r.names {
		if !strings.HasSuffix(name, "main thread") {
			all = append(all, name)
		}
	}
	slices.Sort(all)
	return all
}

// TestMemoryInUseIsACounterOfEachDevice: written when it changes.
func TestMemoryInUseIsACounterOfEachDevice(t *testing.T) {
	r := record(t)
	w := New(r)
	for n, u := range []Inuse{
		{Device: DeviceOf(0), Bytes: 10}, {Device: DeviceOf(1), Bytes: 20}, {Device: DeviceOf(0), Bytes: 10},
		{Device: DeviceOf(0), Bytes: 0}, {Device: DeviceOf(-1), Bytes: 7}, {IsHost: true, Bytes: 5},
	} {
		u.Thread, u.At = me, uint64(n)
		w.Inuse(&u)
	}
	require.Equal(t, map[string][]point{
		"GPU 0 in use, bytes": {{0, 10}, {3, 0}}, "GPU 1 in use, bytes": {{1, 20}},
		"in use, unknown GPU, bytes": {{4, 7}}, "pinned on the host, bytes": {{5, 5}},
	}, r.counters)
}
