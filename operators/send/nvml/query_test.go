// SPDX-License-Identifier: Apache-2.0

package nvml

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/gpu-gadgets/gpu-gadgets/internal/profile"
	"github.com/gpu-gadgets/gpu-gadgets/operators/send/metrics"
)

// hung is a driver with one process, whose calls block from some time on.
type hung struct {
	blocks atomic.Bool
	end    chan struct{} // of the calls that block
	calls  atomic.Int32
	closed atomic.Bool
}

var busyGPU = Device{UUID: "GPU-a"}

func (h *hung) wait() {
	h.calls.Add(1)
	if h.blocks.Load() {
		<-h.end
	}
}

func (h *hung) Read() Reading {
	return Reading{Processes: h.Processes(), Points: []Point{{"hw.gpu.utilization", busyGPU, 0.5, []attribute.KeyValue{attribute.String("hw.gpu.task", "general")}}}}
}

func (h *hung) Processes() []ProcessMemory {
	h.wait()
	return []ProcessMemory{{busyGPU, 10, 1 << 30}}
}

func (h *hung) Close() {
	h.wait()
	h.closed.Store(true)
}

func (h *hung) open() (Library, error) { return h, nil }

// noProc is a /proc without processes.
type noProc struct{}

func (noProc) Process(pid uint32) profile.Process { return profile.Process{PID: pid} }
func (noProc) Start(uint32) time.Duration         { return 0 }
func (noProc) Now() time.Duration                 { return time.Hour }

// soon fails if f does not end: it would wait for ever for a driver that hangs.
func soon(t *testing.T, what string, f func()) {
	t.Helper()
	require.True(t, within(time.Minute, f), "%s waits for the driver", what)
}

func TestDriverThatHangsTakesNoOtherMetrics(t *testing.T) {
	synctest.Test(t, testDriverThatHangsTakesNoOtherMetrics)
}

func testDriverThatHangsTakesNoOtherMetrics(t *testing.T) {
	driver := &hung{end: make(chan struct{})}
	defer close(driver.end)
	var said []string
	s := NewSource(Config{Open: driver.open, Rows: (&metrics.Store{}).Current, Processes: noProc{}, Info: func(text string) { said = append(said, text) }})
	reader := sdkmetric.NewManualReader()
	meter := sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader)).Meter("test")
	stop, err := s.Instrument(meter)
	require.NoError(t, err)
	other, err := meter.Int64Counter("other")
	require.NoError(t, err)
	other.Add(t.Context(), 1)
	names := func() (all []string) {
		time.Sleep(fresh)
		soon(t, "a scrape", func() {
			var data metricdata.ResourceMetrics
			require.NoError(t, reader.Collect(t.Context(), &data))
			for _, m := range data.ScopeMetrics[0].Metrics {
				all = append(all, m.Name)
			}
		})
		return all
	}
	whole := names()
	require.Contains(t, whole, "hw.gpu.utilization")
	require.Contains(t, whole, processUsage)

	driver.blocks.Store(true)
	calls := driver.calls.Load()
	require.ElementsMatch(t, whole, names(), "those of the last reading")
	began := time.Now()
	for range 100 {
		names()
	}
	require.Equal(t, 100*fresh, time.Since(began), "only the first scrape waits")
	require.EqualValues(t, calls+1, driver.calls.Load(), "one call hangs, not one for each scrape")
	require.Empty(t, said)
	time.Sleep(stale)
	for range 3 {
		require.Equal(t, []string{"other"}, names(), "a reading of long ago says nothing of now")
	}
	require.Len(t, said, 1)
	require.Contains(t, said[0], "the GPUs' driver has not answered for 2m53s: there are no metrics of the GPUs themselves")

	driver.blocks.Store(false)
	driver.end <- struct{}{}
	require.Eventually(t, func() bool { return len(names()) == len(whole) }, time.Minute, time.Millisecond)
	require.Equal(t, "the GPUs' driver answers again", said[1])

	driver.blocks.Store(true)
	names()
	soon(t, "the end", stop)
	require.Nil(t, s.library)
	require.False(t, driver.closed.Load(), "not while a call is in progress")
}

func TestDriverThatHangsDelaysNoProfile(t *testing.T) {
	synctest.Test(t, testDriverThatHangsDelaysNoProfile)
}

func testDriverThatHangsDelaysNoProfile(t *testing.T) {
	driver := &hung{end: make(chan struct{})}
	defer close(driver.end)
	u, err := NewUUIDs(driver.open, nil)
	require.NoError(t, err)
	now := time.Unix(1_790_000_000, 0)
	u.now = func() time.Time { return now }
	known := profile.Process{ID: 1, PID: 10}
	require.Equal(t, "GPU-a", u.Of(known))
	driver.blocks.Store(true)
	for range 3 {
		now = now.Add(queryInterval)
		soon(t, "the encoder", func() { require.Equal(t, "GPU-a", u.Of(known)) })
	}
	soon(t, "the end", u.Close)
	require.Empty(t, u.Of(known))
}

func TestDriverThatHangsKeepsNoRunFromItsEnd(t *testing.T) {
	synctest.Test(t, testDriverThatHangsKeepsNoRunFromItsEnd)
}

func testDriverThatHangsKeepsNoRunFromItsEnd(t *testing.T) {
	driver := &hung{end: make(chan struct{})}
	defer close(driver.end)
	memory := Memory(driver.open)
	require.Equal(t, map[uint32]int64{10: 1 << 30}, memory())
	f := NewFrames(driver.open, noProc{})
	require.NoError(t, f.Start())
	h, err := NewHealth(driver.open)
	require.NoError(t, err)

	driver.blocks.Store(true)
	soon(t, "a list of idle holders", func() { require.Equal(t, map[uint32]int64{10: 1 << 30}, memory()) })
	soon(t, "a reading of rows", func() { f.See([]profile.Row{{Process: profile.Process{ID: 1, PID: 10}}}) })
	soon(t, "the end", f.Close)
	soon(t, "the end", h.Close)
	soon(t, "a start", func() {
		_, err = NewUUIDs(func() (Library, error) { driver.wait(); return driver, nil }, nil)
		require.ErrorIs(t, err, errSilent)
	})
}
