// SPDX-License-Identifier: Apache-2.0

package nvml

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/internal/profile"
)

// contexts is a library that lists these.
type contexts struct {
	list  []ProcessMemory
	reads int
	ended bool
}

func (c *contexts) Read() Reading { return Reading{Processes: c.Processes()} }
func (c *contexts) Close()        { c.ended = true }
func (c *contexts) Processes() []ProcessMemory {
	c.reads++
	return c.list
}

func TestGPUIsTheOneWithAContext(t *testing.T) {
	first, second := Device{UUID: "GPU-first"}, Device{UUID: "GPU-second", Index: 1}
	driver := &contexts{list: []ProcessMemory{{Device: second, PID: 10}, {Device: first, PID: 20}, {Device: second, PID: 20}, {Device: first, PID: 20}}}
	u, err := NewUUIDs(func() (Library, error) { return driver, nil }, nil)
	require.NoError(t, err)
	now := time.Unix(1_790_000_000, 0)
	u.now = func() time.Time { return now }
	one, several, none := profile.Process{ID: 1, PID: 10}, profile.Process{ID: 2, PID: 20}, profile.Process{ID: 3, PID: 30}
	for range 100 {
		require.Equal(t, "GPU-second", u.Of(one))
		require.Empty(t, u.Of(several), "nothing says which of them an ordinal is")
		require.Empty(t, u.Of(none))
	}
	require.Equal(t, 1, driver.reads, "not for each row")

	// The process ends, its last rows are still encoded, and its pid is used again.
	driver.list = nil
	now = now.Add(queryInterval)
	require.Equal(t, "GPU-second", u.Of(one))
	again := profile.Process{ID: 4, PID: 10}
	require.Empty(t, u.Of(again))
	driver.list = []ProcessMemory{{Device: first, PID: 10}}
	now = now.Add(queryInterval)
	require.Equal(t, "GPU-first", u.Of(again))
	require.Equal(t, 3, driver.reads)

	now = now.Add(remember + time.Second)
	require.Empty(t, u.Of(none))
	require.Len(t, u.known, 1, "an unused process is dropped")

	u.Close()
	require.True(t, driver.ended)
	require.Empty(t, u.Of(again))
	u.Close()
}

func TestGPUsOfAMDHaveTheirIDs(t *testing.T) {
	u, err := NewUUIDs(func() (Library, error) { return OpenAMD(sysfs(t, amdFiles), t.TempDir()) }, nil)
	require.NoError(t, err)
	defer u.Close()
	require.Equal(t, "8d9a6ff3b1c2e4f5", u.Of(profile.Process{ID: 1, PID: 815}), "it may use the second, and does not")
	require.Empty(t, u.Of(profile.Process{ID: 2, PID: 4711}), "on both")
}

func TestNoGPUIsAnError(t *testing.T) {
	_, err := NewUUIDs(func() (Library, error) { return nil, ErrAbsent }, nil)
	require.ErrorIs(t, err, ErrAbsent)
}
