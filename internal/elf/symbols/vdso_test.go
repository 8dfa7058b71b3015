// SPDX-License-Identifier: Apache-2.0

package symbols

import (
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/internal/elf/vdso"
	"github.com/gpu-gadgets/gpu-gadgets/internal/process/procmaps"
	"github.com/gpu-gadgets/gpu-gadgets/internal/stack"
)

// TestTheKernelsCodeHasTheSameNamesInEachProcess: it is at another address in each.
func TestTheKernelsCodeHasTheSameNamesInEachProcess(t *testing.T) {
	cmd := exec.Command("cat")
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { in.Close(); _ = cmd.Wait() })
	mappings := procmaps.NewCache(procmaps.Config{})
	r := NewResolver(mappings)
	var k kernels
	k.read()
	require.NotNil(t, k.table, "no functions in this kernel's vDSO")
	first := k.table.base

	var names, outside []string
	var starts []uint64
	for _, pid := range []uint32{uint32(os.Getpid()), uint32(cmd.Process.Pid)} {
		s, err := mappings.Snapshot(pid)
		require.NoError(t, err)
		for _, m := range s.Mappings {
			if m.Path != vdso.Path {
				continue
			}
			starts = append(starts, m.Start)
			var all []string
			for at := m.Start + first; at < m.End; at += 16 {
				f := r.Frame(uint64(pid), pid, at, true)
				require.Equal(t, stack.KindNative, f.Kind)
				require.Equal(t, vdso.Path, f.File)
				all = append(all, f.Function)
			}
			names = append(names, strings.Join(all, "\n"))
			outside = append(outside, r.Frame(uint64(pid), pid, m.Start+8, true).Function)
		}
	}
	require.Len(t, starts, 2)
	require.NotEqual(t, starts[0], starts[1], "addresses are not randomized here")
	require.Equal(t, names[0], names[1])
	require.Regexp(t, regexp.MustCompile(`(?m)^__(vdso|kernel)_clock_gettime$`), names[0])
	require.Equal(t, []string{"0x8", "0x8"}, outside, "the header is no function")
}

// That of a process of 32 bits is other code.
func TestOtherCodeOfTheKernelHasNoNames(t *testing.T) {
	image := vdso.Image()
	require.NotEmpty(t, image)
	var k kernels
	k.read()
	m := procmaps.Mapping{Start: 1 << 46, End: 1<<46 + uint64(len(image)), Path: vdso.Path}
	at := k.table.base
	require.NotRegexp(t, "^0x", k.named(m, m.Start+at, m.Start+at))
	short, low := m, m
	short.End -= 4096
	low.Start, low.End = 1<<20, 1<<20+uint64(len(image))
	for _, other := range []procmaps.Mapping{short, low} {
		require.Regexp(t, "^0x", k.named(other, other.Start+at, other.Start+at))
	}
}
