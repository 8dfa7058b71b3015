// SPDX-License-Identifier: Apache-2.0

package collective

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestAGPUOfAProcessIsNamed: one process drives four GPUs as a mesh of two by two, and the last one is missing in its row and in
// its column. That its process waits for it is no cycle.
func TestAGPUOfAProcessIsNamed(t *testing.T) {
	for _, isKnown := range []bool{true, false} {
		a := analyzer(t)
		now := 1000 * second
		mesh := func(name string, hash uint64, device, number int, o Observation) Observation {
			o.Communicator, o.Rank, o.Device = Communicator{Hash: hash, Name: name, Size: 2}, number, device
			o.Process = Process{ID: 1, PID: 100}
			if !isKnown && device == 3 {
				o.Device = None
			}
			return o
		}
		missing := done(rank(1, 20, now-second, now))
		for n, name := range []string{"row", "column"} {
			observe(t, a,
				mesh(name, uint64(n+1), 2-n, 0, rank(0, 21, now, now+second)), mesh(name, uint64(n+1), 3, 1, missing),
				mesh("other "+name, uint64(n+3), 0, 0, done(rank(0, 20, now-second, now))), mesh("other "+name, uint64(n+3), n+1, 1, done(rank(1, 20, now-second, now))))
		}
		for _, s := range a.Ranks(now) {
			require.Equal(t, isKnown, s.Several)
			require.Equal(t, isKnown, strings.Contains(fmt.Sprint(s.Metrics(0)), "[device "))
		}
		events := a.Evaluate(now + 2*second)
		require.Len(t, events, 1)
		if !isKnown {
			require.Equal(t, Mismatch, events[0].Reason, "which GPU waits is not known")
			continue
		}
		require.Equal(t, Missing, events[0].Reason, events[0].String(now))
		require.Equal(t, 1, events[0].Missing[0].Rank)
		require.Len(t, events[0].Behind, 1)
	}
}

// TestAProcessWithSeveralGPUsIsOneCause: of JAX, each GPU of a process is in a communicator with those of other hosts. A process
// that stands in its data loader is missing in all of them, and is one verdict.
func TestAProcessWithSeveralGPUsIsOneCause(t *testing.T) {
	a := analyzer(t)
	now := 1000 * second
	for device := range 4 {
		of := func(process uint64, o Observation) Observation {
			o.Communicator, o.Device = Communicator{Hash: uint64(device + 1), Name: fmt.Sprint("gpu ", device), Size: 2}, device
			o.Process = Process{ID: process, PID: uint32(100 * process)}
			return o
		}
		observe(t, a, of(1, rank(0, 21, now, now+second)), of(2, done(rank(1, 20, now-second, now))))
	}
	events := a.Evaluate(now + 2*second)
	require.Len(t, events, 1)
	require.Equal(t, Missing, events[0].Reason)
	require.EqualValues(t, 2, events[0].Missing[0].Process.ID)
	require.Len(t, events[0].Behind, 3)
}
