// SPDX-License-Identifier: Apache-2.0

//go:build cgo && nvml

package nvml

import (
	"encoding/binary"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"go.opentelemetry.io/otel/attribute"
)

type value struct {
	value  float64
	labels []attribute.KeyValue
}

// readers are the metrics of a device by name. One that the device does not support gives
// no points.
var readers = map[string]func(nvml.Device) []value{
	"hw.gpu.utilization": func(d nvml.Device) (all []value) {
		if rates, code := d.GetUtilizationRates(); code == nvml.SUCCESS {
			all = append(all, labelled(float64(rates.Gpu)/100, "hw.gpu.task", "general"))
		}
		if percent, _, code := d.GetEncoderUtilization(); code == nvml.SUCCESS {
			all = append(all, labelled(float64(percent)/100, "hw.gpu.task", "encoder"))
		}
		if percent, _, code := d.GetDecoderUtilization(); code == nvml.SUCCESS {
			all = append(all, labelled(float64(percent)/100, "hw.gpu.task", "decoder"))
		}
		return all
	},
	"gpu.memory.busy": func(d nvml.Device) []value {
		rates, code := d.GetUtilizationRates()
		return one(float64(rates.Memory)/100, code)
	},
	"hw.gpu.memory.limit": func(d nvml.Device) []value {
		memory, code := d.GetMemoryInfo()
		return one(float64(memory.Total), code)
	},
	"hw.gpu.memory.usage": func(d nvml.Device) []value {
		memory, code := d.GetMemoryInfo()
		return one(float64(memory.Used), code)
	},
	"hw.gpu.memory.utilization": func(d nvml.Device) []value {
		memory, code := d.GetMemoryInfo()
		if memory.Total == 0 {
			return nil
		}
		return one(float64(memory.Used)/float64(memory.Total), code)
	},
	"hw.temperature": func(d nvml.Device) (all []value) {
		if t, code := d.GetTemperature(nvml.TEMPERATURE_GPU); code == nvml.SUCCESS {
			all = append(all, labelled(float64(t), "hw.sensor_location", "gpu"))
		}
		if t, ok := field(d, nvml.FI_DEV_MEMORY_TEMP, 0); ok && t > 0 {
			all = append(all, labelled(float64(t), "hw.sensor_location", "memory"))
		}
		return all
	},
	"hw.temperature.limit": func(d nvml.Device) (all []value) {
		for _, l := range []struct {
			threshold nvml.TemperatureThresholds
			name      string
		}{{nvml.TEMPERATURE_THRESHOLD_SLOWDOWN, "high.degraded"}, {nvml.TEMPERATURE_THRESHOLD_SHUTDOWN, "high.critical"}} {
			if t, code := d.GetTemperatureThreshold(l.threshold); code == nvml.SUCCESS {
				all = append(all, labelled(float64(t), "hw.limit_type", l.name))
			}
		}
		return all
	},
	"hw.power": func(d nvml.Device) []value {
		milliwatts, code := d.GetPowerUsage()
		return one(float64(milliwatts)/1000, code)
	},
	"gpu.power.limit": func(d nvml.Device) []value {
		milliwatts, code := d.GetEnforcedPowerLimit()
		return one(float64(milliwatts)/1000, code)
	},
	"hw.energy": func(d nvml.Device) []value {
		millijoules, code := d.GetTotalEnergyConsumption()
		return one(float64(millijoules)/1000, code)
	},
	"gpu.clock":       clocks(nvml.Device.GetClockInfo),
	"gpu.clock.limit": clocks(nvml.Device.GetMaxClockInfo),
	"gpu.throttled": func(d nvml.Device) (all []value) {
		mask, code := d.GetCurrentClocksThrottleReasons()
		if code != nvml.SUCCESS {
			return nil
		}
		for _, r := range throttleReasons {
			on := 0.0
			if mask&r.bit != 0 {
				on = 1
			}
			all = append(all, labelled(on, "reason", r.name))
		}
		return all
	},
	"hw.errors": func(d nvml.Device) (all []value) {
		for _, e := range []struct {
			kind nvml.MemoryErrorType
			name string
		}{{nvml.MEMORY_ERROR_TYPE_CORRECTED, "corrected"}, {nvml.MEMORY_ERROR_TYPE_UNCORRECTED, "uncorrected"}} {
			if n, code := d.GetTotalEccErrors(e.kind, nvml.VOLATILE_ECC); code == nvml.SUCCESS {
				v := labelled(float64(n), "error.type", e.name)
				v.labels = append(v.labels, attribute.String("hw.type", "gpu"))
				all = append(all, v)
			}
		}
		return all
	},
	"gpu.memory.remapped_rows": func(d nvml.Device) []value {
		corrected, uncorrected, pending, _, code := d.GetRemappedRows()
		if code != nvml.SUCCESS {
			return nil
		}
		waiting := 0.0
		if pending {
			waiting = 1
		}
		return []value{labelled(float64(corrected), "cause", "corrected"),
			labelled(float64(uncorrected), "cause", "uncorrected"), labelled(waiting, "cause", "pending")}
	},
	"hw.gpu.io": transfers(nvml.FI_DEV_PCIE_COUNT_TX_BYTES, nvml.FI_DEV_PCIE_COUNT_RX_BYTES, 0, 1),
	// All links (scope UINT_MAX), KiB.
	"gpu.nvlink.io": transfers(nvml.FI_DEV_NVLINK_THROUGHPUT_DATA_TX, nvml.FI_DEV_NVLINK_THROUGHPUT_DATA_RX, 1<<32-1, 1024),
	"gpu.pcie.replays": func(d nvml.Device) []value {
		n, code := d.GetPcieReplayCounter()
		return one(float64(n), code)
	},
	"gpu.pcie.link.generation": func(d nvml.Device) []value {
		n, code := d.GetCurrPcieLinkGeneration()
		return one(float64(n), code)
	},
	"gpu.pcie.link.width": func(d nvml.Device) []value {
		n, code := d.GetCurrPcieLinkWidth()
		return one(float64(n), code)
	},
	"gpu.nvlink.links": func(d nvml.Device) []value {
		var active, inactive float64
		for link := range nvml.NVLINK_MAX_LINKS {
			switch state, code := d.GetNvLinkState(link); {
			case code != nvml.SUCCESS:
			case state == nvml.FEATURE_ENABLED:
				active++
			default:
				inactive++
			}
		}
		if active+inactive == 0 {
			return nil
		}
		return []value{labelled(active, "state", "active"), labelled(inactive, "state", "inactive")}
	},
	"gpu.nvlink.errors": func(d nvml.Device) (all []value) {
		for _, e := range []struct {
			counter nvml.NvLinkErrorCounter
			name    string
		}{
			{nvml.NVLINK_ERROR_DL_REPLAY, "replay"}, {nvml.NVLINK_ERROR_DL_RECOVERY, "recovery"},
			{nvml.NVLINK_ERROR_DL_CRC_FLIT, "crc_flit"}, {nvml.NVLINK_ERROR_DL_CRC_DATA, "crc_data"},
		} {
			sum, known := 0.0, false
			for link := range nvml.NVLINK_MAX_LINKS {
				if n, code := d.GetNvLinkErrorCounter(link, e.counter); code == nvml.SUCCESS {
					sum, known = sum+float64(n), true
				}
			}
			if known {
				all = append(all, labelled(sum, "error.type", e.name))
			}
		}
		return all
	},
}

func labelled(v float64, key, name string) value {
	return value{v, []attribute.KeyValue{attribute.String(key, name)}}
}

func one(v float64, code nvml.Return) []value {
	if code != nvml.SUCCESS {
		return nil
	}
	return []value{{value: v}}
}

func clocks(get func(nvml.Device, nvml.ClockType) (uint32, nvml.Return)) func(nvml.Device) []value {
	return func(d nvml.Device) (all []value) {
		for _, c := range []struct {
			clock nvml.ClockType
			name  string
		}{{nvml.CLOCK_SM, "sm"}, {nvml.CLOCK_MEM, "memory"}, {nvml.CLOCK_GRAPHICS, "graphics"}, {nvml.CLOCK_VIDEO, "video"}} {
			if megahertz, code := get(d, c.clock); code == nvml.SUCCESS {
				all = append(all, labelled(float64(megahertz)*1e6, "type", c.name))
			}
		}
		return all
	}
}

func transfers(transmit, receive, scope uint32, unit float64) func(nvml.Device) []value {
	return func(d nvml.Device) (all []value) {
		if n, ok := field(d, transmit, scope); ok {
			all = append(all, labelled(float64(n)*unit, "network.io.direction", "transmit"))
		}
		if n, ok := field(d, receive, scope); ok {
			all = append(all, labelled(float64(n)*unit, "network.io.direction", "receive"))
		}
		return all
	}
}

// field reads one of NVML's numbered values, if it is an integer.
func field(d nvml.Device, id, scope uint32) (uint64, bool) {
	values := []nvml.FieldValue{{FieldId: id, ScopeId: scope}}
	if d.GetFieldValues(values) != nvml.SUCCESS || nvml.Return(values[0].NvmlReturn) != nvml.SUCCESS {
		return 0, false
	}
	v := values[0].Value[:]
	switch nvml.ValueType(values[0].ValueType) {
	case nvml.VALUE_TYPE_UNSIGNED_INT, nvml.VALUE_TYPE_SIGNED_INT:
		return uint64(binary.NativeEndian.Uint32(v)), true
	case nvml.VALUE_TYPE_UNSIGNED_LONG, nvml.VALUE_TYPE_UNSIGNED_LONG_LONG, nvml.VALUE_TYPE_SIGNED_LONG_LONG:
		return binary.NativeEndian.Uint64(v), true
	}
	return 0, false
}
