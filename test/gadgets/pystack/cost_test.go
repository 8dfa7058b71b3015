// SPDX-License-Identifier: Apache-2.0

package pystack

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// BenchmarkSample measures the sampler's own time per stack, with warm caches:
// go test -run - -bench Sample ./test/gadgets/pystack
func BenchmarkSample(b *testing.B) {
	for _, python := range pythons(b) {
		for _, depth := range []int{10, 50} {
			b.Run(fmt.Sprintf("%s/depth=%d", filepath.Base(python), depth), func(b *testing.B) {
				w := start(b, python, "-c", fmt.Sprintf(`
import sys
def down(n):
    if n:
        return down(n - 1)
    print("ready", flush=True)
    while True:
        pass
down(%d)
`, depth-3))
				if !w.out.Scan() {
					b.Fatal("the workload said nothing")
				}
				stats, err := ebpf.EnableStats(uint32(unix.BPF_STATS_RUN_TIME))
				if err != nil {
					b.Fatal(err)
				}
				defer stats.Close()
				c := load(b, onCPU, w.Process.Pid)
				spent := func() (time.Duration, uint64, uint64) {
					s, err := c.Programs["sampler"].Stats()
					if err != nil {
						b.Fatal(err)
					}
					var samples uint64
					for _, r := range rows(b, c) {
						samples += r.Samples
					}
					return s.Runtime, s.RunCount, samples
				}
				// The cost of skipping a task: nothing is selected.
				if err := c.Maps["selected_by_tgid"].Delete(uint32(w.Process.Pid)); err != nil {
					b.Fatal(err)
				}
				stop := sample(b, c, 1999)
				time.Sleep(200 * time.Millisecond)
				ns, runs, _ := spent()
				out := float64(ns) / float64(runs)
				if err := c.Maps["selected_by_tgid"].Put(uint32(w.Process.Pid), uint32(1)); err != nil {
					b.Fatal(err)
				}
				time.Sleep(200 * time.Millisecond)
				ns0, runs0, samples0 := spent()
				for b.Loop() {
					time.Sleep(time.Second)
				}
				ns1, runs1, samples1 := spent()
				stop()
				samples := samples1 - samples0
				rest := float64(runs1-runs0-samples) * out
				b.ReportMetric((float64(ns1-ns0)-rest)/float64(samples), "ns/sample")
				b.ReportMetric(out, "ns/skipped")
				b.ReportMetric(float64(samples), "samples")
			})
		}
	}
}

// TestVerifierCost keeps the programs cheap to load; the verifier gives up at a
// million instructions, and other kernels count up to three times as many.
func TestVerifierCost(t *testing.T) {
	for name, mode := range map[string]uint32{"sampler": onCPU, "threads": dump} {
		info, err := load(t, mode, os.Getpid()).Programs[name].Info()
		if err != nil {
			t.Fatal(err)
		}
		verified, ok := info.VerifiedInstructions()
		if !ok {
			t.Skip("the kernel does not report the number of verified instructions (5.16+)")
		}
		t.Logf("%s: %d instructions verified", name, verified)
		if verified > 100_000 {
			t.Errorf("%s: %d instructions verified, want at most 100000", name, verified)
		}
	}
}
