// SPDX-License-Identifier: Apache-2.0

package devicetimes

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestTimesAreThoseOfTheJournal: each kernel of a launch and of a graph, by the line that
// launched it, to the nanosecond; reported while the thread is in the driver's function,
// and after it. Nothing is reported without a listener, and there is none after we have
// detached.
func TestTimesAreThoseOfTheJournal(t *testing.T) {
	for name, env := range map[string][]string{"driver": nil, "runtime": {"SIMCUPTI_RUNTIME=1"}} {
		t.Run(name, func(t *testing.T) {
			w := start(t, env)
			require.Zero(t, w.listeners())
			require.Empty(t, w.reported())
			r := w.trace("--device-times")
			a := r.wait(shimName, driverName)
			require.Equal(t, 2, a.Symbols)
			require.Contains(t, a.Note, "2 semaphores")
			w.step()
			require.Equal(t, 2, w.listeners(), "one for each probe")
			w.step()
			require.Equal(t, 2, w.listeners())
			all := w.reported()
			r.end()
			w.step()
			require.Zero(t, w.listeners(), "we have left")
			w.step()
			require.Zero(t, w.listeners())
			require.Equal(t, all, w.reported(), "there was no listener")

			want := truth(all, method)
			require.Len(t, want, 3+nodes)
			require.EqualValues(t, [2]int64{steps, steps * 1300}, want["gemm of Work.forward"])
			require.Equal(t, want, r.kernels("kernel"))
			require.Empty(t, r.kernels("unseen"))
			for _, reason := range []string{"launch_not_seen", "device_time_missing", "device_time_unknown", "event_lost", "argument_unreadable"} {
				require.Zero(t, r.drops[reason], reason)
			}
			for _, c := range r.calls {
				if c.Operation != "kernel" {
					require.Zero(t, c.DeviceNS)
					continue
				}
				require.Zero(t, c.HostNS)
				require.Zero(t, c.Device)
				var n int64
				for _, slot := range c.Time {
					n += slot
				}
				require.Equal(t, c.Calls, n)
			}
		})
	}
}

// TestOnRequestOnly: without the parameter the library is not attached to.
func TestOnRequestOnly(t *testing.T) {
	w := start(t, nil)
	require.Zero(t, w.listeners())
	r := w.trace()
	r.wait(driverName)
	w.step()
	require.Zero(t, w.listeners())
	w.step()
	require.Zero(t, w.listeners())
	r.end()
	require.Empty(t, w.reported())
	require.Empty(t, r.kernels("kernel"))
	for _, c := range r.calls {
		require.Zero(t, c.DeviceNS)
	}
}

// TestUnreportedKernelsAreCounted: the library passes on every third launch of a thread.
func TestUnreportedKernelsAreCounted(t *testing.T) {
	w := start(t, []string{"SIMCUPTI_EVERY=3"})
	w.listeners()
	r := w.trace("--device-times")
	r.wait(shimName, driverName)
	w.step()
	w.listeners()
	w.step()
	w.listeners()
	all := w.reported()
	r.end()
	require.Equal(t, truth(all, method), r.kernels("kernel"))
	correlations, last := 0, uint32(0)
	for _, n := range all {
		if n.What == "correlation" {
			correlations, last = correlations+1, n.Correlation
		}
	}
	require.Equal(t, 4*steps/3, correlations)
	// Not the first one: a thread without any report yet may never get one. Nor the
	// newest, which may still be reported.
	require.EqualValues(t, int(last)-5-1-correlations, r.drops["device_time_missing"])
}

// TestALaunchThatWasNotSeen: another tracer listened before us, and its kernels end now.
// They have rows of their own.
func TestALaunchThatWasNotSeen(t *testing.T) {
	w := start(t, []string{"SIMCUPTI_HOLD=1"}, "--listen")
	require.Equal(t, 2, w.listeners())
	r := w.trace("--device-times")
	r.wait(shimName, driverName)
	w.step()
	require.Equal(t, 4, w.listeners())
	w.step()
	require.Equal(t, 4, w.listeners())
	r.end()
	want := truth(w.reported(), method)
	early := "early of [launch not seen]"
	require.EqualValues(t, [2]int64{5, 5 * 1200}, want[early])
	require.Equal(t, map[string][2]int64{early: want[early]}, r.kernels("unseen"))
	require.EqualValues(t, 5, r.drops["launch_not_seen"])
	delete(want, early)
	require.Equal(t, want, r.kernels("kernel"))
	w.step()
	require.Equal(t, 2, w.listeners(), "the other one is still there")
}
