// SPDX-License-Identifier: Apache-2.0

package hostile

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/test/support/loopback"
	"github.com/gpu-gadgets/gpu-gadgets/test/support/simulated"
	"github.com/gpu-gadgets/gpu-gadgets/test/support/subject"
	"github.com/gpu-gadgets/gpu-gadgets/test/support/subject/iggpu"
)

// fullLimit is how long a tenant may take to fill its share of the stacks, on a busy machine.
const fullLimit = 2 * time.Minute

// places and callsEach are the honest one's: so many lines of Python, each of which makes so many calls.
const places, callsEach = 10, 50

// A tenant that waits for the GPU in more places than cuda_kernel has room for.
func TestHonestWaitsAreExactBesideAHostileOne(t *testing.T) {
	file := filepath.Join(t.TempDir(), "lines")
	r := iggpu.Start(t, "cuda_kernel", "--jsonl-out", file)
	waits := mode{name: "waits", calls: true}
	p := attack(t, build(t), waits, 20_000)
	waits.begin(p, r)
	p.Expect("round")
	for began := time.Now(); !isFull(r, "stacks_full"); p.Expect("round") {
		require.Less(t, time.Since(began), fullLimit, "the hostile tenant has not filled its share")
		p.Say("again")
	}
	p.Say("enough")
	p.Expect("done")

	h := callsOf(t, r, "libcuda.so.1", "calls", simulated.DriverCopy(t), strconv.Itoa(places), strconv.Itoa(callsEach))
	h.End()
	p.End()
	r.Interrupt()
	calls := map[string]int64{} // the newest state, by the line that waited
	for _, l := range linesOf(t, file, "call", h.PID()) {
		if strings.HasPrefix(l.place(), "wait_") || l.place() == "[unknown]" {
			calls[l.place()] = l.Calls
		}
	}
	want := map[string]int64{}
	for n := range places {
		want["wait_"+strconv.Itoa(n)] = callsEach
	}
	require.Equal(t, want, calls)
}

// A tenant whose threads are in more places than py_stack has room for.
func TestHonestStacksAreKnownBesideAHostileOne(t *testing.T) {
	file := filepath.Join(t.TempDir(), "lines")
	r := iggpu.Start(t, "py_stack", "--wall", "--frequency", "19", "--jsonl-out", file)
	p := startOf(t, "places", "400") // 2,000 places a second
	waitUntilFull(t, r, "stacks_full")

	h := startOf(t, "sleeps", strconv.Itoa(places))
	time.Sleep(3 * time.Second) // some fifty samples of each thread
	h.End()
	p.End()
	r.Interrupt()
	samples := map[string]int64{}
	for _, l := range linesOf(t, file, "sample", h.PID()) {
		samples[l.place()] = l.Samples
	}
	for n := range places {
		require.NotZero(t, samples["wait_"+strconv.Itoa(n)], samples)
	}
	require.Zero(t, samples["[unknown]"], samples)
}

// A tenant with more functions and more kernels than there is room for their names.
func TestHonestNamesAreKnownBesideAHostileOne(t *testing.T) {
	file := filepath.Join(t.TempDir(), "lines")
	r := iggpu.Start(t, "cuda_kernel", "--jsonl-out", file)
	driver := simulated.DriverCopy(t)
	p := startAttached(t, r, "libcuda.so.1", "names", driver, "40000")
	waitUntilFull(t, r, "symbols_full", "kernels_full")

	h := callsOf(t, r, "libcuda.so.1", "kernels", driver, strconv.Itoa(places), strconv.Itoa(callsEach))
	h.End()
	p.End()
	r.Interrupt()
	calls, want := map[string]int64{}, map[string]int64{} // the newest state, by kernel and line
	for _, l := range linesOf(t, file, "call", h.PID()) {
		if l.Stack[0].Kind == "kernel" {
			calls[l.Stack[0].Function+" "+l.place()] = l.Calls
		}
	}
	for n := range places {
		want[fmt.Sprintf("kernel_%d wait_%d", n, n)] = callsEach
	}
	require.Equal(t, want, calls)
}

// A tenant with more communicators and streams than nccl_trace has room for.
func TestHonestRanksAreFollowedBesideAHostileOne(t *testing.T) {
	metrics := loopback.FreeAddress(t)
	r := iggpu.Start(t, "nccl_trace", "--metrics-listen", metrics)
	driver, library := simulated.DriverCopy(t), simulated.NCCL(t)
	p := startAttached(t, r, "libnccl.so.2", "communicators", driver, library, "20000")
	waitUntilFull(t, r, "communicators_full")
	requireFollowed(t, r, metrics, driver, library)
	p.End()
	r.Interrupt()
}

// A tenant with more kinds of operations, and more peers, than nccl_trace has room for, by a library of its own.
func TestHonestOperationsAreCountedBesideAHostileOne(t *testing.T) {
	const peers, communicators, sizes = 20_000, 2_000, 20
	const room = 65_536 / 4        // of each table
	const streamCommunicators = 32 // followed of each stream: bpf/nccl/streams.h
	metrics := loopback.FreeAddress(t)
	r := iggpu.Start(t, "nccl_trace", "--metrics-listen", metrics)
	driver, library := simulated.DriverCopy(t), simulated.NCCL(t)
	own := filepath.Join(t.TempDir(), "libnccl.so.2")
	out, err := exec.Command("cc", "-shared", "-fPIC", "-o", own, "testdata/nccl.c").CombinedOutput()
	require.NoError(t, err, string(out))
	p := startAttached(t, r, "libnccl.so.2", "operations", own, strconv.Itoa(peers), strconv.Itoa(communicators), strconv.Itoa(sizes))
	p.Expect("done")
	refused := map[string]uint64{
		"rows_full":    peers - room + communicators*sizes + 1 - room,
		"streams_full": communicators + 1 - streamCommunicators,
	}
	require.EventuallyWithT(t, func(c *assert.CollectT) { assert.Equal(c, refused, losses(r)) }, fullLimit, 100*time.Millisecond,
		"so many have no room")
	requireFollowed(t, r, metrics, driver, library)
	require.Equal(t, refused, losses(r), "an honest one's operations are all counted")
	p.End()
	r.Interrupt()
}

// requireFollowed makes the calls of an honest rank, which must be counted.
func requireFollowed(t *testing.T, r *iggpu.Run, metrics, driver, library string) {
	t.Helper()
	h := callsOf(t, r, "libnccl.so.2", "collectives", driver, library, strconv.Itoa(callsEach))
	pid := fmt.Sprintf("process_pid=%q", strconv.Itoa(h.PID()))
	for metric, calls := range map[string]float64{
		"nccl_rank_issued_total": callsEach, "nccl_rank_done_total": callsEach,
		"nccl_rank_peer_issued_total": 2, "nccl_rank_peer_done_total": 2,
	} {
		require.Eventually(t, func() bool {
			sum, _ := loopback.Sum(t, metrics, metric, pid)
			return sum == calls
		}, time.Minute, time.Second, metric)
	}
	h.End()
}

// startOf starts testdata/honest.py.
func startOf(t *testing.T, args ...string) *subject.Process {
	t.Helper()
	return startTenant(t, exec.Command("python3", append([]string{"testdata/honest.py"}, args...)...))
}

// waitUntilFull waits until entries were refused for each of these reasons.
func waitUntilFull(t *testing.T, r *iggpu.Run, reasons ...string) {
	t.Helper()
	require.Eventually(t, func() bool { return isFull(r, reasons...) }, fullLimit, 100*time.Millisecond,
		"the hostile tenant has not filled its share")
}

func isFull(r *iggpu.Run, reasons ...string) bool {
	drops := r.Drops()
	return !slices.ContainsFunc(reasons, func(reason string) bool { return drops[reason] == 0 })
}

// callsOf starts testdata/honest.py, and returns when it has made its calls of a library.
func callsOf(t *testing.T, r *iggpu.Run, library string, args ...string) *subject.Process {
	t.Helper()
	h := startAttached(t, r, library, args...)
	h.Expect("done")
	return h
}

// startAttached starts testdata/honest.py, which makes its calls of a library from now on.
func startAttached(t *testing.T, r *iggpu.Run, library string, args ...string) *subject.Process {
	t.Helper()
	p := startOf(t, args...)
	r.WaitAttachedIn(p.PID(), library)
	p.Say("go")
	return p
}

// place is the innermost function in Python, or what is there instead.
func (l *line) place() string {
	for _, f := range l.Stack {
		if f.Kind == "python" {
			return f.Function
		}
	}
	if len(l.Stack) == 0 {
		return ""
	}
	return l.Stack[0].Function
}

// linesOf are those of a process, oldest first.
func linesOf(t *testing.T, file, kind string, pid int) (lines []line) {
	t.Helper()
	readLines(t, file, func(l line) {
		if l.Type == kind && l.PID == uint32(pid) {
			lines = append(lines, l)
		}
	})
	require.NotEmpty(t, lines)
	return lines
}
