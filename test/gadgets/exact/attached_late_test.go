// SPDX-License-Identifier: Apache-2.0

package exact

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/test/support/simulated"
	"github.com/gpu-gadgets/gpu-gadgets/test/support/subject"
	"github.com/gpu-gadgets/gpu-gadgets/test/support/tracer"
)

// eachVariant runs a test with the programs of all kernels.
func eachVariant(t *testing.T, test func(*testing.T, tracer.Options)) {
	t.Run("newest", func(t *testing.T) { test(t, tracer.Options{}) })
	t.Run("Linux 5.10", func(t *testing.T) {
		requireOldPrograms(t)
		test(t, tracer.Options{Linux510: true})
	})
}

// late is a process that has begun when the gadget is attached to it, at its first step.
type late struct {
	t *testing.T
	*tracer.Tracer
	*subject.Process
}

// startLate starts a process for each text, and then the gadget.
func startLate(t *testing.T, o tracer.Options, texts ...string) (all []*late) {
	t.Helper()
	t.Setenv("SIMCUDA_DEVICES", "2")
	lib := simulated.DriverCopy(t)
	for _, text := range texts {
		p := script(t, text, lib)
		p.Expect("ready")
		all = append(all, &late{t, nil, p})
	}
	tr := tracer.Start(t, lib, o)
	for _, l := range all {
		l.Tracer = tr
	}
	return all
}

// held are bytes of a process: in use, and freed implicitly.
type held struct{ Inuse, Implicit uint64 }

// step lets the process make its next step, and returns the sums after it.
func (l *late) step() (sum held) {
	l.t.Helper()
	next(l.Process)
	for _, r := range l.RowsOf(l.PID()) {
		sum.Inuse += r.InuseBytes
		sum.Implicit += r.ImplicitBytes
	}
	return sum
}

func (l *late) end() {
	l.t.Helper()
	l.Say("")
	l.End()
}

// A range that is unmapped as a whole may begin with memory that was mapped before the attachment.
func TestUnmappingGoesOnBehindWhatWasMappedBefore(t *testing.T) {
	eachVariant(t, func(t *testing.T, o tracer.Options) {
		const granule = 2 << 20
		l := startLate(t, o, `
class Properties(ctypes.Structure):  # CUmemAllocationProp
    _fields_ = [(n, ctypes.c_uint32) for n in ("type", "handles", "location", "id")] + [("rest", c_uint64 * 2)]
properties, at, granule = Properties(1, 0, 1, 0), c_uint64(), 2 << 20
sizes = [3, 1, 2, 1]  # granules: the first and the third are made before
handles = [c_uint64() for n in sizes]
cu("cuMemAddressReserve", byref(at), c_size_t(sum(sizes) * granule), c_size_t(0), c_uint64(0), c_uint64(0))
def create(n):
    size = c_size_t(sizes[n] * granule)
    cu("cuMemCreate", byref(handles[n]), size, byref(properties), c_uint64(0))
    cu("cuMemMap", c_uint64(at.value + sum(sizes[:n]) * granule), size, c_size_t(0), handles[n], c_uint64(0))
create(0)
create(2)
step()
create(1)
create(3)
cu("cuMemRelease", handles[1])
cu("cuMemRelease", handles[3])
step()
cu("cuMemUnmap", at, c_size_t(sum(sizes) * granule))
step()
`)[0]
		require.Equal(t, held{Inuse: 2 * granule}, l.step())
		require.Empty(t, l.Drops())
		require.Equal(t, held{}, l.step())
		require.Equal(t, map[string]uint64{"freed_before_attach": 1}, l.Drops(), "once for a call")
		require.Zero(t, l.Len("mappings_by_address"))
		l.end()
	})
}

// queried is the beginning of a process that uses its primary context since before the attachment, and of
// which the device is then known. All of each kind is 4096 bytes. The pool it has from before, too.
const queried = `
device, pool = c_int(-1), c_uint64()
cu("cuDeviceGetMemPool", byref(pool), 0)
def allocate():
    cu("cuMemAlloc_v2", byref(p), c_size_t(4096))
    cu("cuMemAllocAsync", byref(p), c_size_t(4096), c_void_p(0))
    cu("cuMemAllocFromPoolAsync", byref(p), c_size_t(4096), pool, c_void_p(0))
    cu("cuMemAllocManaged", byref(p), c_size_t(4096), ctypes.c_uint32(1))
    cu("cuMemAllocHost_v2", byref(p), c_size_t(4096))
    d = (c_size_t * 3)(64, 64, 1 << 32 | 1)  # CUDA_ARRAY_DESCRIPTOR: of 8-bit integers
    cu("cuArrayCreate_v2", byref(p), d)
def create():
    properties = (c_uint64 * 4)(1, 1)  # CUmemAllocationProp: on device 0
    cu("cuMemCreate", byref(p), c_size_t(2 << 20), properties, c_uint64(0))
cu("cuCtxSetCurrent", context)
step()
cu("cuCtxGetDevice", byref(device))
allocate()
create()
step()
`

// What is allocated in a context that was made current before the attachment is freed with the primary
// context of its device.
func TestMemoryOfAContextFromBeforeIsFreedWithIt(t *testing.T) {
	const all, physical = 6 * 4096, 2 << 20
	requireEndings(t, []ending{
		{"reset", queried + `cu("cuDevicePrimaryCtxReset_v2", 0); step()`, all + physical, physical, 1},
		{"reset of another device", queried + `cu("cuDevicePrimaryCtxReset_v2", 1); step()`, all + physical, all + physical, 1},
		{"reset that fails", queried + `cu("cuDevicePrimaryCtxReset_v2", 4711, expected=101); step()`, all + physical, all + physical, 0},
		{"device not known", `
cu("cuCtxSetCurrent", context)
step()
cu("cuMemAlloc_v2", byref(p), c_size_t(4096))
step()
cu("cuDevicePrimaryCtxReset_v2", 0)
step()
`, 4096, 4096, 1},
		{"context of its own", `
cu("cuCtxCreate_v2", byref(context), 0, 0)
step()
cu("cuMemAlloc_v2", byref(p), c_size_t(4096))
step()
cu("cuCtxDestroy_v2", context)
step()
`, 4096, 4096, 1},
		{"context of its own, made since", `
step()
cu("cuCtxCreate_v2", byref(context), 0, 0)
cu("cuMemAlloc_v2", byref(p), c_size_t(4096))
step()
cu("cuCtxDestroy_v2", context)
step()
`, 4096, 0, 0},
		{"below another one", `
cu("cuDevicePrimaryCtxRetain", byref(p), 1)
cu("cuCtxSetCurrent", context)
cu("cuCtxPushCurrent_v2", p)
step()
device = c_int(-1)
cu("cuCtxGetDevice", byref(device))
cu("cuCtxPopCurrent_v2", byref(p))
cu("cuMemAlloc_v2", byref(p), c_size_t(4096))
step()
cu("cuDevicePrimaryCtxReset_v2", 1)
step()
`, 4096, 4096, 1},
	})
}

// A pool from before the attachment, as one that a program has since its start, is taken for one of the thread's device: that
// of another one is known once it is queried.
func TestAPoolFromBeforeIsOfTheThreadsDevice(t *testing.T) {
	const kept = 4096
	eachVariant(t, func(t *testing.T, o tracer.Options) {
		l := startLate(t, o, `
own, other, device = c_uint64(), c_uint64(), c_int(-1)
cu("cuDeviceGetDefaultMemPool", byref(own), 0)
cu("cuCtxSetCurrent", context)
def allocate(pool):
    cu("cuMemAllocFromPoolAsync", byref(p), c_size_t(4096), pool, c_void_p(0))
step()
allocate(own)
cu("cuCtxGetDevice", byref(device))
allocate(own)
step()
cu("cuMemGetDefaultMemPool", byref(other), (ctypes.c_uint32 * 2)(1, 1), 1)
allocate(other)
cu("cuMemGetMemPool", byref(other), (ctypes.c_uint32 * 2)(1, 1), 1)
allocate(other)
step()
`)[0]
		devices := func() map[int32]uint64 {
			next(l.Process)
			sums := map[int32]uint64{}
			for _, r := range l.RowsOf(l.PID()) {
				sums[r.Device] += r.InuseBytes
			}
			return sums
		}
		require.Equal(t, map[int32]uint64{-1: kept, 0: kept}, devices(), "the first one has its device requested")
		require.Equal(t, map[int32]uint64{-1: kept, 0: kept, 1: 2 * kept}, devices())
		l.end()
	})
}

// A context that was retained before the attachment has an unknown number of holders: none of them is the last one.
func TestAContextFromBeforeIsFreedByAResetOnly(t *testing.T) {
	const held = `
cu("cuDevicePrimaryCtxRetain", byref(context), 0)
step()
cu("cuCtxSetCurrent", context)
cu("cuMemAlloc_v2", byref(p), c_size_t(4096))
cu("cuDevicePrimaryCtxRetain", byref(context), 0)
cu("cuDevicePrimaryCtxRelease_v2", 0)
step()
`
	requireEndings(t, []ending{
		{"one of two holders", held + `
cu("cuDevicePrimaryCtxRelease_v2", 0)
cu("cuMemAlloc_v2", byref(p), c_size_t(4096))
cu("cuMemFree_v2", p)
step()
`, 4096, 4096, 1},
		{"both holders", held + `
cu("cuDevicePrimaryCtxRelease_v2", 0)
cu("cuDevicePrimaryCtxRelease_v2", 0)
step()
`, 4096, 4096, 2},
		{"a holder since then", held + `
cu("cuDevicePrimaryCtxRetain", byref(context), 0)
cu("cuDevicePrimaryCtxRelease_v2", 0)
step()
`, 4096, 4096, 0},
		{"not retained since", `
step()
cu("cuCtxSetCurrent", context)
cu("cuMemAlloc_v2", byref(p), c_size_t(4096))
step()
cu("cuDevicePrimaryCtxRelease_v2", 0)
step()
`, 4096, 4096, 1},
		{"a reset", held + `
cu("cuDevicePrimaryCtxRelease_v2", 0)
cu("cuDevicePrimaryCtxReset_v2", 0)
step()
`, 4096, 0, 2},
	})
}

// ending is the end of a context from before the attachment.
type ending struct {
	end, text string
	// before and after are the bytes in use around it.
	before, after uint64
	lost          uint64
}

// requireEndings runs a process for each.
func requireEndings(t *testing.T, cases []ending) {
	t.Helper()
	eachVariant(t, func(t *testing.T, o tracer.Options) {
		var texts []string
		for _, c := range cases {
			texts = append(texts, c.text)
		}
		var lost uint64
		for n, l := range startLate(t, o, texts...) {
			c := cases[n]
			require.Equal(t, held{Inuse: c.before}, l.step(), c.end)
			require.Equal(t, held{Inuse: c.after, Implicit: c.before - c.after}, l.step(), c.end)
			lost += c.lost
			require.Equal(t, lost, l.Drops()["context_before_attach"], c.end)
			l.end()
		}
	})
}
