// SPDX-License-Identifier: Apache-2.0

// Package nvml publishes the data of NVIDIA's management library about the GPUs of this
// machine, and reconciles it with the gadgets' rows: it divides the bytes that the driver
// counts for a process into those that stacks explain, the CUDA context and its modules,
// memory from before attach, and a rest (reconcile.go).
//
// AMD's GPUs are read from sysfs (amd.go), with the same names of metrics.
//
// libnvidia-ml is opened at run time. A machine without it, or without a GPU, is a normal
// case: it is logged once, and there are no such series until a scrape finds one.
//
// It needs cgo and the tag nvml. go-nvml leaves the library's functions undefined until
// it has opened the library, so the program must be linked with lazy binding
// (-extldflags=-Wl,-z,lazy, as the Makefile does); else it ends with "symbol lookup
// error" before main. A plain `go install` does not set that, and makes a program without
// NVML instead.
package nvml

import (
	"cmp"
	"errors"

	"go.opentelemetry.io/otel/attribute"
)

var (
	// ErrAbsent means that this machine has no libnvidia-ml, or no driver behind it.
	ErrAbsent = errors.New("no NVIDIA driver here")
	// ErrNotBuilt means that this program was built without the tag nvml, or without cgo.
	ErrNotBuilt = errors.New("ig-gpu was built without NVML (go build -tags nvml, see the Makefile)")
)

// Metric is one metric of a device. The names are those of OpenTelemetry's hardware
// conventions (hw.*) if they define them.
type Metric struct {
	Name, Unit, Description string
	// Sum: it only grows; else it is a level.
	Sum bool
	// symbols are the functions of the library that it needs: some are missing in
	// older libraries, and calling a missing one ends the process.
	symbols []string
}

// Metrics is the list of all, in the order of docs/reference/metrics.md.
func Metrics() []Metric { return append([]Metric(nil), table...) }

var (
	migSymbols     = []string{"nvmlDeviceGetMigMode", "nvmlDeviceGetMaxMigDeviceCount", "nvmlDeviceGetMigDeviceHandleByIndex"}
	processSymbols = []string{"nvmlDeviceGetComputeRunningProcesses", "nvmlDeviceGetGraphicsRunningProcesses"}
	mpsSymbols     = []string{"nvmlDeviceGetMPSComputeRunningProcesses"}
)

var table = []Metric{
	{Name: "hw.gpu.utilization", Unit: "1", Description: "Fraction of the last interval in which the GPU (hw.gpu.task general) or one of its engines was busy", symbols: []string{"nvmlDeviceGetUtilizationRates", "nvmlDeviceGetEncoderUtilization", "nvmlDeviceGetDecoderUtilization"}},
	{Name: "gpu.memory.busy", Unit: "1", Description: "Fraction of the last interval in which device memory was read or written", symbols: []string{"nvmlDeviceGetUtilizationRates"}},
	{Name: "hw.gpu.memory.limit", Unit: "By", Description: "Size of the device's memory", symbols: []string{"nvmlDeviceGetMemoryInfo"}},
	{Name: "hw.gpu.memory.usage", Unit: "By", Description: "Memory in use by all processes and the driver", symbols: []string{"nvmlDeviceGetMemoryInfo"}},
	{Name: "hw.gpu.memory.utilization", Unit: "1", Description: "Fraction of the device's memory in use", symbols: []string{"nvmlDeviceGetMemoryInfo"}},
	{Name: "hw.temperature", Unit: "Cel", Description: "Temperature by sensor (hw.sensor_location)", symbols: []string{"nvmlDeviceGetTemperature"}},
	{Name: "hw.temperature.limit", Unit: "Cel", Description: "Temperature at which the GPU slows down (high.degraded) or stops (high.critical)", symbols: []string{"nvmlDeviceGetTemperatureThreshold"}},
	{Name: "hw.power", Unit: "W", Description: "Power drawn by the board", symbols: []string{"nvmlDeviceGetPowerUsage"}},
	{Name: "gpu.power.limit", Unit: "W", Description: "Power limit of the board", symbols: []string{"nvmlDeviceGetEnforcedPowerLimit"}},
	{Name: "hw.energy", Unit: "J", Description: "Energy used since the driver was loaded", Sum: true, symbols: []string{"nvmlDeviceGetTotalEnergyConsumption"}},
	{Name: "gpu.clock", Unit: "Hz", Description: "Clock by type: sm, memory, graphics, video", symbols: []string{"nvmlDeviceGetClockInfo"}},
	{Name: "gpu.clock.limit", Unit: "Hz", Description: "Highest clock by type", symbols: []string{"nvmlDeviceGetMaxClockInfo"}},
	{Name: "gpu.throttled", Description: "1 while clocks are throttled for this reason, otherwise 0", symbols: []string{"nvmlDeviceGetCurrentClocksThrottleReasons"}},
	{Name: "hw.errors", Unit: "{error}", Description: "ECC errors since the driver was loaded, by error.type", Sum: true, symbols: []string{"nvmlDeviceGetTotalEccErrors"}},
	{Name: "gpu.memory.remapped_rows", Unit: "{row}", Description: "Memory rows replaced after errors of a type, or to be replaced (pending)", symbols: []string{"nvmlDeviceGetRemappedRows"}},
	{Name: "hw.gpu.io", Unit: "By", Description: "Bytes moved over PCIe", Sum: true, symbols: []string{"nvmlDeviceGetFieldValues"}},
	{Name: "gpu.pcie.replays", Unit: "{replay}", Description: "Retransmitted PCIe packets", Sum: true, symbols: []string{"nvmlDeviceGetPcieReplayCounter"}},
	{Name: "gpu.pcie.link.generation", Description: "PCIe generation now; lower than the card's when idle", symbols: []string{"nvmlDeviceGetCurrPcieLinkGeneration"}},
	{Name: "gpu.pcie.link.width", Unit: "{lane}", Description: "PCIe lanes in use", symbols: []string{"nvmlDeviceGetCurrPcieLinkWidth"}},
	{Name: "gpu.nvlink.links", Unit: "{link}", Description: "NVLinks by state: active, inactive", symbols: []string{"nvmlDeviceGetNvLinkState"}},
	{Name: "gpu.nvlink.io", Unit: "By", Description: "Payload moved over all NVLinks", Sum: true, symbols: []string{"nvmlDeviceGetFieldValues"}},
	{Name: "gpu.nvlink.errors", Unit: "{error}", Description: "Errors of all NVLinks, by error.type", Sum: true, symbols: []string{"nvmlDeviceGetNvLinkErrorCounter"}},
	{Name: "gpu.mig.instances", Unit: "{instance}", Description: "MIG devices; absent if MIG is off", symbols: migSymbols},
	{Name: "gpu.processes", Unit: "{process}", Description: "Processes with a context on the device", symbols: processSymbols},
	{Name: "gpu.xid_errors", Unit: "{error}", Description: "Xid errors since ig-gpu started, by code", Sum: true},
}

// throttleReasons are those that cost performance, which excludes an idle GPU and clocks
// set by the user. The bits are nvmlClocksThrottleReason… of nvml.h.
var throttleReasons = []struct {
	bit  uint64
	name string
}{
	{0x04, "sw_power_cap"},
	{0x08, "hw_slowdown"},
	{0x10, "sync_boost"},
	{0x20, "sw_thermal"},
	{0x40, "hw_thermal"},
	{0x80, "hw_power_brake"},
}

// Point is one value of the metric of that name.
type Point struct {
	Metric string
	Device Device
	Value  float64
	Labels []attribute.KeyValue
}

// Device is a GPU, or a MIG device of one: then Parent is the GPU's UUID.
type Device struct {
	UUID, Name, Parent string
	Index              int
	Vendor             string // empty: NVIDIA
}

func (d Device) labels() []attribute.KeyValue {
	return []attribute.KeyValue{
		attribute.String("hw.id", d.UUID), attribute.String("hw.name", d.Name),
		attribute.String("hw.parent", d.Parent), attribute.Int("gpu.index", d.Index),
		attribute.String("hw.vendor", cmp.Or(d.Vendor, "NVIDIA")),
	}
}

// ProcessMemory is the driver's count for a process on one device.
type ProcessMemory struct {
	Device Device
	PID    uint32
	Bytes  int64
}

// Reading is everything at one moment.
type Reading struct {
	Points    []Point
	Processes []ProcessMemory
}

// Library is an open libnvidia-ml. It is safe for concurrent use.
type Library interface {
	Read() Reading
	// Processes returns only that part of Read.
	Processes() []ProcessMemory
	// Close ends its use. Read must not be called afterwards.
	Close()
}

// listener is a library that counts Xid errors only after Listen: Close is quick without it.
type listener interface{ Listen() }

// listen counts Xid errors from now on, if the library can.
func listen(library Library) {
	if l, ok := library.(listener); ok {
		l.Listen()
	}
}
