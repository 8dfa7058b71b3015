// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// What examples/torch/waste.py holds.
const (
	wasteEntries, wasteEntry   = 10000, 520 // requested, in blocks of 1,024
	wasteSegments, wasteBatch  = 12, 2*mib - 100
	wasteIndexSegments         = 5 // of 2 MiB
	wasteRequests, wasteUnseen = wasteEntries + 10*wasteSegments, 12 * mib
)

// wasted are a line's bytes of the pool.
type wasted struct{ inuse, requested, rounding, fragmented uint64 }

// wastedBy are the tensors' rows by line, without those that hold nothing.
func wastedBy(rows []row) map[string]wasted {
	found := map[string]wasted{}
	for _, x := range rows {
		if w := (wasted{x.InuseBytes, x.RequestedBytes, x.RoundingBytes, x.FragmentedBytes}); x.Kind == "tensor" && w != (wasted{}) {
			had := found[x.Frame]
			found[x.Frame] = wasted{had.inuse + w.inuse, had.requested + w.requested, had.rounding + w.rounding, had.fragmented + w.fragmented}
		}
	}
	return found
}

// waitRequests waits until the probe of requests is attached.
func (r *run) waitRequests() {
	r.t.Helper()
	r.wait("the probe of requests", func() bool { return r.hasRequests() })
}

func (r *run) hasRequests() bool {
	for _, a := range r.attachments {
		if strings.HasPrefix(filepath.Base(a.Path), "libc10_cuda.") && a.Status == "attached" {
			return true
		}
	}
	return false
}

func (r *run) lastPool() (last pool) {
	for _, p := range r.pools {
		last = p
	}
	return last
}

func requireX86(t *testing.T) {
	t.Helper()
	if runtime.GOARCH != "amd64" {
		t.Skipf("PyTorch has static probes on x86-64 only, and this is %s", runtime.GOARCH)
	}
}

// Each line's rounding and fragmentation, to the byte, while it holds and after it has freed;
// what was allocated without a tensor has no request, and is not taken for waste.
func TestWasteOfThePoolIsExactByLine(t *testing.T) {
	requireX86(t)
	s := startServer(t, "waste.py")
	r := start(t, "--pid", fmt.Sprint(s.PID()), "--torch", "on", "--waste")
	r.waitTorch(s)
	r.waitRequests()
	s.Say("")
	s.Expect("allocated")
	want := map[string]wasted{
		lineOf(t, "waste.py", "Index.add", "self.entries.append("): {
			inuse: wasteEntries * 1024, requested: wasteEntries * wasteEntry, rounding: wasteEntries * (1024 - wasteEntry),
			fragmented: wasteIndexSegments*2*mib - wasteEntries*1024,
		},
		lineOf(t, "waste.py", "cache_batch", "cache.append("): {
			inuse: wasteSegments * 2 * mib, requested: wasteSegments * wasteBatch, rounding: wasteSegments * 100,
			fragmented: wasteSegments * 18 * mib,
		},
		lineOf(t, "waste.py", "workspace", "return library.simtorch_raw_alloc("): {inuse: wasteUnseen},
	}
	r.waitRows("the waste of each line", s.PID(), func(rows []row) bool { return fmt.Sprint(wastedBy(rows)) == fmt.Sprint(want) })
	r.wait("the pool's own sums", func() bool {
		p := r.lastPool()
		return p.RequestedBlocks == wasteRequests && p.OddBlocks == 0 &&
			p.RequestedBytes == wasteEntries*wasteEntry+10*wasteSegments*wasteBatch &&
			p.RoundingBytes == wasteEntries*(1024-wasteEntry)+10*wasteSegments*100
	})
	s.Say("")
	s.Expect("freed")
	r.waitRows("nothing is held", s.PID(), func(rows []row) bool { return len(wastedBy(rows)) == 0 })
	code, _ := r.interrupt()
	require.Zero(t, code, r.errors())
	require.Empty(t, r.lost())
	require.NotContains(t, r.errors(), "disagree")
}

// A request that does not fit into the block that was just reported is a contradiction of the
// two probes, which is reported and in no sum.
func TestWitnessesThatDisagreeAreReported(t *testing.T) {
	requireX86(t)
	s := startServer(t, "waste.py", "SIMTORCH_ODD_REQUESTS=4")
	r := start(t, "--pid", fmt.Sprint(s.PID()), "--torch", "on", "--waste")
	r.waitTorch(s)
	r.waitRequests()
	s.Say("")
	s.Expect("allocated")
	const odd = wasteRequests / 4
	r.wait("the pool's own sums", func() bool {
		p := r.lastPool()
		return p.OddBlocks == odd && p.RequestedBlocks == wasteRequests-odd
	})
	code, _ := r.interrupt()
	require.Zero(t, code, r.errors())
	require.Regexp(t, `PyTorch's two accounts of process \d+ disagree: of \d+ requests \(pytorch:malloc\), \d+ are not`, r.errors())
}

// Without --waste nothing is probed in libc10_cuda, and no row has any of it.
func TestWithoutWasteNothingMoreIsProbed(t *testing.T) {
	requireX86(t)
	s := startServer(t, "waste.py")
	r := start(t, "--pid", fmt.Sprint(s.PID()), "--torch", "on")
	r.waitTorch(s)
	s.Say("")
	s.Expect("allocated")
	r.waitRows("what is held", s.PID(), func(rows []row) bool {
		var sum uint64
		for _, w := range wastedBy(rows) {
			sum += w.inuse
		}
		return sum == wasteEntries*1024+wasteSegments*2*mib+wasteUnseen
	})
	for line, w := range wastedBy(r.last(s.PID())) {
		require.Equal(t, wasted{inuse: w.inuse}, w, line)
	}
	for _, a := range r.attachments {
		require.NotContains(t, filepath.Base(a.Path), "libc10_cuda")
	}
	code, _ := r.interrupt()
	require.Zero(t, code, r.errors())
}

// TestProfilesHaveTheWasteOfThePool, by sample types of their own.
func TestProfilesHaveTheWasteOfThePool(t *testing.T) {
	requireX86(t)
	s := startServer(t, "waste.py")
	file := filepath.Join(t.TempDir(), "memory.pb.gz")
	r := start(t, "--pid", fmt.Sprint(s.PID()), "--torch", "on", "--waste", "--pprof-out", file)
	r.waitTorch(s)
	r.waitRequests()
	s.Say("")
	s.Expect("allocated")
	const rounding = wasteEntries*(1024-wasteEntry) + wasteSegments*100
	const fragmented = wasteIndexSegments*2*mib - wasteEntries*1024 + wasteSegments*18*mib
	r.waitRows("the waste", s.PID(), func(rows []row) bool {
		var sum wasted
		for _, w := range wastedBy(rows) {
			sum.rounding, sum.fragmented = sum.rounding+w.rounding, sum.fragmented+w.fragmented
		}
		return sum == wasted{rounding: rounding, fragmented: fragmented}
	})
	code, _ := r.interrupt()
	require.Zero(t, code, r.errors())
	_, sums := readProfile(t, file)
	require.EqualValues(t, []int64{rounding, fragmented}, []int64{sums["tensor_rounding_space"], sums["tensor_fragmented_space"]})
}
