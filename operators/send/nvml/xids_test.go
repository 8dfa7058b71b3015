// SPDX-License-Identifier: Apache-2.0

//go:build cgo && nvml

package nvml

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock/dgxa100"
	"github.com/stretchr/testify/require"
)

// A scrape that only wants the memory of processes must not wait for events.
func TestOnlyWhoCountsXidsWaitsForEvents(t *testing.T) {
	server := machine(nil)
	var waits atomic.Int32
	server.EventSetCreateFunc = func() (nvml.EventSet, nvml.Return) {
		return &mock.EventSet{
			FreeFunc: func() nvml.Return { return nvml.SUCCESS },
			WaitFunc: func(ms uint32) (nvml.EventData, nvml.Return) {
				waits.Add(1)
				time.Sleep(time.Duration(ms) * time.Millisecond)
				return nvml.EventData{}, nvml.ERROR_TIMEOUT
			},
		}, nvml.SUCCESS
	}
	l, err := open(server)
	require.NoError(t, err)
	require.Len(t, l.Processes(), 4)
	time.Sleep(50 * time.Millisecond) // a listener would be in Wait by now
	begin := time.Now()
	l.Close()
	require.Less(t, time.Since(begin), 200*time.Millisecond)
	require.Zero(t, waits.Load())

	for _, start := range []func(func() (Library, error)) func(){
		func(open func() (Library, error)) func() {
			s := NewSource(Config{Open: open, Processes: processes{}})
			s.acquire()
			return s.release
		},
		func(open func() (Library, error)) func() {
			h, err := NewHealth(open)
			require.NoError(t, err)
			return h.Close
		},
	} {
		waits.Store(0)
		stop := start(func() (Library, error) {
			l, err := open(server)
			return union{l}, err
		})
		require.Eventually(t, func() bool { return waits.Load() > 0 }, 30*time.Second, time.Millisecond)
		stop()
	}
}

// A GPU that has fallen off the bus no longer says its UUID.
func TestXidsOfLostGPUsAreCounted(t *testing.T) {
	events := make(chan nvml.EventData)
	server := machine(events)
	l, err := open(server)
	require.NoError(t, err)
	defer l.Close()
	lost := func() (string, nvml.Return) { return "", nvml.ERROR_GPU_IS_LOST }
	for _, i := range []int{2, 5} {
		server.Devices[i].(*dgxa100.Device).GetUUIDFunc = lost
	}
	other := func(uuid func() (string, nvml.Return)) nvml.Device { return &mock.Device{GetUUIDFunc: uuid} }
	l.Listen()
	for _, e := range []struct {
		device nvml.Device
		code   uint64
	}{
		{server.Devices[2], 79},
		{other(server.Devices[1].GetUUID), 31},
		{other(lost), 48},
		{other(func() (string, nvml.Return) { return "GPU-added-later", nvml.SUCCESS }), 13},
	} {
		events <- nvml.EventData{Device: e.device, EventType: nvml.EventTypeXidCriticalError, EventData: e.code}
	}
	events <- nvml.EventData{EventType: nvml.EventTypeXidCriticalError} // those before it are counted
	want := map[int]map[string]float64{1: {"31": 1}, 2: {"79": 1, "48": 1}, 5: {"48": 1}}
	for _, points := range [][]Point{l.Read().Points, l.Faults()} {
		got := map[int]map[string]float64{}
		for _, p := range points {
			if p.Metric == "gpu.xid_errors" {
				require.NotEmpty(t, p.Device.UUID, "as it was when the library was opened")
				if got[p.Device.Index] == nil {
					got[p.Device.Index] = map[string]float64{}
				}
				got[p.Device.Index][p.Labels[0].Value.AsString()] = p.Value
			}
		}
		require.Equal(t, want, got)
	}
}
