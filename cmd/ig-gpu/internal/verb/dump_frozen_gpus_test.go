// SPDX-License-Identifier: Apache-2.0

package verb

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"

	"github.com/gpu-gadgets/gpu-gadgets/operators/send/nvml"
)

// gpus are two, of which process 7 uses both and 9 the second.
type gpus struct{ closed *bool }

func (g gpus) Close()                          { *g.closed = true }
func (g gpus) Processes() []nvml.ProcessMemory { return g.Read().Processes }
func (gpus) Read() nvml.Reading {
	first, second := nvml.Device{UUID: "GPU-a", Index: 0}, nvml.Device{UUID: "GPU-b", Index: 1}
	used := func(d nvml.Device, task string, part float64) nvml.Point {
		return nvml.Point{Metric: "hw.gpu.utilization", Device: d, Value: part, Labels: []attribute.KeyValue{attribute.String("hw.gpu.task", task)}}
	}
	return nvml.Reading{
		Points: []nvml.Point{
			used(second, "general", 0.04), used(first, "general", 0.964), used(first, "encoder", 0.5),
			{Metric: "hw.power", Device: first, Value: 300},
		},
		Processes: []nvml.ProcessMemory{{Device: first, PID: 7, Bytes: 1}, {Device: second, PID: 7, Bytes: 1}, {Device: second, PID: 9, Bytes: 1}},
	}
}

func TestAFrozenProcessHasTheLoadOfItsGPUs(t *testing.T) {
	all := []still{{PID: 7, Process: "python3", Motion: "frozen", Seconds: 10}, {PID: 9, Process: "python3", Motion: "runs", Seconds: 10}, {PID: 11, Process: "bash", Motion: "frozen", Seconds: 10}}
	closed := false
	var cfg Config
	cfg.Machine.OpenGPUs = func() (nvml.Library, error) { return gpus{&closed}, nil }
	addLoads(cfg, all)
	require.True(t, closed)
	require.Equal(t, [][]load{{{0, 96}, {1, 4}}, {{1, 4}}, nil}, [][]load{all[0].GPUs, all[1].GPUs, all[2].GPUs})
	text := describeStill(all)
	require.Contains(t, text, "Process 7 python3 is frozen: no line changed for 10s.\n  GPU 0 is busy (96 %), GPU 1 is idle (4 %)\n")
	require.Contains(t, text, "waits for a GPU by polling.\n  GPU 1 is idle (4 %)\n")
	require.Contains(t, text, "Process 11 bash is frozen: no line changed for 10s.\n")

	cfg.Machine.OpenGPUs = func() (nvml.Library, error) { return nil, errors.New("no driver") }
	all = all[:1]
	all[0].GPUs = nil
	addLoads(cfg, all)
	require.Nil(t, all[0].GPUs)
	require.NotContains(t, describeStill(all), "GPU")
}
