// SPDX-License-Identifier: Apache-2.0

package unwind

import (
	"fmt"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/gpu-gadgets/gpu-gadgets/test/support/bpftest"
)

// TestVerifierCost keeps the unwinder cheap to load: three programs carry it.
func TestVerifierCost(t *testing.T) {
	bpftest.RequireRoot(t)
	spec := unwinder(t)
	for name := range spec.Programs {
		t.Run(name, func(t *testing.T) {
			one := spec.Copy()
			for other := range one.Programs {
				if other != name {
					delete(one.Programs, other)
				}
			}
			start := time.Now()
			coll := bpftest.LoadSpec(t, one)
			took := time.Since(start)
			info, err := coll.Programs[name].Info()
			if err != nil {
				t.Fatal(err)
			}
			verified, ok := info.VerifiedInstructions()
			if !ok {
				t.Skip("the kernel does not report the number of verified instructions (5.16+)")
			}
			t.Logf("%d instructions verified, loaded in %v", verified, took.Round(time.Millisecond))
			if verified > 100_000 {
				t.Errorf("%d instructions verified, want at most 100000", verified)
			}
		})
	}
}

// BenchmarkUnwind reports the time of the whole probe program per call, as the
// kernel measures it: unwinding, hashing the stack and looking it up. With depth=
// everything is cached.
func BenchmarkUnwind(b *testing.B) {
	bpftest.RequireRoot(b)
	spec := unwinder(b)
	stats, err := ebpf.EnableStats(uint32(unix.BPF_STATS_RUN_TIME))
	if err != nil {
		b.Fatal(err)
	}
	defer stats.Close()
	found, err := interpreters()
	if err != nil {
		b.Fatal(err)
	}
	for _, python := range found {
		for _, program := range []string{"mark_sleepable", "mark_atomic"} {
			for _, c := range []struct {
				name, mode string
				samples    int
			}{
				{"depth=4", "measure", 4},
				{"depth=10", "measure", 10},
				{"depth=50", "measure", 50},
				{"depth=100", "measure", 100},
				{"first", "few", 1},  // an interpreter not seen before
				{"mix", "few", 5000}, // much of the code is created at each call
			} {
				b.Run(fmt.Sprintf("%s/%s/%s", python.name, program, c.name), func(b *testing.B) {
					p := attach(b, spec, program)
					for range b.N {
						p.run(b, python, c.mode, c.samples, 0)
					}
					stats, err := p.Programs[program].Stats()
					if err != nil {
						b.Fatal(err)
					}
					b.ReportMetric(0, "ns/op")
					b.ReportMetric(float64(stats.Runtime.Nanoseconds())/float64(stats.RunCount), "ns/stack")
				})
			}
		}
	}
}
