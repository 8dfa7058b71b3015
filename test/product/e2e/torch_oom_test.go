// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// Out of memory with half of it unused: the event names the holders of the other half,
// and reports that the pool is fragmented.
func TestAnOOMOfThePoolReportsFragmentation(t *testing.T) {
	s := startServer(t, "fragments.py", "SIMCUDA_CAPACITY=1GiB")
	r := start(t, "--pid", fmt.Sprint(s.PID()))
	r.waitTorch(s)
	s.Say("")
	s.Expect("out of memory")
	batch := lineOf(t, "fragments.py", "next_batch", "return malloc(0, 64")
	var event oom
	r.wait("the event", func() bool {
		for _, o := range r.ooms {
			if o.API == "torch" && o.Frame == batch {
				event = o
			}
		}
		return event.API != ""
	})
	require.EqualValues(t, 64<<20, event.RequestedBytes)
	require.Greater(t, event.PoolReservedBytes, uint64(900<<20))
	require.Greater(t, event.PoolReservedBytes-event.PoolAllocatedBytes, uint64(300<<20))
	require.Equal(t, event.PoolAllocatedBytes, event.InuseBytes+1<<20, "all tensors but the one from before attach")
	require.Contains(t, event.Holders, lineOf(t, "fragments.py", "cache_sequences", "pointer = malloc(0, size"))
	require.Equal(t, event.PoolReservedBytes-event.PoolAllocatedBytes, event.PoolPiecesBytes)
	require.Zero(t, event.PoolKeptBytes+event.PoolApartBytes)
	code, _ := r.interrupt()
	require.Zero(t, code, r.errors())
	require.Regexp(t, `torch of 64\.0 MiB on GPU 0 at next_batch .*fragments\.py:\d+\).*PyTorch's pool uses .* in pieces that are too small \(fragmentation`, r.errors())
	t.Log(r.errors())
}

// With expandable segments already on, the event does not propose them: here each piece
// of memory has a sequence in it, which expandable segments cannot help.
func TestAnOOMWithExpandableSegmentsDoesNotProposeThem(t *testing.T) {
	s := startServer(t, "fragments.py", "SIMCUDA_CAPACITY=1GiB", "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True")
	pid := s.PID()
	r := start(t, "--pid", fmt.Sprint(pid))
	r.waitTorch(s)
	s.Say("")
	s.Expect("out of memory")
	cache := lineOf(t, "fragments.py", "cache_sequences", "pointer = malloc(0, size")
	r.waitRows("both layers", pid, func(rows []row) bool {
		kinds := map[string]uint64{}
		for _, x := range rows {
			if x.Frame == cache {
				kinds[x.Kind] += x.InuseBytes
			}
		}
		// The pieces that the sequences needed, and the long ones that are left.
		return len(kinds) == 2 && kinds["vmm"] > 900<<20 && kinds["tensor"] > 500<<20 && kinds["tensor"] < kinds["vmm"]-300<<20
	})
	code, _ := r.interrupt()
	require.Zero(t, code, r.errors())
	require.Empty(t, r.lost())
	require.Regexp(t, `cuMemCreate of 20\.0 MiB on GPU 0 at next_batch`, r.errors())
	require.Regexp(t, `torch of 64\.0 MiB on GPU 0 at next_batch .* in pieces that are too small, though expandable segments are on`, r.errors())
	require.NotContains(t, r.errors(), "are made for that")
	t.Log(r.errors())
}
