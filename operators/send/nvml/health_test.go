// SPDX-License-Identifier: Apache-2.0

package nvml

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
)

// failing is a library whose answers a test sets.
type failing struct {
	points    []Point
	processes []ProcessMemory
	isClosed  bool
}

func (f *failing) Read() Reading              { return Reading{Points: f.points} }
func (f *failing) Processes() []ProcessMemory { return f.processes }
func (f *failing) Close()                     { f.isClosed = true }

func TestHealthSaysWhatBefellTheGPUOfAProcess(t *testing.T) {
	first, second := Device{UUID: "GPU-a", Index: 0}, Device{UUID: "GPU-b", Index: 3}
	xid := func(d Device, code string, n float64) Point {
		return Point{"gpu.xid_errors", d, n, []attribute.KeyValue{attribute.String("xid", code)}}
	}
	throttled := func(d Device, reason string, on float64) Point {
		return Point{"gpu.throttled", d, on, []attribute.KeyValue{attribute.String("reason", reason)}}
	}
	library := &failing{points: []Point{xid(first, "13", 1)}, processes: []ProcessMemory{{first, 10, 1}, {second, 20, 1}, {second, 30, 0}}}
	h, err := NewHealth(func() (Library, error) { return library, nil })
	require.NoError(t, err)
	now := time.Unix(1000, 0)
	h.now = func() time.Time { return now }
	require.Empty(t, h.Of(10), "it was counted before: when it was is not known")

	library.points = []Point{xid(first, "13", 1), xid(second, "43", 1), throttled(second, "hw_thermal", 1), throttled(second, "sw_power_cap", 1), throttled(first, "hw_thermal", 0)}
	h.read()
	now = now.Add(7 * time.Second)
	h.read()
	require.Empty(t, h.Of(10))
	require.Equal(t, []string{"Xid 43 on its GPU 3, 7s earlier", "its GPU 3 is throttled (hw_thermal for 7s)"}, h.Of(20))
	require.Equal(t, h.Of(20), h.Of(30))

	library.points[2].Value = 0
	now = now.Add(time.Minute)
	h.read()
	require.Equal(t, []string{"Xid 43 on its GPU 3, 1m7s earlier", "its GPU 3 is throttled (hw_thermal until 1m0s earlier)"}, h.Of(20))
	now = now.Add(healthKept)
	h.read()
	require.Empty(t, h.Of(20))
	h.Close()
	require.True(t, library.isClosed)

	_, err = NewHealth(func() (Library, error) { return nil, ErrAbsent })
	require.ErrorIs(t, err, ErrAbsent)
}
