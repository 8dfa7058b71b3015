// SPDX-License-Identifier: Apache-2.0

package tracer

import (
	"testing"

	"github.com/cilium/ebpf"
	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/internal/process/procmaps"
)

func TestAPreloadedLibraryAloneIsNotFollowed(t *testing.T) {
	warned := ""
	tr, err := New(Config{
		Mode: Multi, Programs: Programs{EnterMulti: &ebpf.Program{}},
		Points: []Point{{Library: "libcuda", Symbol: "f"}, {Library: "libvgpu", Symbol: "f", Beside: true}},
		Warn:   func(text string) { warned = text },
	})
	require.NoError(t, err)
	preloaded, driver := procmaps.Mapping{Path: "/opt/libvgpu.so"}, procmaps.Mapping{Path: "/usr/lib/libcuda.so.1"}
	require.Empty(t, tr.withoutLone([]procmaps.Mapping{preloaded}))
	require.Empty(t, tr.withoutLone(nil))
	for _, all := range [][]procmaps.Mapping{{driver}, {preloaded, driver}, {driver, preloaded}} {
		require.Equal(t, all, tr.withoutLone(all))
	}
	tr.warnIfNothing()
	require.Contains(t, warned, "libcuda.so*")
	require.NotContains(t, warned, "libvgpu")
}
