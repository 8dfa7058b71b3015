// SPDX-License-Identifier: Apache-2.0

package backends

import (
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/gpu-gadgets/gpu-gadgets/test/support/loopback"
)

// TestPyroscopeHangs: the real server is stopped for longer than a request may take, with
// open connections and half-read requests, and then continues. Abandoned requests are
// sent again, and must not be stored twice.
func TestPyroscopeHangs(t *testing.T) {
	const hangs = 20 * time.Second
	p := startPyroscope(t)
	stats, err := ebpf.EnableStats(unix.BPF_STATS_RUN_TIME)
	require.NoError(t, err)
	defer stats.Close()
	w := startExample(t, "--devices", "1", "--leak", "--seconds", "45", "--step-ms", "10", "--layers", "8", "--hold", "600")
	listen := loopback.FreeAddress(t)
	g := trace(t, "cuda_alloc", w.PID(), "--pyroscope-url", p.URL, "--export-interval", "1s", "--cluster", "hangs",
		"--metrics-listen", listen, "--metrics-nvml", "off")
	w.Say("go")
	time.Sleep(3 * time.Second)
	watch := startWatch(t, g)
	look := func(d time.Duration) (float64, int64) {
		end := time.Now().Add(d)
		return watch.until(t, func() bool { return !time.Now().Before(end) })
	}
	before, rss := look(0)

	require.NoError(t, p.cmd.Process.Signal(unix.SIGSTOP))
	during, most := look(hangs)
	waiting := scrape(t, listen, "pyroscope")
	require.NoError(t, p.cmd.Process.Signal(unix.SIGCONT))
	require.Greater(t, waiting["queue"], int64(hangs.Seconds())/2, "what cannot be sent waits")
	require.Positive(t, waiting["retries_total"], "a request was given up")
	after, _ := look(0)

	w.summaries(t, 1)
	require.Eventually(t, func() bool { return scrape(t, listen, "pyroscope")["queue"] == 0 }, 90*time.Second, time.Second)
	time.Sleep(3 * time.Second) // the last rows are read: this test is not about the end of a run
	rows := w.truth(t)
	counts := scrape(t, listen, "pyroscope")
	g.end(t)
	require.Zero(t, counts["lost_total"])
	require.Contains(t, g.stderr.String(), "Pyroscope did not accept data, which is kept and retried")
	p.require(t, `{cluster="hangs"}`, rows, columns(false)[:2], false)
	t.Logf("ns per pair %.0f, then %.0f, then %.0f; RSS at most %d MiB, then %d; %v", before, during, after, rss/mib, most/mib, waiting)
	require.Positive(t, during)
	require.Less(t, during, max(before, after)*1.3)
	require.Less(t, most, rss+waiting["queue_size_bytes"]*2+32*mib)
}
