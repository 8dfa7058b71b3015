// SPDX-License-Identifier: Apache-2.0

package devicetimes

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/test/support/loopback"
)

// TestTimesAreInTheMetrics: how many kernels the GPU ran and for how long, as of the
// journal; and with launches sampled, too, which these are not.
func TestTimesAreInTheMetrics(t *testing.T) {
	for name, more := range map[string][]string{"each": nil, "sampled": {"--sample", "4"}} {
		t.Run(name, func(t *testing.T) {
			address := loopback.FreeAddress(t)
			w := start(t, nil)
			w.listeners()
			r := w.trace(append(more, "--device-times", "--metrics-listen", address)...)
			r.wait(shimName, driverName)
			w.step()
			w.listeners()
			w.step()
			w.listeners()
			var want [2]float64
			for _, sum := range truth(w.reported(), method) {
				want[0] += float64(sum[0])
				want[1] += float64(sum[1]) / 1e9
			}
			require.NotZero(t, want[0])
			metric := func(name string) float64 {
				sum, _ := loopback.Sum(t, address, name)
				return sum
			}
			require.Eventually(t, func() bool {
				return metric("gpu_kernels_total") == want[0] &&
					math.Abs(metric("gpu_kernels_time_seconds_total")-want[1]) < 1e-9
			}, waitLimit, 200*time.Millisecond, "%v", want)
			require.NotZero(t, metric("gpu_calls_total"))
			all, err := loopback.Scrape(t, address)
			require.NoError(t, err)
			for _, s := range all {
				require.False(t, s.Has(`operation="kernel"`), "a kernel is no call: %+v", s)
			}
			r.end()
		})
	}
}
