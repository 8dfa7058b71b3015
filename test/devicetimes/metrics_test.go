// SPDX-License-Identifier: Apache-2.0

package devicetimes

import (
	"bufio"
	"fmt"
	"math"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestTimesAreInTheMetrics: how many kernels the GPU ran and for how long, as of the
// journal; and with launches sampled, too, which these are not.
func TestTimesAreInTheMetrics(t *testing.T) {
	for name, more := range map[string][]string{"each": nil, "sampled": {"--sample", "4"}} {
		t.Run(name, func(t *testing.T) {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			require.NoError(t, err)
			address := l.Addr().String()
			require.NoError(t, l.Close())
			w := start(t, nil)
			w.listeners()
			r := w.trace(append(more, "--device-times", "--metrics-listen", address)...)
			r.wait(shimName, driverName)
			w.step()
			w.listeners()
			w.step()
			w.listeners()
			var want [2]float64
			for _, sum := range truth(w.told(), method) {
				want[0] += float64(sum[0])
				want[1] += float64(sum[1]) / 1e9
			}
			require.NotZero(t, want[0])
			require.Eventually(t, func() bool {
				return metric(t, address, "gpu_kernels_total{") == want[0] &&
					math.Abs(metric(t, address, "gpu_kernels_time_seconds_total{")-want[1]) < 1e-9
			}, patience, 200*time.Millisecond, "%v", want)
			require.NotZero(t, metric(t, address, "gpu_calls_total{"))
			for _, line := range lines(t, address) {
				require.NotContains(t, line, `operation="kernel"`, "a kernel is no call")
			}
			r.end()
		})
	}
}

func lines(t *testing.T, address string) (all []string) {
	t.Helper()
	answer, err := http.Get(fmt.Sprintf("http://%s/metrics", address))
	require.NoError(t, err)
	defer answer.Body.Close()
	in := bufio.NewScanner(answer.Body)
	for in.Scan() {
		all = append(all, in.Text())
	}
	require.NoError(t, in.Err())
	return all
}

// metric is the sum of its series.
func metric(t *testing.T, address, prefix string) (sum float64) {
	t.Helper()
	for _, line := range lines(t, address) {
		if strings.HasPrefix(line, prefix) {
			n, err := strconv.ParseFloat(line[strings.LastIndexByte(line, ' ')+1:], 64)
			require.NoError(t, err, line)
			sum += n
		}
	}
	return sum
}
