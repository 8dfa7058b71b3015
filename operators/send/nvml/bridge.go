// SPDX-License-Identifier: Apache-2.0

package nvml

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/gpu-ebpf-bridge/maps"
	"go.opentelemetry.io/otel/attribute"
)

// bridgeStale is the age at which the bridge's data is ignored. It writes ten times a
// second by default.
const bridgeStale = 10 * time.Second

// BridgePins returns the directory in which Inspektor Gadget's bridge to the GPU pins its
// maps: that of the host, whose file system is at root. Each mount of the file system of
// eBPF has pins of its own, and a container's /sys/fs/bpf may be another one than the
// host's. If there are no pins below root, it is /sys/fs/bpf here: Inspektor Gadget's own
// container has the host's there, and not below root.
func BridgePins(root string) string {
	pins := filepath.Join(root, maps.DefaultPinDir)
	if _, err := os.Stat(filepath.Join(pins, maps.MapNameMeta)); err != nil {
		return maps.DefaultPinDir
	}
	return pins
}

// OpenAny opens NVML at path or where the loader finds it. Without a path it falls back
// to the maps that Inspektor Gadget's GPU bridge has pinned in directory pins: a daemon
// whose container has no NVML may run next to a bridge that has. If there is neither, the
// error is NVML's.
func OpenAny(path, pins string) (Library, error) {
	library, err := Open(path)
	if path != "" || !errors.Is(err, ErrAbsent) && !errors.Is(err, ErrNotBuilt) {
		return library, err
	}
	bridge, bridgeErr := OpenBridge(pins)
	switch {
	case errors.Is(bridgeErr, fs.ErrNotExist):
		return nil, err
	case bridgeErr != nil:
		return nil, errors.Join(err, bridgeErr)
	}
	return bridge, nil
}

// pinned reads the maps of gpu-ebpf-bridge, as include/gadget/gpu_types.h of Inspektor
// Gadget v0.55.0 has them. They have no UUIDs and names of GPUs.
type pinned struct {
	meta, devices, processes *ebpf.Map
	now                      func() time.Duration
}

// OpenBridge opens the maps that the bridge has pinned in a directory, for reading. The
// error is fs.ErrNotExist if there are none.
func OpenBridge(pins string) (Library, error) {
	b := &pinned{now: ProcFS("").Now}
	for _, m := range []struct {
		name string
		to   **ebpf.Map
		size uint32 // of a value
	}{
		{maps.MapNameMeta, &b.meta, uint32(unsafe.Sizeof(maps.Meta{}))},
		{maps.MapNameDevice, &b.devices, uint32(unsafe.Sizeof(maps.DeviceMetrics{}))},
		{maps.MapNamePerPidPerDevice, &b.processes, uint32(unsafe.Sizeof(maps.PidMetrics{}))},
	} {
		path := filepath.Join(pins, m.name)
		if _, err := os.Stat(path); err != nil {
			b.Close()
			return nil, fmt.Errorf("open the maps of Inspektor Gadget's bridge to the GPU: %w", err)
		}
		opened, err := ebpf.LoadPinnedMap(path, &ebpf.LoadPinOptions{ReadOnly: true})
		if err != nil {
			b.Close()
			return nil, fmt.Errorf("open %s of Inspektor Gadget's bridge to the GPU: %w", path, err)
		}
		*m.to = opened
		if opened.ValueSize() != m.size {
			b.Close()
			return nil, fmt.Errorf("read %s of Inspektor Gadget's bridge to the GPU: a value has %d bytes, and %d in version %d, which this program knows",
				path, opened.ValueSize(), m.size, maps.SchemaVersion)
		}
	}
	return b, nil
}

// Close implements Library.
func (b *pinned) Close() {
	for _, m := range []*ebpf.Map{b.meta, b.devices, b.processes} {
		if m != nil {
			m.Close()
		}
	}
}

// count returns the number of GPUs; 0 if the bridge has ended, or has another version.
func (b *pinned) count() int {
	var meta maps.Meta
	if err := b.meta.Lookup(uint32(0), &meta); err != nil || meta.SchemaVersion != maps.SchemaVersion {
		return 0
	}
	if b.now()-time.Duration(meta.LastUpdateBoottimeNs) > bridgeStale {
		return 0
	}
	return int(min(meta.N_devices, maps.MaxDevices))
}

// Read implements Library. Unknown values are 0 in the bridge's maps, and omitted if 0 is
// not a valid value.
func (b *pinned) Read() Reading {
	n := b.count()
	r := Reading{Processes: b.processesOf(n)}
	for i := range n {
		var m maps.DeviceMetrics
		if err := b.devices.Lookup(uint32(i), &m); err != nil {
			continue
		}
		r.Points = append(r.Points, pointsOf(Device{Index: i}, &m)...)
		contexts := 0
		for _, p := range r.Processes {
			if p.Device.Index == i {
				contexts++
			}
		}
		r.Points = append(r.Points, Point{Metric: "gpu.processes", Device: Device{Index: i}, Value: float64(contexts)})
	}
	return r
}

// pointsOf returns a GPU's values under the names of table.
func pointsOf(d Device, m *maps.DeviceMetrics) (all []Point) {
	add := func(metric string, value float64, labels ...attribute.KeyValue) {
		all = append(all, Point{metric, d, value, labels})
	}
	positive := func(metric string, value float64, labels ...attribute.KeyValue) {
		if value > 0 {
			add(metric, value, labels...)
		}
	}
	task := func(name string) attribute.KeyValue { return attribute.String("hw.gpu.task", name) }
	add("hw.gpu.utilization", float64(m.SmUtilPct)/100, task("general"))
	add("hw.gpu.utilization", float64(m.EncUtilPct)/100, task("encoder"))
	add("hw.gpu.utilization", float64(m.DecUtilPct)/100, task("decoder"))
	add("gpu.memory.busy", float64(m.MemUtilPct)/100)
	if m.MemTotal > 0 {
		used := float64(m.MemUsed + m.MemReserved) // as NVML's first version counts
		add("hw.gpu.memory.limit", float64(m.MemTotal))
		add("hw.gpu.memory.usage", used)
		add("hw.gpu.memory.utilization", used/float64(m.MemTotal))
	}
	positive("hw.temperature", float64(m.TempC), attribute.String("hw.sensor_location", "gpu"))
	positive("hw.power", float64(m.PowerMw)/1000)
	positive("gpu.clock", float64(m.SmClockMhz)*1e6, attribute.String("type", "sm"))
	positive("gpu.clock", float64(m.MemClockMhz)*1e6, attribute.String("type", "memory"))
	for _, r := range throttleReasons {
		on := 0.0
		if m.ThrottleReasons&r.bit != 0 {
			on = 1
		}
		add("gpu.throttled", on, attribute.String("reason", r.name))
	}
	return all
}

// Processes implements Library.
func (b *pinned) Processes() []ProcessMemory { return b.processesOf(b.count()) }

func (b *pinned) processesOf(devices int) (all []ProcessMemory) {
	if devices == 0 {
		return nil
	}
	var key uint64
	var m maps.PidMetrics
	met := map[uint64]bool{} // while entries change, one may be read twice
	for entries := b.processes.Iterate(); entries.Next(&key, &m); {
		if met[key] {
			continue
		}
		met[key] = true
		pid, device := maps.SplitPerPidPerDeviceKey(key)
		all = append(all, ProcessMemory{Device{Index: int(device)}, pid, int64(m.UsedGpuMemory)})
	}
	return all
}
