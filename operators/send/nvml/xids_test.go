// SPDX-License-Identifier: Apache-2.0

//go:build cgo && nvml

package nvml

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock"
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
	require.Len(t, l.Processes(), 3)
	time.Sleep(50 * time.Millisecond) // a listener would be in Wait by now
	begin := time.Now()
	l.Close()
	require.Less(t, time.Since(begin), 200*time.Millisecond)
	require.Zero(t, waits.Load())

	for _, start := range []func(func() (Library, error)) func(){
		func(open func() (Library, error)) func() {
			s := NewSource(Config{Open: open, Processes: processes{}})
			ok, err := s.acquire()
			require.NoError(t, err)
			require.True(t, ok)
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
