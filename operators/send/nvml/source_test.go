// SPDX-License-Identifier: Apache-2.0

//go:build cgo && nvml

package nvml

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/gpu-gadgets/gpu-gadgets/operators/send/metrics"
)

// absentDriver is one that may be loaded later, with Open's calls.
type absentDriver struct {
	loaded, hangs atomic.Bool
	opened        atomic.Int32
	end           chan struct{} // of calls that hang
	said          []string
}

func (d *absentDriver) source() *Source {
	return NewSource(Config{Open: func() (Library, error) {
		d.opened.Add(1)
		if d.hangs.Load() {
			<-d.end
		}
		if !d.loaded.Load() {
			return nil, ErrAbsent
		}
		return open(machine(nil))
	}, Rows: (&metrics.Store{}).Current, Processes: processes{}, Info: func(text string) { d.said = append(d.said, text) }})
}

// aMinutePasses, and the last attempt ends.
func aMinutePasses(t *testing.T, s *Source) {
	t.Helper()
	require.Eventually(t, func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.tried = s.tried.Add(-retryInterval)
		return !s.opening
	}, 30*time.Second, time.Millisecond)
}

// Nodes may get their driver after the daemon has started.
func TestDriverThatIsLoadedLater(t *testing.T) {
	d := &absentDriver{}
	s := d.source()
	reader := sdkmetric.NewManualReader()
	stop, err := s.Instrument(sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader)).Meter("test"))
	require.NoError(t, err)
	hasGPUs := func() bool {
		var data metricdata.ResourceMetrics
		return reader.Collect(t.Context(), &data) == nil && len(data.ScopeMetrics) > 0 && len(data.ScopeMetrics[0].Metrics) > 0
	}
	for range 10 {
		require.False(t, hasGPUs())
	}
	require.EqualValues(t, 1, d.opened.Load(), "at most once a minute")
	aMinutePasses(t, s)
	require.False(t, hasGPUs())
	require.Eventually(t, func() bool { return d.opened.Load() == 2 }, 30*time.Second, time.Millisecond)

	d.loaded.Store(true)
	aMinutePasses(t, s)
	require.Eventually(t, hasGPUs, 30*time.Second, time.Millisecond)
	require.EqualValues(t, 3, d.opened.Load())
	require.Len(t, d.said, 2)
	stop()
	require.Nil(t, s.library)
}

// A driver that takes long delays no scrape, and is closed if nothing uses it any more.
func TestDriverThatTakesLongDelaysNoScrape(t *testing.T) {
	d := &absentDriver{end: make(chan struct{})}
	s := d.source()
	stop, err := s.Instrument(sdkmetric.NewMeterProvider(sdkmetric.WithReader(sdkmetric.NewManualReader())).Meter("test"))
	require.NoError(t, err)
	d.hangs.Store(true)
	d.loaded.Store(true)
	aMinutePasses(t, s)
	for range 2 {
		reading, _ := s.read()
		require.Empty(t, reading.Points)
	}
	require.Eventually(t, func() bool { return d.opened.Load() == 2 }, 30*time.Second, time.Millisecond)
	stop()
	close(d.end)
	require.Eventually(t, func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return !s.opening
	}, 30*time.Second, time.Millisecond)
	require.Nil(t, s.library)
	require.Len(t, d.said, 1)
}
