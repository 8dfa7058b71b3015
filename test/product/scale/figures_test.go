// SPDX-License-Identifier: Apache-2.0

package scale

import (
	"io"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/test/support/loopback"
	"github.com/gpu-gadgets/gpu-gadgets/test/support/simranks/simnodes"
	"github.com/gpu-gadgets/gpu-gadgets/test/support/subject"
)

// TestFigures measures what docs/reference/scale.md says of one exporter, with profiles each ten
// seconds and a scrape each fifteen.
func TestFigures(t *testing.T) {
	if subject.Volume(0, 1) == 0 {
		t.Skip("measures, in make test-long only")
	}
	requireBuilt(t)
	nodes := nodesOr(t, 300)
	for name, args := range map[string][]string{"verdicts only": {"--rank-metrics=false"}, "each rank": nil,
		"first of four": {"--rank-metrics=false", "--shard", "0/4"}, "second of four": {"--shard", "1/4"}} {
		t.Run(name, func(t *testing.T) {
			f, err := simnodes.New(simnodes.Config{Seed: 1, Nodes: nodes, Jobs: nodes / 5, MaxRanks: 4096 * nodes / 1000, Fault: time.Hour})
			require.NoError(t, err)
			server, p, address := serve(t, f), startPyroscope(t), loopback.FreeAddress(t)
			p.isCounted = true
			e := start(t, server.Addresses, append(args, "--pyroscope-url", p.url, "--metrics-listen", address)...)
			time.Sleep(20 * time.Second) // all are connected to
			share := float64(nodes)
			if name == "first of four" || name == "second of four" {
				share /= 4
			}
			before, began, sent := e.taken(), time.Now(), p.sent()
			var scraped []byte
			for range 3 {
				time.Sleep(14 * time.Second)
				scraped = scrape(t, address)
			}
			received := value(t, address, "gpu_exporter_received_bytes_total")
			after, took, bytes := e.taken(), time.Since(began), p.sent()-sent
			all, err := loopback.Scrape(t, address)
			require.NoError(t, err)
			byName := map[string]int{}
			for i := range all {
				prefix, _, _ := strings.Cut(all[i].Name, "_")
				byName[prefix]++
			}
			t.Logf("%d nodes: %.2f processors, %d MiB (%d at most), %d files", nodes, float64(after.cpu-before.cpu)/float64(took), after.mb, after.resident, after.files)
			t.Logf("received: %.1f MiB per second; sent: %.1f MiB of profiles per day and node",
				received/(1<<20)/f.Now().Seconds(), float64(bytes)/took.Seconds()*86400/share/(1<<20))
			t.Logf("series: %v, %.1f per node; a scrape has %.1f MiB", byName, float64(len(all))/share, float64(len(scraped))/(1<<20))
			require.NotZero(t, bytes)
			require.Empty(t, e.verdicts())
			e.end()
		})
	}
}

// sent is how many bytes of profiles came so far.
func (p *pyroscope) sent() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.bytes
}

// value of a metric that has no labels.
func value(t *testing.T, address, name string) float64 {
	t.Helper()
	m := regexp.MustCompile(`(?m)^` + name + ` (\S+)$`).FindSubmatch(scrape(t, address))
	require.NotNil(t, m, "no metric %s", name)
	v, err := strconv.ParseFloat(string(m[1]), 64)
	require.NoError(t, err)
	return v
}

// scrape returns the metrics as text.
func scrape(t *testing.T, address string) []byte {
	t.Helper()
	response, err := http.Get("http://" + address + "/metrics")
	require.NoError(t, err)
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, response.StatusCode)
	return text
}
