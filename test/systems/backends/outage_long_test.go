// SPDX-License-Identifier: Apache-2.0

package backends

import (
	"fmt"
	"net/http"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/gpu-gadgets/gpu-gadgets/test/support/compare"
	"github.com/gpu-gadgets/gpu-gadgets/test/support/loopback"
)

const mib = 1 << 20

// TestTwoMinutesWithoutPyroscope: one ig-gpu has room for the data that it cannot send,
// and loses nothing; the other, on a program with many more stacks, has not, and counts
// its losses. The cost of tracing for the inference server stays the same, and neither
// ig-gpu grows beyond its queue.
func TestTwoMinutesWithoutPyroscope(t *testing.T) {
	p := startPyroscope(t)
	before := startProxy(t, p.URL)
	stats, err := ebpf.EnableStats(unix.BPF_STATS_RUN_TIME)
	require.NoError(t, err)
	defer stats.Close()

	const away, normal, busy = 120 * time.Second, 15 * time.Second, 6 * time.Second
	seconds := (away + 2*normal + 2*busy + 20*time.Second).Seconds()
	w := startExample(t, "--devices", "1", "--seconds", fmt.Sprint(seconds), "--step-ms", "10", "--layers", "8", "--hold", "600")
	listen := [2]string{loopback.FreeAddress(t), loopback.FreeAddress(t)}
	large := trace(t, "cuda_alloc", w.PID(), "--pyroscope-url", before.URL, "--export-interval", "1s", "--cluster", "large",
		"--metrics-listen", listen[0], "--metrics-nvml", "off")
	random := startWorkload(t, "--calls", "40000")
	small := trace(t, "cuda_alloc", random.PID(), "--otlp-endpoint", before.URL, "--otlp-protocol", "http", "--export-interval", "1s",
		"--export-queue-size", "1MiB", "--cluster", "small", "--metrics-listen", listen[1], "--metrics-nvml", "off")
	w.Say("go")
	time.Sleep(5 * time.Second) // the model is loaded
	watches := [2]*watch{startWatch(t, large), startWatch(t, small)}
	look := func(d time.Duration) { lookAt(t, watches[:], d) }
	type cost struct {
		ns  float64
		rss [2]int64
	}
	part := func(name string) (c cost) {
		c.ns, c.rss[0] = watches[0].part(t)
		_, c.rss[1] = watches[1].part(t)
		t.Logf("%s: %.0f ns per pair, RSS at most %d and %d MiB, %v, %v", name, c.ns, c.rss[0]/mib, c.rss[1]/mib,
			scrape(t, listen[0], "pyroscope"), scrape(t, listen[1], "otlp"))
		return c
	}

	look(normal)
	first := part("before")
	for _, s := range []int32{http.StatusTooManyRequests, http.StatusServiceUnavailable} {
		refused := before.refused.Load()
		before.status.Store(s)
		look(busy)
		require.Greater(t, before.refused.Load(), refused)
	}
	before.status.Store(0)
	p.stop(t)
	random.Say("go")
	look(away)
	random.wait(t, "holding")
	during := part("while away")
	waiting := scrape(t, listen[0], "pyroscope")
	require.GreaterOrEqual(t, waiting["queue"], int64(away.Seconds())*9/10, "what cannot be sent waits")
	require.Zero(t, waiting["lost_total"])
	lost := scrape(t, listen[1], "otlp")
	require.Positive(t, lost["lost_total"], "beyond the limit it is lost, and counted")
	require.LessOrEqual(t, lost["queue_size_bytes"], int64(mib))
	p.start(t)
	// The longest wait is 45 s (queue.Config.MaxBackoff, with its jitter).
	for i, name := range []string{"pyroscope", "otlp"} {
		require.Eventually(t, func() bool { return scrape(t, listen[i], name)["queue"] <= 2 }, 90*time.Second, time.Second, name)
	}
	look(normal)
	after := part("after")

	w.summaries(t, 1)
	time.Sleep(3 * time.Second)
	rows := w.truth(t)
	large.end(t)
	require.Contains(t, large.stderr.String(), "Pyroscope did not accept data, which is kept and retried")
	p.require(t, `{cluster="large"}`, rows, columns(false)[:2], false)

	requireLossesAreReported(t, p, small, random, scrape(t, listen[1], "otlp")["lost_total"])

	require.Positive(t, during.ns)
	require.Less(t, during.ns, max(first.ns, after.ns)*1.3, "ns per pair while the server is away, beside %.0f and %.0f", first.ns, after.ns)
	// The queue, the item being encoded, and the garbage in between.
	require.Less(t, during.rss[0], first.rss[0]+waiting["queue_size_bytes"]*2+32*mib)
	// Most of this one is the program's rows and the names of its many stacks, which
	// began with the outage: about 100 MiB.
	require.Less(t, during.rss[1], first.rss[1]+160*mib)
}

// lookAt reads the costs of the runs each second.
func lookAt(t *testing.T, watches []*watch, d time.Duration) {
	t.Helper()
	for end := time.Now().Add(d); time.Now().Before(end); {
		time.Sleep(time.Second)
		for _, w := range watches {
			w.look(t)
		}
	}
}

// requireLossesAreReported ends a run whose queue was too small, and compares its report
// with what the server has. Until its next attempt it lost more.
func requireLossesAreReported(t *testing.T, p *pyroscope, small *gadget, random *workload, lost int64) {
	t.Helper()
	require.NoError(t, small.cmd.Process.Signal(unix.SIGINT))
	require.NoError(t, small.cmd.Wait())
	m := regexp.MustCompile(`the OTLP receiver did not get (\d+) of (\d+) requests \(.*\): queue full (\d+), refused 0, run ended 0`).
		FindStringSubmatch(small.stderr.String())
	require.NotNil(t, m, small.stderr.String())
	require.Equal(t, m[1], m[3])
	require.Equal(t, strconv.FormatInt(lost, 10), m[1])
	stored, all := sum(p.stored(t, columns(true)[0].id, `{k8s_cluster_name="small"}`)), compare.Total(random.truth(t)).AllocBytes
	require.Less(t, stored, all)
	// The oldest were dropped first, so the newest is complete: the memory in use.
	require.Positive(t, sum(p.stored(t, columns(true)[2].id, `{k8s_cluster_name="small"}`)))
	t.Logf("small queue: %d of %d bytes stored; %s", stored, all, m[0])
}
