// SPDX-License-Identifier: Apache-2.0

package exact

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/test/support/simulated"
	"github.com/gpu-gadgets/gpu-gadgets/test/support/tracer"
)

// The bytes of an array are those of its format: normalized integers of 8 and 16 bits, and compressed
// blocks of 4 × 4 texels. An array whose memory is mapped later has none of its own.
func TestArraysHaveTheBytesOfTheirFormat(t *testing.T) {
	t.Run("newest", func(t *testing.T) { requireArrays(t, tracer.Options{}) })
	t.Run("Linux 5.10", func(t *testing.T) {
		requireOldPrograms(t)
		requireArrays(t, tracer.Options{Linux510: true})
	})
}

func requireArrays(t *testing.T, o tracer.Options) {
	arrays := []struct {
		what string
		// width, height, depth, format, channels, flags, levels
		descriptor string
		bytes      uint64
	}{
		{"UNORM_INT8X4", "64, 32, 0, 0xc2, 4, 0, 0", 64 * 32 * 4},
		{"UNORM_INT16X1", "64, 32, 0, 0xc3, 1, 0, 0", 64 * 32 * 2},
		{"UNORM_INT16X2", "64, 32, 0, 0xc4, 2, 0, 0", 64 * 32 * 4},
		{"UNORM_INT16X4", "64, 32, 0, 0xc5, 4, 0, 0", 64 * 32 * 8},
		{"SNORM_INT8X1", "64, 32, 0, 0xc6, 1, 0, 0", 64 * 32},
		{"SNORM_INT8X4", "64, 32, 0, 0xc8, 4, 0, 0", 64 * 32 * 4},
		{"SNORM_INT16X1", "64, 32, 0, 0xc9, 1, 0, 0", 64 * 32 * 2},
		{"SNORM_INT16X4", "64, 32, 0, 0xcb, 4, 0, 0", 64 * 32 * 8},
		{"BC1_UNORM", "64, 32, 0, 0x91, 4, 0, 0", 16 * 8 * 8},
		{"BC1_UNORM_SRGB", "64, 32, 0, 0x92, 4, 0, 0", 16 * 8 * 8},
		{"BC3_UNORM", "64, 32, 0, 0x95, 4, 0, 0", 16 * 8 * 16},
		{"BC4_SNORM", "64, 32, 0, 0x98, 1, 0, 0", 16 * 8 * 8},
		{"BC5_UNORM", "64, 32, 0, 0x99, 2, 0, 0", 16 * 8 * 16},
		{"BC6H_SF16", "64, 32, 0, 0x9c, 3, 0, 0", 16 * 8 * 16},
		{"BC7_UNORM_SRGB", "64, 32, 0, 0x9e, 4, 0, 0", 16 * 8 * 16},
		{"blocks that are not full", "65, 33, 3, 0x91, 4, 1, 0", 17 * 9 * 3 * 8},
		{"blocks of all levels", "16, 16, 0, 0x9d, 4, 0, 5", (16 + 4 + 1 + 1 + 1) * 16},
		{"sparse", "1024, 1024, 0, 0x20, 4, 0x40, 0", 0},
		{"sparse, of levels", "1024, 1024, 0, 0x20, 4, 0x40, 3", 0},
		{"deferred mapping", "1024, 1024, 0, 0x20, 4, 0x80, 0", 0},
	}
	lib := simulated.DriverCopy(t)
	tr := tracer.Start(t, lib, o)
	arguments := []string{lib}
	for _, a := range arrays {
		arguments = append(arguments, a.descriptor)
	}
	p := script(t, `
class Array3D(ctypes.Structure):
    _fields_ = [(n, c_size_t) for n in "whd"] + [(n, ctypes.c_uint32) for n in ("format", "channels", "flags")]
cu("cuCtxSetCurrent", context)
step()
for text in sys.argv[2:]:
    *values, levels = (int(n, 0) for n in text.split(", "))
    d = Array3D(*values)
    if levels:
        cu("cuMipmappedArrayCreate", byref(p), byref(d), levels)
    else:
        cu("cuArray3DCreate_v2", byref(p), byref(d))
    step()
`, arguments...)
	p.Expect("ready")
	var before uint64
	for _, a := range arrays {
		p.Say("")
		p.Expect("ready")
		var bytes uint64
		for _, r := range tr.RowsOf(p.PID()) {
			if r.Kind == "array" {
				bytes += r.AllocBytes
			}
		}
		require.Equal(t, a.bytes, bytes-before, a.what)
		before = bytes
	}
	require.Empty(t, tr.Drops())
	p.Say("")
	p.End()
}
