// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Memory that CUDA graphs keep of a private pool is in the driver's row of the line that
// captured them, without tensors in it, until the graphs are destroyed; an OOM meanwhile
// reports it.
func TestMemoryOfGraphsIsReservedButNotHeld(t *testing.T) {
	s := startServer(t, "graphs.py", "SIMCUDA_CAPACITY=1GiB")
	pid := s.PID()
	r := start(t, "--pid", fmt.Sprint(pid))
	r.waitTorch(s)
	captured := lineOf(t, "graphs.py", "capture.<locals>.<listcomp>", "held = [malloc")
	kept := func(device uint64) func([]row) bool {
		return func(rows []row) bool {
			kinds := map[string]uint64{}
			for _, x := range rows {
				if x.Frame == captured || strings.HasPrefix(x.Frame, "capture (") { // 3.12 has no frame for a comprehension
					kinds[x.Kind] += x.InuseBytes
				}
			}
			tensors, seen := kinds["tensor"]
			return seen && tensors == 0 && kinds["device"] == device
		}
	}
	s.Say("")
	s.Expect("out of memory")
	r.waitRows("what the graphs keep", pid, kept(6*96*mib))
	var event oom
	r.wait("the event", func() bool {
		for _, o := range r.ooms {
			if o.API == "torch" {
				event = o
			}
		}
		return event.API != ""
	})
	require.EqualValues(t, 500*mib, event.RequestedBytes)
	require.EqualValues(t, 1*mib, event.PoolAllocatedBytes)
	require.EqualValues(t, (2+6*96)*mib, event.PoolReservedBytes)
	require.Empty(t, event.Holders, "no tensor is held but the one from before attach")
	s.Say("")
	s.Expect("fits")
	r.waitRows("nothing is kept", pid, kept(0))
	code, _ := r.interrupt()
	require.Zero(t, code, r.errors())
	require.Empty(t, r.lost())
	require.EqualValues(t, 6*96*mib, event.PoolKeptBytes)
	require.EqualValues(t, 1*mib, event.PoolPiecesBytes, "beside the tensor from before attach")
	require.Zero(t, event.PoolApartBytes)
	require.Regexp(t, `PyTorch's pool uses 1\.00 MiB of its 578 MiB: 576 MiB are kept in segments without a tensor, as CUDA graphs`, r.errors())
	require.NotContains(t, r.errors(), "fragmentation")
	t.Log(r.errors())
}

// Without a pool of PyTorch's own, the tensors are the driver's rows of the same lines; that
// kind tensor is empty is explained.
func TestPyTorchWithoutAPoolIsReported(t *testing.T) {
	s := startServer(t, "serve.py", "PYTORCH_CUDA_ALLOC_CONF=backend:cudaMallocAsync")
	pid := s.PID()
	r := start(t, "--pid", fmt.Sprint(pid))
	r.waitTorch(s)
	s.request()
	frame := lineOf(t, "serve.py", "KVCache.append", "self.blocks[request] =")
	rows := r.waitRows("the cache", pid, func(rows []row) bool {
		var sum uint64
		for _, x := range rows {
			if x.Frame == frame && x.Kind == "pool" {
				sum += x.InuseBytes
			}
		}
		return sum == (26+14)<<20
	})
	for _, x := range rows {
		require.NotEqual(t, "tensor", x.Kind)
	}
	code, _ := r.interrupt()
	require.Zero(t, code, r.errors())
	require.Contains(t, r.errors(), fmt.Sprintf("torch: PyTorch of python3[%d] runs with backend:cudaMallocAsync: it has no pool of its own", pid))
}

// An allocator that replaces PyTorch's is reported once it has called the driver often
// enough, and never for a process whose pool reports.
func TestAnAllocatorThatReplacesPyTorchsIsReported(t *testing.T) {
	s := startServer(t, "testdata/replaced.py")
	pid := s.PID()
	r := start(t, "--pid", fmt.Sprint(pid))
	r.waitTorch(s)
	calls := func(objects uint64) {
		t.Helper()
		r.waitRows("its tensors", pid, func(rows []row) bool {
			var n uint64
			for _, x := range rows {
				n += x.InuseObjects
			}
			return n == objects
		})
	}
	said := func() bool { return strings.Contains(r.errors(), "has reported no tensor") }
	for range 3 {
		s.request()
	}
	calls(30)
	require.Never(t, said, 3*time.Second, 100*time.Millisecond, "these are too few to judge")
	s.request()
	calls(40)
	require.Eventually(t, said, 20*time.Second, 100*time.Millisecond)
	require.Contains(t, r.errors(), fmt.Sprintf("torch: PyTorch of python3[%d] has reported no tensor during 40 allocations from the driver", pid))
	code, _ := r.interrupt()
	require.Zero(t, code, r.errors())

	s = startServer(t, "serve.py")
	r = start(t, "--pid", fmt.Sprint(s.PID()))
	r.waitTorch(s)
	for range 40 {
		s.request()
	}
	r.waitRows("its tensors", s.PID(), func(rows []row) bool {
		var segments uint64
		for _, x := range rows {
			if x.Kind != "tensor" {
				segments += x.AllocObjects
			}
		}
		return segments > quietAfter
	})
	require.Never(t, said, 3*time.Second, 100*time.Millisecond)
	code, _ = r.interrupt()
	require.Zero(t, code, r.errors())
}

// quietAfter is that of package torch.
const quietAfter = 32

// How much of the unused memory a tensor could use: of a pool fragmented by sequences,
// nothing for a batch, and all for another short sequence; the same with expandable
// segments, where neighbouring pieces are merged.
func TestAPoolShowsTheLargestBlockThatFits(t *testing.T) {
	for _, c := range []struct {
		size, settings string
		fits           func(pool) bool
	}{
		{"64MiB", "", func(p pool) bool { return p.Fits == "0.0 %" && p.UsableBytes == 0 && p.LargestBytes == 4*mib }},
		{"4MiB", "", func(p pool) bool {
			return p.UsableBytes > 400*mib && p.UsableBytes <= p.CachedBytes && p.LargestBytes == 4*mib
		}},
		{"4MiB", "expandable_segments:True", func(p pool) bool { return p.UsableBytes > 400*mib && p.UsableBytes <= p.CachedBytes }},
		{"64MiB", "expandable_segments:True", func(p pool) bool { return p.Fits == "0.0 %" && p.UsableBytes == 0 && p.LargestBytes == 4*mib }},
	} {
		t.Run(c.size+" "+c.settings, func(t *testing.T) {
			s := startServer(t, "fragments.py", "SIMCUDA_CAPACITY=1GiB", "PYTORCH_CUDA_ALLOC_CONF="+c.settings)
			r := start(t, "--pid", fmt.Sprint(s.PID()), "--torch", "on", "--fits", c.size)
			r.waitTorch(s)
			s.Say("")
			s.Expect("out of memory")
			var last pool
			defer func() { t.Logf("%+v", last) }()
			r.wait("the pool", func() bool {
				for _, p := range r.pools {
					if last = p; p.CachedBytes > 400*mib && c.fits(p) {
						return true
					}
				}
				return false
			})
			code, _ := r.interrupt()
			require.Zero(t, code, r.errors())
		})
	}
	out, err := exec.Command(program(t), "run", "cuda_alloc", "--fits", "much", "--timeout", "1").CombinedOutput()
	require.Error(t, err)
	require.Contains(t, string(out), "--fits: want a size such as 64MiB")
}

func TestColumnsOfParametersAreInTheTables(t *testing.T) {
	out, err := exec.Command(program(t), "run", "cuda_alloc", "--host", "--older-than", "10m", "--fits", "1MiB",
		"--timeout", "2", "-o", "pools:columns").CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Regexp(t, `(?m)^COMM .* INUSE .* OLD *$`, string(out))
	require.Regexp(t, `(?m)^COMM .* UNUSED .* ?FITS .*RESERVED`, string(out))
}
