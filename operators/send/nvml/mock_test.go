// SPDX-License-Identifier: Apache-2.0

//go:build cgo && nvml

package nvml

import (
	"context"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock/dgxa100"
	"github.com/stretchr/testify/require"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/gpu-gadgets/gpu-gadgets/internal/profile"
	"github.com/gpu-gadgets/gpu-gadgets/operators/send/metrics"
)

// machine is go-nvml's DGX A100 with answers for missing functions. Device 0 is busy; the
// others support nothing optional.
func machine(events chan nvml.EventData) *dgxa100.Server {
	server := dgxa100.New()
	server.LookupSymbolFunc = func(string) error { return nil }
	server.EventSetCreateFunc = func() (nvml.EventSet, nvml.Return) {
		return &mock.EventSet{
			FreeFunc: func() nvml.Return { return nvml.SUCCESS },
			WaitFunc: func(uint32) (nvml.EventData, nvml.Return) {
				select {
				case e := <-events:
					return e, nvml.SUCCESS
				case <-time.After(10 * time.Millisecond):
					return nvml.EventData{}, nvml.ERROR_TIMEOUT
				}
			},
		}, nvml.SUCCESS
	}
	for i, d := range server.Devices {
		fill(d.(*dgxa100.Device), i == 0)
	}
	return server
}

// fill sets every function that is read.
func fill(d *dgxa100.Device, busy bool) {
	code := nvml.ERROR_NOT_SUPPORTED
	if busy {
		code = nvml.SUCCESS
		d.MemoryInfo = nvml.Memory{Total: 40 << 30, Used: 10 << 30, Free: 30 << 30}
	}
	d.RegisterEventsFunc = func(uint64, nvml.EventSet) nvml.Return { return nvml.SUCCESS }
	d.GetUtilizationRatesFunc = func() (nvml.Utilization, nvml.Return) { return nvml.Utilization{Gpu: 87, Memory: 45}, code }
	d.GetEncoderUtilizationFunc = func() (uint32, uint32, nvml.Return) { return 5, 1, code }
	d.GetDecoderUtilizationFunc = func() (uint32, uint32, nvml.Return) { return 6, 1, code }
	d.GetTemperatureFunc = func(nvml.TemperatureSensors) (uint32, nvml.Return) { return 61, code }
	d.GetTemperatureThresholdFunc = func(t nvml.TemperatureThresholds) (uint32, nvml.Return) {
		return map[nvml.TemperatureThresholds]uint32{nvml.TEMPERATURE_THRESHOLD_SLOWDOWN: 89, nvml.TEMPERATURE_THRESHOLD_SHUTDOWN: 92}[t], code
	}
	d.GetPowerUsageFunc = func() (uint32, nvml.Return) { return 312500, code }
	d.GetEnforcedPowerLimitFunc = func() (uint32, nvml.Return) { return 400000, code }
	d.GetTotalEnergyConsumptionFunc = func() (uint64, nvml.Return) { return 5000, code }
	d.GetClockInfoFunc = func(c nvml.ClockType) (uint32, nvml.Return) { return 1000 + uint32(c), code }
	d.GetMaxClockInfoFunc = func(c nvml.ClockType) (uint32, nvml.Return) { return 1410, code }
	d.GetCurrentClocksThrottleReasonsFunc = func() (uint64, nvml.Return) {
		return nvml.ClocksThrottleReasonHwThermalSlowdown | nvml.ClocksThrottleReasonGpuIdle, code
	}
	d.GetTotalEccErrorsFunc = func(kind nvml.MemoryErrorType, _ nvml.EccCounterType) (uint64, nvml.Return) {
		return map[nvml.MemoryErrorType]uint64{nvml.MEMORY_ERROR_TYPE_CORRECTED: 3, nvml.MEMORY_ERROR_TYPE_UNCORRECTED: 1}[kind], code
	}
	d.GetRemappedRowsFunc = func() (int, int, bool, bool, nvml.Return) { return 2, 1, true, false, code }
	d.GetPcieReplayCounterFunc = func() (int, nvml.Return) { return 4, code }
	d.GetCurrPcieLinkGenerationFunc = func() (int, nvml.Return) { return 4, code }
	d.GetCurrPcieLinkWidthFunc = func() (int, nvml.Return) { return 16, code }
	d.GetNvLinkStateFunc = func(link int) (nvml.EnableState, nvml.Return) {
		if link >= 12 || !busy {
			return 0, nvml.ERROR_INVALID_ARGUMENT
		}
		if link == 11 {
			return nvml.FEATURE_DISABLED, nvml.SUCCESS
		}
		return nvml.FEATURE_ENABLED, nvml.SUCCESS
	}
	d.GetNvLinkErrorCounterFunc = func(link int, _ nvml.NvLinkErrorCounter) (uint64, nvml.Return) {
		if link >= 12 || !busy {
			return 0, nvml.ERROR_INVALID_ARGUMENT
		}
		return 1, nvml.SUCCESS
	}
	d.GetFieldValuesFunc = func(values []nvml.FieldValue) nvml.Return {
		v := &values[0]
		v.ValueType, v.NvmlReturn = uint32(nvml.VALUE_TYPE_UNSIGNED_LONG_LONG), uint32(code)
		binary.NativeEndian.PutUint64(v.Value[:], uint64(v.FieldId))
		if v.FieldId == nvml.FI_DEV_MEMORY_TEMP {
			v.ValueType = uint32(nvml.VALUE_TYPE_UNSIGNED_INT)
			binary.NativeEndian.PutUint32(v.Value[:], 70)
		}
		return nvml.SUCCESS
	}
	d.GetComputeRunningProcessesFunc = func() ([]nvml.ProcessInfo, nvml.Return) {
		if !busy {
			return nil, nvml.SUCCESS
		}
		return []nvml.ProcessInfo{{Pid: 10, UsedGpuMemory: 6 << 30}, {Pid: 20, UsedGpuMemory: 1<<64 - 1}}, nvml.SUCCESS
	}
	// Clients of MPS are in a list of their own, the server among the others.
	d.GetMPSComputeRunningProcessesFunc = func() ([]nvml.ProcessInfo, nvml.Return) {
		if !busy {
			return nil, nvml.ERROR_NOT_SUPPORTED
		}
		return []nvml.ProcessInfo{{Pid: 10, UsedGpuMemory: 6 << 30}, {Pid: 15, UsedGpuMemory: 2 << 30}}, nvml.SUCCESS
	}
	d.GetGraphicsRunningProcessesFunc = func() ([]nvml.ProcessInfo, nvml.Return) {
		if !busy {
			return nil, nvml.ERROR_NOT_SUPPORTED
		}
		return []nvml.ProcessInfo{{Pid: 10, UsedGpuMemory: 6 << 30}, {Pid: 30, UsedGpuMemory: 1 << 30}}, nvml.SUCCESS
	}
}

// lines are the points of a device, as text.
func lines(r Reading, of Device) (all []string) {
	for _, p := range r.Points {
		if p.Device != of {
			continue
		}
		line := fmt.Sprintf("%s %g", p.Metric, p.Value)
		for _, l := range p.Labels {
			line += " " + string(l.Key) + "=" + l.Value.String()
		}
		all = append(all, line)
	}
	return all
}

func TestEveryMetricIsRead(t *testing.T) {
	events := make(chan nvml.EventData, 1)
	server := machine(events)
	l, err := open(server)
	require.NoError(t, err)
	defer l.Close()
	l.Listen()
	events <- nvml.EventData{Device: server.Devices[0], EventType: nvml.EventTypeXidCriticalError, EventData: 79}
	require.Eventually(t, func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		return len(l.xids) > 0
	}, 30*time.Second, 10*time.Millisecond)

	r := l.Read()
	busy, idle := l.devices[0].about, l.devices[1].about
	require.Equal(t, "Mock NVIDIA A100-SXM4-40GB", busy.Name)
	require.Equal(t, []string{
		"hw.gpu.utilization 0.87 hw.gpu.task=general", "hw.gpu.utilization 0.05 hw.gpu.task=encoder", "hw.gpu.utilization 0.06 hw.gpu.task=decoder",
		"gpu.memory.busy 0.45",
		"hw.gpu.memory.limit 4.294967296e+10", "hw.gpu.memory.usage 1.073741824e+10", "hw.gpu.memory.utilization 0.25",
		"hw.temperature 61 hw.sensor_location=gpu", "hw.temperature 70 hw.sensor_location=memory",
		"hw.temperature.limit 89 hw.limit_type=high.degraded", "hw.temperature.limit 92 hw.limit_type=high.critical",
		"hw.power 312.5", "gpu.power.limit 400", "hw.energy 5",
		"gpu.clock 1.001e+09 type=sm", "gpu.clock 1.002e+09 type=memory", "gpu.clock 1e+09 type=graphics", "gpu.clock 1.003e+09 type=video",
		"gpu.clock.limit 1.41e+09 type=sm", "gpu.clock.limit 1.41e+09 type=memory", "gpu.clock.limit 1.41e+09 type=graphics", "gpu.clock.limit 1.41e+09 type=video",
		"gpu.throttled 0 reason=sw_power_cap", "gpu.throttled 0 reason=hw_slowdown", "gpu.throttled 0 reason=sync_boost",
		"gpu.throttled 0 reason=sw_thermal", "gpu.throttled 1 reason=hw_thermal", "gpu.throttled 0 reason=hw_power_brake",
		"hw.errors 3 error.type=corrected hw.type=gpu", "hw.errors 1 error.type=uncorrected hw.type=gpu",
		"gpu.memory.remapped_rows 2 cause=corrected", "gpu.memory.remapped_rows 1 cause=uncorrected", "gpu.memory.remapped_rows 1 cause=pending",
		"hw.gpu.io 197 network.io.direction=transmit", "hw.gpu.io 198 network.io.direction=receive",
		"gpu.pcie.replays 4", "gpu.pcie.link.generation 4", "gpu.pcie.link.width 16",
		"gpu.nvlink.links 11 state=active", "gpu.nvlink.links 1 state=inactive",
		"gpu.nvlink.io 141312 network.io.direction=transmit", "gpu.nvlink.io 142336 network.io.direction=receive",
		"gpu.nvlink.errors 12 error.type=replay", "gpu.nvlink.errors 12 error.type=recovery",
		"gpu.nvlink.errors 12 error.type=crc_flit", "gpu.nvlink.errors 12 error.type=crc_data",
		"gpu.processes 3 type=compute", "gpu.processes 1 type=graphics",
		"gpu.xid_errors 1 xid=79",
	}, lines(r, busy))
	require.Equal(t, []ProcessMemory{{busy, 10, 6 << 30}, {busy, 20, 0}, {busy, 15, 2 << 30}, {busy, 30, 1 << 30}}, r.Processes)
	require.Equal(t, []string{"hw.gpu.memory.limit 4.294967296e+10", "hw.gpu.memory.usage 0", "hw.gpu.memory.utilization 0", "gpu.processes 0 type=compute"},
		lines(r, idle), "what a device does not support is left out, not 0")

	named := map[string]bool{"gpu.mig.instances": true} // TestMIGDevicesHaveTheirOwnMemory
	for _, p := range r.Points {
		named[p.Metric] = true
	}
	for _, m := range table {
		require.True(t, named[m.Name], "%s is never read", m.Name)
	}
}

func TestMIGDevicesHaveTheirOwnMemory(t *testing.T) {
	server := machine(nil)
	gpu := server.Devices[0].(*dgxa100.Device)
	gpu.MigMode = nvml.DEVICE_MIG_ENABLE
	gpu.GetMaxMigDeviceCountFunc = func() (int, nvml.Return) { return 7, nvml.SUCCESS }
	gpu.GetMigDeviceHandleByIndexFunc = func(i int) (nvml.Device, nvml.Return) {
		if i != 0 && i != 2 {
			return nil, nvml.ERROR_NOT_FOUND
		}
		return &mock.Device{
			GetUUIDFunc: func() (string, nvml.Return) { return fmt.Sprintf("MIG-%d", i), nvml.SUCCESS },
			GetNameFunc: func() (string, nvml.Return) { return "MIG 1g.5gb", nvml.SUCCESS },
			GetMemoryInfoFunc: func() (nvml.Memory, nvml.Return) {
				return nvml.Memory{Total: 5 << 30, Used: 1 << 30}, nvml.SUCCESS
			},
		}, nvml.SUCCESS
	}
	l, err := open(server)
	require.NoError(t, err)
	defer l.Close()
	r := l.Read()
	about := Device{UUID: "MIG-2", Name: "MIG 1g.5gb", Parent: gpu.UUID}
	require.Equal(t, []string{"hw.gpu.memory.limit 5.36870912e+09", "hw.gpu.memory.usage 1.073741824e+09", "hw.gpu.memory.utilization 0.2"}, lines(r, about))
	require.True(t, slices.Contains(lines(r, l.devices[0].about), "gpu.mig.instances 2"))
}

func TestFunctionsMissingInAnOldLibraryAreNotCalled(t *testing.T) {
	server := machine(nil)
	server.LookupSymbolFunc = func(symbol string) error {
		if strings.Contains(symbol, "RemappedRows") || strings.Contains(symbol, "EventSet") || strings.Contains(symbol, "MPS") {
			return fmt.Errorf("undefined symbol: %s", symbol)
		}
		return nil
	}
	gpu := server.Devices[0].(*dgxa100.Device)
	gpu.GetRemappedRowsFunc = nil // the mock panics when called
	gpu.GetMPSComputeRunningProcessesFunc = nil
	server.EventSetCreateFunc = nil
	l, err := open(server)
	require.NoError(t, err)
	l.Listen()
	defer l.Close()
	require.NotEmpty(t, l.Read().Points)
}

func TestMachineWithoutADriverIsNormal(t *testing.T) {
	for _, code := range []nvml.Return{nvml.ERROR_LIBRARY_NOT_FOUND, nvml.ERROR_DRIVER_NOT_LOADED} {
		server := dgxa100.New()
		server.InitFunc = func() nvml.Return { return code }
		_, err := open(server)
		require.ErrorIs(t, err, ErrAbsent)
	}
	server := dgxa100.New()
	server.InitFunc = func() nvml.Return { return nvml.ERROR_NO_PERMISSION }
	_, err := open(server)
	require.Error(t, err)
	require.NotErrorIs(t, err, ErrAbsent)
}

func TestLibraryThatIsNotThere(t *testing.T) {
	_, err := Open("/nonexistent/libnvidia-ml.so.1")
	require.ErrorIs(t, err, ErrAbsent)
}

// processes simulates /proc.
type processes struct{}

func (processes) Process(pid uint32) profile.Process { return profile.Process{PID: pid, Comm: "Xorg"} }
func (processes) Start(uint32) time.Duration         { return time.Second }
func (processes) Now() time.Duration                 { return time.Hour }

func TestFramesAddUpToTheDriversBytes(t *testing.T) {
	f := NewFrames(func() (Library, error) { return open(machine(nil)) }, processes{})
	require.NoError(t, f.Start())
	defer f.Close()
	p := profile.Process{ID: 1, PID: 10, Comm: "python3"}
	ended := profile.Process{ID: 3, PID: 99}
	rows := []profile.Row{
		{Process: p, Kind: "device", Values: profile.Values{InuseBytes: 2 << 30}},
		{Process: p, Kind: "host", Values: profile.Values{InuseBytes: 1 << 30}},
		{Process: ended, Kind: "device"},
	}
	f.See(rows)
	rows[0].InuseBytes = 3 << 30 // the driver counts 6 GiB, so 1 GiB of older memory was freed
	f.See(rows)
	got := f.Rows()
	require.Len(t, got, 1, "the other processes of the GPU are none of this run's")
	require.Equal(t, p, got[0].Process)
	require.Equal(t, FrameBeforeAttach, got[0].Stack.Folded())
	require.Equal(t, int64(3<<30), got[0].InuseBytes)
	f.Close()

	f = NewFrames(func() (Library, error) { return nil, ErrAbsent }, processes{})
	require.ErrorIs(t, f.Start(), ErrAbsent)
}

func TestPublishedPartsAddUpToTheDriversBytes(t *testing.T) {
	server := machine(nil)
	opened, said := 0, []string(nil)
	store := &metrics.Store{}
	run := store.NewRun("cuda_alloc")
	p := profile.Process{ID: 1, PID: 10, Comm: "python3", Namespace: "ml", Pod: "llm-0", Container: "server"}
	row := func(kind string, bytes int64) profile.Row {
		return profile.Row{Process: p, Kind: kind, Values: profile.Values{AllocBytes: bytes, InuseBytes: bytes, InuseObjects: 1, AllocObjects: 1}}
	}
	run.Rows([]profile.Row{row("device", 1<<30), row("pool", 1<<30), row("host", 9<<30)}, func(profile.Process) bool { return false })
	s := NewSource(Config{
		Open:      func() (Library, error) { opened++; return open(server) },
		Rows:      store.Current,
		Processes: processes{}, Info: func(text string) { said = append(said, text) },
	})
	reader := sdkmetric.NewManualReader()
	provider := sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))
	stop, err := s.Instrument(provider.Meter("test"))
	require.NoError(t, err)
	second, err := s.Instrument(sdkmetric.NewMeterProvider(sdkmetric.WithReader(sdkmetric.NewManualReader())).Meter("test"))
	require.NoError(t, err)
	require.Equal(t, 1, opened)

	var data metricdata.ResourceMetrics
	require.NoError(t, reader.Collect(context.Background(), &data))
	values := map[string]float64{}
	for _, m := range data.ScopeMetrics[0].Metrics {
		if g, ok := m.Data.(metricdata.Gauge[float64]); ok {
			for _, point := range g.DataPoints {
				pid, _ := point.Attributes.Value("process.pid")
				part, _ := point.Attributes.Value("part")
				pod, _ := point.Attributes.Value("k8s.pod.name")
				values[strings.TrimSpace(fmt.Sprintf("%s %s %s %s", m.Name, pid.String(), pod.AsString(), part.AsString()))] = point.Value
			}
		}
	}
	for name, want := range map[string]float64{
		"gpu.process.memory.usage 10 llm-0": 6 << 30, "gpu.process.memory.usage 30": 1 << 30,
		"gpu.process.memory.parts 10 llm-0 stacks": 2 << 30, "gpu.process.memory.parts 10 llm-0 context": 0,
		"gpu.process.memory.parts 10 llm-0 before_attach": 4 << 30, "gpu.process.memory.parts 10 llm-0 unexplained": 0,
		"gpu.process.memory.parts 30  before_attach": 1 << 30,
	} {
		got, ok := values[name]
		require.True(t, ok, "%s of %v", name, values)
		require.Equal(t, want, got, name)
	}
	require.NotContains(t, values, "gpu.process.memory.usage 20", "the driver does not say")
	stop()
	second()
	require.Nil(t, s.library)

	s = NewSource(Config{Open: func() (Library, error) { return nil, ErrAbsent }, Processes: processes{},
		Info: func(text string) { said = append(said, text) }})
	for range 3 {
		stop, err = s.Instrument(provider.Meter("other"))
		require.NoError(t, err)
		stop()
	}
	require.Len(t, said, 1)
}

func TestUUIDsOfProcesses(t *testing.T) {
	server := machine(nil)
	// 20 has a context on the second GPU, too, and 40 on the last one only.
	for i, pids := range map[int][]uint32{1: {20}, 7: {40}} {
		server.Devices[i].(*dgxa100.Device).GetComputeRunningProcessesFunc = func() (all []nvml.ProcessInfo, _ nvml.Return) {
			for _, pid := range pids {
				all = append(all, nvml.ProcessInfo{Pid: pid, UsedGpuMemory: 1 << 30})
			}
			return all, nvml.SUCCESS
		}
	}
	u, err := NewUUIDs(func() (Library, error) { return open(server) }, nil)
	require.NoError(t, err)
	defer u.Close()
	uuid := func(device int) string {
		id, code := server.Devices[device].GetUUID()
		require.Equal(t, nvml.SUCCESS, code)
		require.NotEmpty(t, id)
		return id
	}
	require.NotEqual(t, uuid(0), uuid(7))
	for pid, want := range map[uint32]string{10: uuid(0), 30: uuid(0), 20: "", 40: uuid(7), 50: ""} {
		require.Equal(t, want, u.Of(profile.Process{ID: uint64(pid), PID: pid}), pid)
	}
}
