// SPDX-License-Identifier: Apache-2.0

package unwind

import (
	"runtime"
	"sync"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/test/support/bpftest"
)

// runOnCPU is BPF_F_TEST_RUN_ON_CPU of include/uapi/linux/bpf.h.
const runOnCPU = 1

// mostTurns is MOST_TURNS of testdata/seed.bpf.c.
const mostTurns = 1000000

// TestProcessorsHaveOneSeed: a stack has the same hash on every processor, from the first one on.
func TestProcessorsHaveOneSeed(t *testing.T) {
	bpftest.RequireRoot(t)
	if runtime.NumCPU() < 2 {
		t.Skip("one processor cannot choose twice at once")
	}
	for name, flags := range map[string][]string{
		"Linux 5.10": {"-mcpu=v2", "-DLINUX_5_10"},
		"newer":      {"-mcpu=v3"},
	} {
		t.Run(name, func(t *testing.T) {
			spec := bpftest.Spec(t, "testdata/seed.bpf.c", flags...)
			atOnce, chosen := 0, map[uint64]bool{}
			for range 300 {
				seeds, met := chooseTwice(t, spec)
				require.NotZero(t, seeds[0])
				require.Equal(t, seeds[0], seeds[1])
				chosen[seeds[0]] = true
				if met {
					atOnce++
				}
			}
			require.Len(t, chosen, 300, "each load has a seed of its own")
			t.Logf("%d times at once", atOnce)
			require.NotZero(t, atOnce)
		})
	}
}

// chooseTwice has two processors ask for the seed of a new collection, and reports whether the first
// waited for the second.
func chooseTwice(t *testing.T, spec *ebpf.CollectionSpec) (seeds [2]uint64, met bool) {
	t.Helper()
	c, err := ebpf.NewCollection(spec)
	require.NoError(t, err)
	defer c.Close()
	var wait sync.WaitGroup
	errs := make([]error, 2)
	for cpu := range errs {
		wait.Go(func() {
			_, errs[cpu] = c.Programs["seed_chosen"].Run(&ebpf.RunOptions{CPU: uint32(cpu), Flags: runOnCPU})
		})
	}
	wait.Wait()
	for _, err := range errs {
		require.NoError(t, err)
	}
	var waited uint64
	require.NoError(t, c.Variables["seeds"].Get(&seeds))
	require.NoError(t, c.Variables["waited"].Get(&waited))
	return seeds, waited < mostTurns
}
