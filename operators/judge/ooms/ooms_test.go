// SPDX-License-Identifier: Apache-2.0

package ooms

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/internal/profile"
)

func failure(frame string) Failure {
	return Failure{
		Comm: "python3", PID: 7, API: "cuMemAlloc_v2", Error: "CUDA_ERROR_OUT_OF_MEMORY",
		Frame: frame, Holders: "4.00 GiB kv (a.py:1)", RequestedBytes: 26 << 20, InuseBytes: 15 << 30, Device: profile.UnknownDevice,
	}
}

func TestSummaryCountsWhatRepeats(t *testing.T) {
	var l Log
	require.Nil(t, l.Lines())
	l.Add(failure("once (x.py:1)"))
	for range 3 {
		l.Add(failure("often (x.py:2)"))
	}
	require.Equal(t, []string{
		"allocation failed 3 times, last: python3[7] cuMemAlloc_v2 of 26.0 MiB at often (x.py:2): CUDA_ERROR_OUT_OF_MEMORY; it held 15.0 GiB of what was allocated after ig-gpu attached: 4.00 GiB kv (a.py:1)",
		"allocation failed: python3[7] cuMemAlloc_v2 of 26.0 MiB at once (x.py:1): CUDA_ERROR_OUT_OF_MEMORY; it held 15.0 GiB of what was allocated after ig-gpu attached: 4.00 GiB kv (a.py:1)",
	}, l.Lines())
}

func TestOneFailureIsOfOneGPU(t *testing.T) {
	var l Log
	for device := range int32(2) {
		f := failure("shard (x.py:1)")
		f.Device = device
		l.Add(f)
	}
	require.Len(t, l.Lines(), 2)
	require.Contains(t, l.Lines()[0], "cuMemAlloc_v2 of 26.0 MiB on GPU 0 at shard (x.py:1): ")
	require.Contains(t, l.Lines()[1], "cuMemAlloc_v2 of 26.0 MiB on GPU 1 at shard (x.py:1): ")
}

// A process that was full when ig-gpu attached held more than what is known.
func TestWhatWasHeldBeforeIsNotSaidToBeNothing(t *testing.T) {
	var l Log
	f := failure("next_batch (x.py:1)")
	f.InuseBytes, f.Holders = 0, ""
	l.Add(f)
	require.Contains(t, l.Lines()[0], "; it held 0 B of what was allocated after ig-gpu attached")
	f.API, f.PID, f.InuseBytes, f.Device, f.Holders = profile.PoolAPI, 8, 2<<30, 3, "2.00 GiB cache (x.py:2)"
	l.Add(f)
	require.Contains(t, l.Lines()[1], "; it held 2.00 GiB on that GPU of what was allocated after ig-gpu attached: ", "PyTorch did not give its totals")
	f.PID, f.Pool = 9, Pool{AllocatedBytes: 78 << 30, ReservedBytes: 79 << 30, Refused: "cuMemAlloc_v2"}
	l.Add(f)
	require.Contains(t, l.Lines()[2], "; it held 78.0 GiB on that GPU: 2.00 GiB cache (x.py:2); the lines of 76.0 GiB of it are unknown; PyTorch's pool uses 78.0 GiB of its 79.0 GiB")
}

func TestANameAddsNoLineToTheSummary(t *testing.T) {
	var l Log
	f := failure("f (x.py:1)")
	f.Comm = "\x1b[2Ja\nERRO"
	l.Add(f)
	require.Contains(t, l.Lines()[0], "allocation failed: \ufffd[2Ja\ufffdERRO[7] ")
}

func TestARequestOfAnySizeIsNotNegative(t *testing.T) {
	for _, bytes := range []uint64{1 << 63, math.MaxUint64} {
		var l Log
		f := failure("f (x.py:1)")
		f.RequestedBytes = bytes
		l.Add(f)
		require.Contains(t, l.Lines()[0], "cuMemAlloc_v2 of 8.00 EiB at f")
	}
}

func TestSummaryIsBoundedAndSaysWhatItLeavesOut(t *testing.T) {
	var l Log
	for i := range maxGroups + 10 {
		l.Add(failure(fmt.Sprintf("f%d (x.py:%d)", i, i)))
	}
	lines := l.Lines()
	require.Len(t, lines, maxLines+1)
	require.Contains(t, lines[0], "f0 (x.py:0)")
	require.Equal(t, "1005 more allocations failed elsewhere: see --jsonl-out", lines[maxLines])
}

// A process that fails all the time, each time elsewhere, hides no other one's failure.
func TestEachProcessHasItsFailure(t *testing.T) {
	var l Log
	for i := range 3 * maxGroups {
		l.Add(failure(fmt.Sprintf("f%d (x.py:%d)", i%maxGroups, i%maxGroups)))
	}
	other := failure("handler (server.py:9)")
	other.PID = 8
	l.Add(other)
	lines := l.Lines()
	require.Len(t, lines, maxLines+1)
	require.Contains(t, lines[0], "failed 3 times, last: python3[7]")
	require.Contains(t, lines[1], "python3[8] cuMemAlloc_v2 of 26.0 MiB at handler (server.py:9)")
	require.Contains(t, lines[2], "python3[7]")
	require.Equal(t, fmt.Sprintf("%d more allocations failed elsewhere: see --jsonl-out", 3*maxGroups+1-4*3-1), lines[maxLines])
}

// The totals, and what was requested of the driver before, show why a request failed.
func TestAPoolsTotalsSayWhyItRefused(t *testing.T) {
	require.Empty(t, Pool{}.why(1))
	pool := func(allocated uint64, refused string) Pool {
		return Pool{AllocatedBytes: allocated << 20, ReservedBytes: 1 << 30, Refused: refused, RefusedBytes: 20 << 20}
	}
	require.Equal(t, "PyTorch's pool uses 900 MiB of its 1.00 GiB, and the driver had no more", pool(900, "cuMemAlloc_v2").why(200<<20))
	cut := pool(400, "cuMemAlloc_v2").why(64 << 20)
	require.Contains(t, cut, "PyTorch's pool uses 400 MiB of its 1.00 GiB: the 624 MiB that it does not use are in pieces that are too small (fragmentation;")
	require.Contains(t, cut, "expandable segments or max_split_size_mb")

	// Expandable segments are not proposed to who has them.
	require.Equal(t, "PyTorch's pool uses 400 MiB of its 1.00 GiB: the 624 MiB that it does not use are in pieces that are too small,"+
		" though expandable segments are on, or kept for other streams or CUDA graphs", pool(400, "cuMemCreate").why(64<<20))
	require.Contains(t, pool(900, "cuMemCreate").why(200<<20), "and the driver had no more")

	// Another allocator, as torch_memory_saver, makes whole segments by it.
	other := pool(400, "cuMemCreate")
	other.RefusedBytes = 64 << 20
	require.Contains(t, other.why(64<<20), "in pieces that are too small (fragmentation; max_split_size_mb of PYTORCH_CUDA_ALLOC_CONF is made for that), or kept")
	other.RefusedBytes = 20 << 20 // the segment of a request of 1 to 10 MiB, or a piece
	require.Contains(t, other.why(5<<20), "in pieces that are too small, or kept")
	other.RefusedBytes = 2 << 20
	require.NotContains(t, other.why(1<<20), "expandable")

	limit := "and the driver was not seen to refuse: it may be the pool's own limit (set_per_process_memory_fraction)"
	require.Contains(t, pool(900, "").why(200<<20), limit)
	require.Contains(t, pool(400, "").why(64<<20), limit)
}

// Where it is known how the pool is cut up, only that is said, and fragmentation is to blame
// only where it alone has more than was requested.
func TestAPoolSaysWhatItDoesNotUseByWhy(t *testing.T) {
	const mib = 1 << 20
	pool := func(refused string, pieces, apart, kept uint64) string {
		return Pool{
			AllocatedBytes: 400 * mib, ReservedBytes: (400 + pieces + apart + kept) * mib, Refused: refused, RefusedBytes: 20 * mib,
			Unused: Unused{PiecesBytes: pieces * mib, ApartBytes: apart * mib, KeptBytes: kept * mib},
		}.why(64 * mib)
	}
	require.Equal(t, "PyTorch's pool uses 400 MiB of its 1000 MiB: 600 MiB are in pieces that are too small"+
		" (fragmentation; expandable segments or max_split_size_mb of PYTORCH_CUDA_ALLOC_CONF are made for that)", pool("cuMemAlloc_v2", 600, 0, 0))
	require.Equal(t, "PyTorch's pool uses 400 MiB of its 1000 MiB: 540 MiB are kept in segments without a tensor,"+
		" as CUDA graphs and other private pools do; 60.0 MiB are in pieces that are too small", pool("cuMemAlloc_v2", 60, 0, 540))
	require.Equal(t, "PyTorch's pool uses 400 MiB of its 1000 MiB: 500 MiB are in pieces that are large enough,"+
		" for another stream or of a private pool; 100 MiB are in pieces that are too small, though expandable segments are on", pool("cuMemCreate", 100, 500, 0))
	require.Contains(t, pool("cuMemAlloc_v2", 10, 0, 20), "and the driver had no more", "it would not have been enough")
}

// PyTorch keeps tensors of at most 1 MiB in segments of their own: gaps of others are not fragmentation.
func TestASmallTensorMayNotUseTheRoomOfLargerOnes(t *testing.T) {
	const mib = 1 << 20
	p := Pool{AllocatedBytes: 400 * mib, ReservedBytes: 1000 * mib, Refused: "cuMemAlloc_v2"}
	require.Equal(t, "PyTorch's pool uses 400 MiB of its 1000 MiB: the 600 MiB that it does not use are in segments for larger tensors,"+
		" in pieces that are too small, or kept for other streams or CUDA graphs", p.why(mib))
	p.Unused = Unused{PiecesBytes: 10 * mib, LargerBytes: 590 * mib}
	require.Equal(t, "PyTorch's pool uses 400 MiB of its 1000 MiB: 590 MiB are in segments for larger tensors, which small ones may not use;"+
		" 10.0 MiB are in pieces that are too small", p.why(mib))
}

func TestOfFailuresBehindEachOtherTheFirstKnowsWhy(t *testing.T) {
	var l Log
	f := failure("next_batch (x.py:1)")
	f.API, f.RequestedBytes = profile.PoolAPI, 1
	f.Pool = Pool{AllocatedBytes: 1 << 20, ReservedBytes: 9 << 20, Refused: "cuMemAlloc_v2", Unused: Unused{KeptBytes: 8 << 20}}
	l.Add(f)
	f.Pool.Unused = Unused{}
	l.Add(f)
	require.Contains(t, l.Lines()[0], "8.00 MiB are kept in segments")
	f.Pool.ReservedBytes += 1 << 20
	l.Add(f)
	require.NotContains(t, l.Lines()[0], "are kept in segments")
}

// asked is who refused, and what, on the way to a refusal of the pool.
type asked struct{ api, by string }

func TestWhatTheDriverRefusedBeforeIsOfTheSameProcess(t *testing.T) {
	r := refusals{}
	refuse := func(f Failure) asked {
		if before := r.before(&f); before != nil {
			return asked{before.API, before.By}
		}
		return asked{}
	}
	before := func(pid uint32, api, by string) asked {
		return refuse(Failure{PID: pid, API: api, By: by, Error: "CUDA_ERROR_OUT_OF_MEMORY"})
	}
	require.Empty(t, before(1, "cuMemCreate", "driver"))
	require.Empty(t, before(2, "torch", "torch"))
	require.Empty(t, before(2, "cuMemAlloc_v2", "libvgpu.so"))
	require.Equal(t, asked{"cuMemCreate", "driver"}, before(1, "torch", "torch"))
	require.Empty(t, before(1, "torch", "torch"), "that was of the failure before")
	require.Equal(t, asked{"cuMemAlloc_v2", "libvgpu.so"}, before(2, "torch", "torch"))

	refuse(Failure{PID: 1, API: "cuMemCreate", By: "driver", Error: "CUDA_ERROR_NOT_PERMITTED"})
	require.Empty(t, before(1, "torch", "torch"), "a GPU that lacks a feature does not lack memory")
	require.Empty(t, before(1, "cuMemAlloc_v2", "driver"))
	refuse(Failure{PID: 1, API: "cuMemCreate", By: "driver", Error: "CUDA_ERROR_NOT_PERMITTED"})
	require.Equal(t, asked{"cuMemAlloc_v2", "driver"}, before(1, "torch", "torch"))

	for pid := range uint32(3 * maxGroups) {
		before(pid, "cuMemAlloc_v2", "driver")
	}
	require.LessOrEqual(t, len(r), maxGroups)
}

// What the pool got at its next try has nothing to do with a limit of its own that it reaches later, or on another GPU.
func TestWhatTheDriverRefusedBeforeIsOfTheSameRequest(t *testing.T) {
	r := refusals{}
	refuse := func(api string, device int32, at time.Duration) bool {
		return r.before(&Failure{PID: 1, API: api, Device: device, At: uint64(at), Error: "CUDA_ERROR_OUT_OF_MEMORY"}) != nil
	}
	require.False(t, refuse("cuMemAlloc_v2", 0, time.Hour))
	require.False(t, refuse("torch", 1, time.Hour), "another GPU")
	require.True(t, refuse("torch", 0, time.Hour+time.Second))
	require.False(t, refuse("cuMemAlloc_v2", 0, 2*time.Hour))
	require.False(t, refuse("torch", 0, 3*time.Hour), "the pool had got its memory")
	require.False(t, refuse("cuMemAlloc_v2", profile.UnknownDevice, 4*time.Hour))
	require.True(t, refuse("torch", 0, 4*time.Hour), "the context was made before attach")

	pinned := Failure{PID: 1, API: "cuMemAllocHost_v2", Device: profile.UnknownDevice, IsHost: true, Error: "CUDA_ERROR_OUT_OF_MEMORY"}
	require.Nil(t, r.before(&pinned))
	require.False(t, refuse("torch", 0, 0), "the pool asks for no memory of the host")
}

// Programs find out what a GPU supports by allocations that fail, and after a kernel's error all of them do.
func TestWhatFailsForAnotherReasonIsSaidLastAndSo(t *testing.T) {
	var l Log
	f := failure("fabric (x.py:1)")
	f.API, f.Error = "cuMemCreate", "CUDA_ERROR_NOT_PERMITTED"
	l.Add(f)
	require.Equal(t, []string{"allocation failed, not for lack of memory: python3[7] cuMemCreate of 26.0 MiB at fabric (x.py:1): CUDA_ERROR_NOT_PERMITTED"}, l.Lines())
	l.Add(f)
	l.Add(failure("next_batch (x.py:2)"))
	require.Equal(t, []string{
		"allocation failed: python3[7] cuMemAlloc_v2 of 26.0 MiB at next_batch (x.py:2): CUDA_ERROR_OUT_OF_MEMORY; it held 15.0 GiB of what was allocated after ig-gpu attached: 4.00 GiB kv (a.py:1)",
		"allocation failed 2 times, not for lack of memory, last: python3[7] cuMemCreate of 26.0 MiB at fabric (x.py:1): CUDA_ERROR_NOT_PERMITTED",
	}, l.Lines())
}

func TestALibraryInFrontOfTheDriverIsNamed(t *testing.T) {
	var l Log
	f := failure("next_batch (x.py:1)")
	f.By = "libvgpu.so"
	l.Add(f)
	f.By = "driver"
	l.Add(f)
	require.Len(t, l.Lines(), 2, "they are two failures")
	require.Contains(t, l.Lines()[0], "CUDA_ERROR_OUT_OF_MEMORY by libvgpu.so, not by the driver; it held 15.0 GiB of what was allocated after ig-gpu attached")
	require.Contains(t, l.Lines()[1], "CUDA_ERROR_OUT_OF_MEMORY; it held 15.0 GiB of what was allocated after ig-gpu attached")

	pool := Pool{AllocatedBytes: 900 << 20, ReservedBytes: 1 << 30, Refused: "cuMemAlloc_v2", By: "libvgpu.so"}
	require.Equal(t, "PyTorch's pool uses 900 MiB of its 1.00 GiB, and the driver had no more by the limit of libvgpu.so", pool.why(200<<20))
}
