// SPDX-License-Identifier: Apache-2.0

package nvml

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/inspektor-gadget/inspektor-gadget/pkg/gpu-ebpf-bridge/maps"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/gpu-ebpf-bridge/nvml"
	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/test/support/bridge"
)

// gpus are a busy one, and one with few known values.
var gpus = bridge.GPUs{
	All: []nvml.DeviceSnapshot{
		{SmUtilPct: 87, MemUtilPct: 45, DecUtilPct: 5, MemTotal: 80 << 30, MemUsed: 19 << 30, MemReserved: 1 << 30,
			TempC: 61, PowerMw: 301500, SmClockMhz: 1410, MemClockMhz: 1593, ThrottleReasons: 0x20 | 0x1},
		{Index: 1, MemTotal: 80 << 30},
	},
	Processes: []nvml.ProcessSample{
		{Pid: 4711, TimestampNs: 1, UsedGpuMemory: 3 << 30},
		{Pid: 4711, DeviceIndex: 1, TimestampNs: 1, UsedGpuMemory: 1 << 30},
		{Pid: 815, TimestampNs: 1, UsedGpuMemory: 512 << 20},
	},
}

// Without NVML, the bridge provides GPUs and processes.
func TestBridge(t *testing.T) {
	pins, stop := bridge.Start(t, gpus)
	library, err := OpenBridge(pins)
	require.NoError(t, err)
	defer library.Close()
	require.Eventually(t, func() bool { return len(library.Read().Points) > 0 }, time.Minute, 10*time.Millisecond)

	r := library.Read()
	first, second := Device{}, Device{Index: 1}
	require.ElementsMatch(t, []ProcessMemory{{first, 4711, 3 << 30}, {second, 4711, 1 << 30}, {first, 815, 512 << 20}}, r.Processes)
	require.ElementsMatch(t, r.Processes, library.Processes())
	got := map[Device]map[string]float64{first: {}, second: {}}
	for _, p := range r.Points {
		name := p.Metric
		for _, label := range p.Labels {
			name += " " + label.Value.AsString()
		}
		got[p.Device][name] = p.Value
	}
	require.Equal(t, map[string]float64{
		"hw.gpu.utilization general": 0.87, "hw.gpu.utilization encoder": 0, "hw.gpu.utilization decoder": 0.05,
		"gpu.memory.busy": 0.45, "hw.gpu.memory.limit": 80 << 30, "hw.gpu.memory.usage": 20 << 30,
		"hw.gpu.memory.utilization": 0.25, "hw.temperature gpu": 61, "hw.power": 301.5,
		"gpu.clock sm": 1410e6, "gpu.clock memory": 1593e6, "gpu.throttled sw_thermal": 1,
		"gpu.throttled sw_power_cap": 0, "gpu.throttled hw_slowdown": 0, "gpu.throttled sync_boost": 0,
		"gpu.throttled hw_thermal": 0, "gpu.throttled hw_power_brake": 0, "gpu.processes": 2,
	}, got[first])
	require.Contains(t, got[second], "hw.gpu.utilization general", "an idle GPU")
	require.NotContains(t, got[second], "hw.temperature gpu", "what is not known is no zero")
	for name := range got[first] {
		metric, _, _ := strings.Cut(name, " ")
		require.Contains(t, metricNames(), metric, "docs/reference/metrics.md knows it")
	}

	// An ended bridge provides no more data, although its maps still exist.
	stop()
	at := library.(*pinned)
	now := at.now()
	at.now = func() time.Duration { return now + bridgeStale + time.Second }
	require.Empty(t, library.Read())
	require.Empty(t, library.Processes())
}

func metricNames() (all []string) {
	for _, m := range Metrics() {
		all = append(all, m.Name)
	}
	return all
}

// A container may have the host's maps below the host's root, or at their own place only,
// as Inspektor Gadget's has.
func TestThePinsOfTheHost(t *testing.T) {
	host := t.TempDir()
	require.Equal(t, "/sys/fs/bpf", BridgePins(host))
	pins := filepath.Join(host, "sys/fs/bpf")
	require.NoError(t, os.MkdirAll(pins, 0o700))
	require.Equal(t, "/sys/fs/bpf", BridgePins(host), "without maps")
	require.NoError(t, os.WriteFile(filepath.Join(pins, maps.MapNameMeta), nil, 0o600))
	require.Equal(t, pins, BridgePins(host))
	require.Equal(t, "/sys/fs/bpf", BridgePins("/"))
}

func TestNoBridge(t *testing.T) {
	_, err := OpenBridge(t.TempDir())
	require.ErrorIs(t, err, fs.ErrNotExist)
	// The first error is that of NVML.
	_, err = OpenAny("", t.TempDir())
	require.Error(t, err)
	require.NotErrorIs(t, err, fs.ErrNotExist)
}

// Other programs' files at that path are a clear error, not a panic.
func TestPinsOfOtherMaps(t *testing.T) {
	pins := t.TempDir()
	for _, name := range []string{maps.MapNameMeta, maps.MapNameDevice, maps.MapNamePerPidPerDevice} {
		require.NoError(t, os.WriteFile(filepath.Join(pins, name), []byte("?"), 0o600))
	}
	_, err := OpenBridge(pins)
	require.ErrorContains(t, err, "of Inspektor Gadget's bridge to the GPU")
}
