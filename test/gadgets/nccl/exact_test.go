// SPDX-License-Identifier: Apache-2.0

// Package nccl tests that nccl_trace sees every single call: random ranks on the
// simulated NCCL, whose journal has what each of them issued.
package nccl

import (
	"debug/elf"
	"encoding/json"
	"os"
	"os/exec"
	"slices"
	"sort"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/examples/simcuda/journal"
	"github.com/gpu-gadgets/gpu-gadgets/internal/collective"
	"github.com/gpu-gadgets/gpu-gadgets/operators/decode/nccl"
	"github.com/gpu-gadgets/gpu-gadgets/test/support/simranks"
	"github.com/gpu-gadgets/gpu-gadgets/test/support/simulated"
	"github.com/gpu-gadgets/gpu-gadgets/test/support/subject"
)

// simulatedIn returns a directory of this test run, with copies of both libraries in it
// that no other processes have mapped.
var simulatedIn struct {
	once  sync.Once
	dir   string
	paths map[string]string
}

func TestMain(m *testing.M) {
	code := m.Run()
	if simulatedIn.dir != "" {
		os.RemoveAll(simulatedIn.dir)
	}
	os.Exit(code)
}

func libraries(t testing.TB) map[string]string {
	t.Helper()
	s := &simulatedIn
	s.once.Do(func() {
		var err error
		s.dir, err = os.MkdirTemp("", "nccl")
		require.NoError(t, err)
		s.paths = map[string]string{"libcuda": simulated.Copy(t, s.dir, "simcuda", "libcuda.so.1"),
			"libnccl": simulated.Copy(t, s.dir, "simnccl", "libnccl.so.2")}
	})
	require.NotEmpty(t, s.paths, "another test says why")
	return s.paths
}

// exports reports whether a file has the function.
func exports(t testing.TB, path, symbol string) bool {
	t.Helper()
	symbols, err := symbolsOf(path)
	require.NoError(t, err)
	return symbols[symbol] != 0
}

// symbolsOf are the functions that a file defines, with their addresses.
func symbolsOf(path string) (map[string]uint64, error) {
	f, err := elf.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	dynamic, err := f.DynamicSymbols()
	if err != nil {
		return nil, err
	}
	symbols := map[string]uint64{}
	for _, s := range dynamic {
		if s.Section != elf.SHN_UNDEF {
			symbols[s.Name] = s.Value
		}
	}
	return symbols, nil
}

// ranks are the processes of a workload that have issued all and wait for end.
type ranks struct {
	pids []int
	end  func()
}

// workload runs a Python program until it reports that it is ready.
func workload(t testing.TB, program string, env []string, args ...string) *ranks {
	t.Helper()
	l := libraries(t)
	cmd := exec.Command("python3", append([]string{program, "--libcuda", l["libcuda"], "--libnccl", l["libnccl"]}, args...)...)
	cmd.Env = append(append(os.Environ(), "SIMCUDA_INIT_MS=0", "SIMNCCL_DIR="+t.TempDir()), env...)
	p := subject.Start(t, cmd)
	p.Timeout = time.Hour // as long as go test waits: there may be many calls
	r := &ranks{}
	for len(r.pids) == 0 {
		text := p.Line()
		var line struct{ Ready []int }
		if json.Unmarshal([]byte(text), &line) == nil {
			r.pids = line.Ready
		}
	}
	r.end = func() {
		p.Say("")
		p.Wait()
	}
	return r
}

// called is one operation, from the journal or the tracer.
type called struct {
	op, typ, reduction string
	count, stream      uint64
	seq, match, opSeq  uint64
	peer               int32
	grouped            bool
}

type who struct {
	pid    uint32
	handle uint64
}

var (
	types      = []string{"int8", "uint8", "int32", "uint32", "int64", "uint64", "float16", "float32", "float64", "bfloat16", "float8e4m3", "float8e5m2"}
	typeBytes  = []uint64{1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1}
	reductions = []string{"sum", "prod", "max", "min", "avg"}
	operations = map[string]bool{"AllReduce": true, "Broadcast": true, "Bcast": true, "Reduce": true, "AllGather": true,
		"ReduceScatter": true, "AlltoAll": true, "Gather": true, "Scatter": true, "Send": true, "Recv": true}
)

// truth reads the operations issued to each communicator, in order, and the identity that
// the simulation gives the newest communicator of each handle.
func truth(t *testing.T, dir string) (calls map[who][]called, newest map[who]uint64, refused int) {
	t.Helper()
	journals, err := journal.ReadDir(dir)
	require.NoError(t, err)
	calls, newest = map[who][]called{}, map[who]uint64{}
	for _, j := range journals {
		byOp := map[who]map[string]uint64{}
		for _, r := range j.Records {
			name := strings.TrimPrefix(j.APIs[r.API], "nccl")
			if !operations[name] {
				continue
			}
			if r.Result != 0 {
				refused++
				continue
			}
			w := who{j.PID, r.Ptr}
			if newest[w] != r.Context { // its memory was used again
				newest[w], byOp[w] = r.Context, map[string]uint64{}
			}
			if name == "Bcast" {
				name = "Broadcast"
			}
			byOp[w][name]++
			byOp[w]["all"]++
			c := called{op: name, typ: types[r.Kind], count: r.Size, stream: r.Stream, match: r.AllocSeq,
				opSeq: byOp[w][name], seq: byOp[w]["all"], peer: r.Peer, grouped: r.Flags&journal.Nested != 0}
			if r.Reduction >= 0 {
				c.reduction = reductions[r.Reduction]
			}
			calls[w] = append(calls[w], c)
		}
	}
	return calls, newest, refused
}

// seen are the events of one kind in the form of the truth.
func seen(events []nccl.Event, what string) map[who][]called {
	var chosen []nccl.Event
	for _, e := range events {
		if e.What == what {
			chosen = append(chosen, e)
		}
	}
	sort.SliceStable(chosen, func(i, j int) bool { return chosen[i].EnterNS < chosen[j].EnterNS })
	calls := map[who][]called{}
	for _, e := range chosen {
		w := who{e.PID, e.Handle}
		calls[w] = append(calls[w], called{op: e.Op, typ: e.Type, reduction: e.Reduction, count: e.Count, stream: e.Stream,
			seq: e.Seq, match: e.Match, opSeq: e.OpSeq, peer: e.Peer, grouped: e.Group != 0})
	}
	return calls
}

func TestEveryCallIsExact(t *testing.T) {
	for _, ranks := range []int{2, 3, 5} {
		t.Run(strconv.Itoa(ranks), func(t *testing.T) { exact(t, ranks, options{}) })
	}
}

// TestEveryCallIsExactWithoutNewKernelFeatures runs the programs for Linux 5.10 here.
func TestEveryCallIsExactWithoutNewKernelFeatures(t *testing.T) {
	exact(t, 3, options{linux510: true})
}

func exact(t *testing.T, size int, o options) {
	dir := t.TempDir()
	tr := start(t, libraries(t), o)
	run := workload(t, "workload.py", []string{"SIMNCCL_JOURNAL=" + dir},
		"--ranks", strconv.Itoa(size), "--calls", "400", "--seed", strconv.Itoa(size))
	events := tr.settled()
	want, newest, refused := truth(t, dir)
	total := 0
	for w, calls := range want {
		total += len(calls)
		require.Equal(t, calls, seen(events, "issued")[w], "communicator %#x of process %d", w.handle, w.pid)
	}
	t.Logf("%d calls in %d communicators, %d refused", total, len(want), refused)
	require.Greater(t, total, 100*size)
	require.Positive(t, refused)
	require.Len(t, seen(events, "issued"), len(want), "communicators that nobody called")

	done := seen(events, "done")
	for w, calls := range done { // of the rest only the number is known: see nccl.Ring
		require.Subset(t, want[w], calls)
	}
	notTooEarly(t, events)

	milestones := 0
	identities, ranksOf := map[uint64]uint64{}, map[uint64]map[int32]bool{}
	for _, c := range tr.communicators() {
		w := who{c.PID, c.Handle}
		require.False(t, c.Late)
		require.NotZero(t, c.Identity)
		require.Equal(t, c.Seq, c.DoneSeq) // all was waited for
		if c.State == "destroyed" || newest[w] == 0 {
			continue
		}
		require.Equal(t, c.Seq, want[w][len(want[w])-1].seq)
		milestones += digestsAreRight(t, c, want[w])
		require.True(t, c.Oldest.Match <= c.DoneCollectives, "all was waited for, but not %+v", c.Oldest)
		if known, ok := identities[newest[w]]; ok {
			require.Equal(t, known, c.Identity, "ranks of one communicator")
		}
		identities[newest[w]] = c.Identity
		if c.Rank >= 0 {
			if ranksOf[c.Identity] == nil {
				ranksOf[c.Identity] = map[int32]bool{}
			}
			require.False(t, ranksOf[c.Identity][c.Rank], "two of one rank")
			ranksOf[c.Identity][c.Rank] = true
			require.EqualValues(t, size, c.Size)
			require.EqualValues(t, c.Rank%2, c.Device)
		}
		require.Contains(t, []string{"", "gradients"}[:2], c.Name)
	}
	require.Greater(t, milestones, size)
	different := map[uint64]bool{}
	for _, identity := range identities {
		require.False(t, different[identity], "two communicators of one identity")
		different[identity] = true
	}
	require.GreaterOrEqual(t, len(ranksOf), 2)
	sumsAreExact(t, tr, want, done)
	if !o.linux510 {
		stacksAreRight(t, tr, events)
	}
	require.Empty(t, tr.drops())

	run.end()
	for _, c := range tr.communicators() {
		require.NotZero(t, c.ExitNS)
	}
}

// digestsAreRight compares the digests of the newest communicator of a handle with those of its calls. It returns how many.
func digestsAreRight(t *testing.T, c nccl.Communicator, calls []called) int {
	t.Helper()
	want := make(collective.Digests, collective.DigestCount)
	digest, milestones := uint64(0), 0
	for _, call := range calls {
		if call.seq == 1 {
			digest, want, milestones = 0, make(collective.Digests, collective.DigestCount), 0
		}
		o := collective.Operation{Kind: collective.ParseKind(call.op), Count: call.count, DType: collective.DType(slices.Index(types, call.typ)), Peer: int(call.peer)}
		if o.Kind.IsPeer() {
			continue
		}
		if call.reduction != "" {
			o.Reduction = int32(slices.Index(reductions, call.reduction))
		}
		if digest = simranks.Digest(digest, o); call.match%collective.Milestone == 0 {
			want.Set(call.match/collective.Milestone, digest)
			milestones++
		}
	}
	require.Equal(t, want, collective.Digests(c.Digests[:]))
	return milestones
}

// notTooEarly checks that no collective was reported as done before all ranks had entered it.
func notTooEarly(t *testing.T, events []nccl.Event) {
	t.Helper()
	type key struct {
		identity, match uint64
	}
	last, checked := map[key]uint64{}, 0
	for _, e := range events {
		if e.What == "issued" && e.Op != "Send" && e.Op != "Recv" {
			k := key{e.Identity, e.Match}
			last[k] = max(last[k], e.EnterNS)
		}
	}
	for _, e := range events {
		if e.What == "done" && e.Op != "Send" && e.Op != "Recv" {
			require.GreaterOrEqual(t, e.DoneNS, last[key{e.Identity, e.Match}], "%s %d of rank %d", e.Op, e.Match, e.Rank)
			checked++
		}
	}
	require.Positive(t, checked)
}

// sumsAreExact compares the sums of `operations` and the counts of `peers`.
func sumsAreExact(t *testing.T, tr *tracer, want, done map[who][]called) {
	t.Helper()
	type key struct {
		pid     uint32
		op, typ string
	}
	type sum struct{ calls, bytes, timed, timedBytes uint64 }
	wanted, have := map[key]sum{}, map[key]sum{}
	for w, calls := range want {
		for _, c := range calls {
			k := key{w.pid, c.op, c.typ}
			was := wanted[k]
			wanted[k] = sum{was.calls + 1, was.bytes + c.count*bytesOf(c.typ), was.timed, was.timedBytes}
		}
		for _, c := range done[w] {
			k := key{w.pid, c.op, c.typ}
			was := wanted[k]
			wanted[k] = sum{was.calls, was.bytes, was.timed + 1, was.timedBytes + c.count*bytesOf(c.typ)}
		}
	}
	for _, s := range tr.operations() {
		require.NotZero(t, s.PID)
		if s.Handle == 0 {
			require.Contains(t, []string{"GroupEnd", "MemAlloc", "MemFree"}, s.Op)
			continue
		}
		k := key{s.PID, s.Op, s.Type}
		was := have[k]
		have[k] = sum{was.calls + s.Calls, was.bytes + s.Bytes, was.timed + s.Timed, was.timedBytes + s.TimedBytes}
		require.GreaterOrEqual(t, s.Bytes, s.Calls*s.SizeBytes)
		require.Less(t, s.Bytes, 2*s.Calls*s.SizeBytes)
		require.Equal(t, s.Timed > 0, s.TimedNS > 0)
	}
	require.Equal(t, wanted, have)
	for _, p := range tr.peers() {
		require.Contains(t, []string{"Send", "Recv"}, p.Op)
		require.LessOrEqual(t, p.Completed, p.Issued)
	}
}

func bytesOf(name string) uint64 {
	for i, n := range types {
		if n == name {
			return typeBytes[i]
		}
	}
	return 0
}

// stacksAreRight: each call came from the method of its name.
func stacksAreRight(t *testing.T, tr *tracer, events []nccl.Event) {
	t.Helper()
	methods := map[string][]string{"AllReduce": {"all_reduce"}, "Broadcast": {"broadcast", "bcast"}, "Reduce": {"reduce"},
		"AllGather": {"all_gather"}, "ReduceScatter": {"reduce_scatter"}, "AlltoAll": {"all_to_all"},
		"Gather": {"gather"}, "Scatter": {"scatter"}, "Send": {"send"}, "Recv": {"recv"}}
	known := map[uint64]string{}
	for _, e := range events {
		if e.What != "issued" {
			continue
		}
		if _, ok := known[e.Stack]; !ok {
			functions := tr.python(e.Stack)
			require.Greater(t, len(functions), 3, "%v", functions)
			parts := strings.Split(functions[1], ".")
			known[e.Stack] = parts[len(parts)-1]
		}
		require.Contains(t, methods[e.Op], known[e.Stack])
	}
}
