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

func startLate(t *testing.T, o tracer.Options, text string, arguments ...string) *late {
	t.Helper()
	lib := simulated.DriverCopy(t)
	p := script(t, text, append([]string{lib}, arguments...)...)
	p.Expect("ready")
	return &late{t, tracer.Start(t, lib, o), p}
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
`)
		require.Equal(t, held{Inuse: 2 * granule}, l.step())
		require.Empty(t, l.Drops())
		require.Equal(t, held{}, l.step())
		require.Equal(t, map[string]uint64{"freed_before_attach": 1}, l.Drops(), "once for a call")
		require.Zero(t, l.Len("mappings_by_address"))
		l.end()
	})
}
