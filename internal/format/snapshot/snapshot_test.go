// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/internal/stack"
)

const mib = 1 << 20

var (
	driver = stack.Frame{Kind: stack.KindNative, Function: "cuMemAlloc_v2", File: "/usr/lib/libcuda.so.1"}
	pool   = stack.Frame{Kind: stack.KindNative, Function: "malloc", File: "/site-packages/torch/lib/libc10_cuda.so"}
	bridge = stack.Frame{Kind: stack.KindTrampoline, Function: stack.Trampoline}
	begun  = time.Unix(1_700_000_000, 0)
)

func line(function string, number uint32) stack.Frame {
	return stack.Frame{Kind: stack.KindPython, Function: function, File: "/srv/train.py", Line: number}
}

// decoded is the file as Python reads it, as JSON.
type decoded struct {
	Segments []struct {
		Device, Address, Stream, Line int64
		TotalSize                     int64  `json:"total_size"`
		AllocatedSize                 int64  `json:"allocated_size"`
		Kind                          string `json:"segment_type"`
		IsExpandable                  bool   `json:"is_expandable"`
		Frames                        []frame
		Blocks                        []decodedBlock
	}
	Traces [][]struct {
		Action             string
		Addr, Size, Stream int64
		Time               int64 `json:"time_us"`
		Frames             []frame
	} `json:"device_traces"`
	Settings struct {
		IsSampled bool `json:"tensors_are_sampled"`
	} `json:"allocator_settings"`
}

type frame struct {
	Filename, Name string
	Line           int64
}

type decodedBlock struct {
	Address, Size int64
	Requested     int64 `json:"requested_size"`
	State         string
	Frames        []frame
}

// read has Python read the pickle, which is the judge of it.
func read(t *testing.T, s *Snapshot) (d decoded) {
	t.Helper()
	var b bytes.Buffer
	require.NoError(t, s.Write(&b))
	text := python(t, b.Bytes(), "import json, pickle, sys; json.dump(pickle.load(sys.stdin.buffer), sys.stdout)")
	require.NoError(t, json.Unmarshal([]byte(text), &d))
	return d
}

func python(t *testing.T, stdin []byte, program string) string {
	t.Helper()
	cmd := exec.Command("python3", "-c", program)
	cmd.Stdin = bytes.NewReader(stdin)
	var errs strings.Builder
	cmd.Stderr = &errs
	out, err := cmd.Output()
	require.NoError(t, err, errs.String())
	return string(out)
}

// training has a segment of PyTorch's with two tensors, one that it caches, two pieces of an
// expandable one, a buffer of NCCL's and an array.
func training() []Allocation {
	at := func(seconds int) time.Time { return begun.Add(time.Duration(seconds) * time.Second) }
	return []Allocation{
		{Address: 0x7f0000000000, Size: 20 * mib, Device: 1, At: at(1), StackID: 1, Stack: stack.Stack{driver, pool, bridge, line("load", 3)}},
		{Address: 0x7f0000200000, Size: 5 * mib, Requested: 5*mib - 100, Device: 1, At: at(3), StackID: 2, Stack: stack.Stack{pool, bridge, line("forward", 9)}, IsTensor: true},
		{Address: 0x7f0000000000, Size: mib, Device: 1, At: at(1).Add(-1), StackID: 3, Stack: stack.Stack{line("load", 3)}, IsTensor: true},
		{Address: 0x7f1000000000, Size: 2 * mib, Device: 1, At: at(4), StackID: 1, Stack: stack.Stack{driver, pool, bridge, line("load", 3)}},
		{Address: 0x7f2000200000, Size: 2 * mib, Device: 0, At: at(6), StackID: 4, IsPiece: true, Stack: stack.Stack{pool, line("grow", 2)}},
		{Address: 0x7f2000000000, Size: 2 * mib, Device: 0, At: at(5), StackID: 4, IsPiece: true, Stack: stack.Stack{pool, line("grow", 2)}},
		{Address: 0x7f2000100000, Size: 2 * mib, Device: 0, At: at(7), StackID: 5, Stack: stack.Stack{line("grow", 2)}, IsTensor: true},
		{Address: 0x7f3000000000, Size: 9 * mib, Device: -1, At: at(2), StackID: 6, Stack: stack.Stack{driver, line("init_process_group", 1)}},
		{Address: 77, Size: 1000, Device: 0, At: at(8), StackID: 7, IsUnplaced: true, Stack: stack.UnknownStack()},
		{Address: 0x7f4000000000, Size: 512, Device: 1, At: at(9), StackID: 8, Stack: stack.Stack{line("late", 4)}, IsTensor: true},
	}
}

func TestASnapshotIsLaidOutAsPyTorchDoes(t *testing.T) {
	d := read(t, New(training(), false, nil))
	var segments, blocks []string
	for _, s := range d.Segments {
		segments = append(segments, fmt.Sprintf("%d %x %d %d %s %v", s.Device, s.Address, s.TotalSize, s.AllocatedSize, s.Kind, s.IsExpandable))
		next := s.Address
		for _, b := range s.Blocks {
			require.Equal(t, next, b.Address, "blocks cover their segment")
			if b.Address == 0x7f0000200000 {
				require.EqualValues(t, 5*mib-100, b.Requested)
			} else {
				require.Equal(t, b.Size, b.Requested)
			}
			next += b.Size
			of := ""
			if len(b.Frames) > 0 {
				last := b.Frames[len(b.Frames)-1]
				of = fmt.Sprintf(" %s:%d of %d", last.Name, last.Line, len(b.Frames))
			}
			blocks = append(blocks, fmt.Sprintf("%x %d %s%s", b.Address, b.Size, b.State, of))
		}
		require.Equal(t, next, s.Address+s.TotalSize)
	}
	require.Equal(t, []string{
		"1 7f0000000000 20971520 6291456 large false",
		"1 7f1000000000 2097152 0 small false",
		"0 7f2000000000 4194304 2097152 large true",
		"0 7f3000000000 9437184 9437184 large false",
		"1 7f4000000000 512 512 small false",
		"0 1000000000000 1000 1000 small false",
	}, segments)
	require.Equal(t, []string{
		"7f0000000000 1048576 active_allocated load:3 of 1", "7f0000100000 1048576 inactive",
		"7f0000200000 5242880 active_allocated forward:9 of 2", "7f0000700000 13631488 inactive",
		"7f1000000000 2097152 inactive",
		"7f2000000000 1048576 inactive", "7f2000100000 2097152 active_allocated grow:2 of 1", "7f2000300000 1048576 inactive",
		"7f3000000000 9437184 active_allocated init_process_group:1 of 2",
		"7f4000000000 512 active_allocated late:4 of 1",
		"1000000000000 1000 active_allocated [unknown]:0 of 1",
	}, blocks)

	var events []string
	require.Len(t, d.Traces, 2)
	for device, trace := range d.Traces {
		for _, e := range trace {
			events = append(events, fmt.Sprintf("%d %s %x +%d", device, e.Action, e.Addr, e.Time/1e6-begun.Unix()))
		}
	}
	require.Equal(t, []string{
		"0 segment_alloc 7f3000000000 +2", "0 alloc 7f3000000000 +2", "0 segment_map 7f2000000000 +5", "0 segment_map 7f2000200000 +6",
		"0 alloc 7f2000100000 +7", "0 segment_alloc 1000000000000 +8", "0 alloc 1000000000000 +8",
		"1 segment_alloc 7f0000000000 +1", "1 alloc 7f0000000000 +1", "1 alloc 7f0000200000 +3", "1 segment_alloc 7f1000000000 +4", "1 alloc 7f4000000000 +9",
	}, events)
	require.Equal(t, frame{"/srv/train.py", "load", 3}, d.Segments[0].Frames[2], "without what joins Python and native frames")
}

// TestSampledTensorsAreNotLaidOut: their sizes are estimates. Allocations of the driver are.
func TestSampledTensorsAreNotLaidOut(t *testing.T) {
	overlapping := append(training(), Allocation{Address: 0x7f0000200000 + mib, Size: mib, IsTensor: true})
	beyond := append(training(), Allocation{Address: 0x7f1000000000 + mib, Size: 2 * mib, IsTensor: true})
	for name, s := range map[string]*Snapshot{"asked": New(training(), true, nil), "overlap": New(overlapping, false, nil), "beyond": New(beyond, false, nil)} {
		require.True(t, s.IsSampled, name)
		d := read(t, s)
		require.True(t, d.Settings.IsSampled, name)
		require.Len(t, d.Segments, 5, name)
		for _, segment := range d.Segments {
			require.Equal(t, segment.TotalSize, segment.AllocatedSize, name)
		}
	}
	require.False(t, New(training(), false, nil).IsSampled)
}

// TestSumsAreThoseOfTheAllocations on random ones, in any order, and however they lie.
func TestSumsAreThoseOfTheAllocations(t *testing.T) {
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 7))
		var all []Allocation
		var reserved, active uint64
		at := uint64(1 << 40)
		for n := range r.IntN(300) {
			size := (1 + r.Uint64N(64)) * 512
			isPool := r.IntN(2) == 0
			s := stack.Stack{line(fmt.Sprint("f", n%7), 1)}
			if isPool {
				s = append(stack.Stack{pool}, s...)
			}
			all = append(all, Allocation{Address: at, Size: size, Device: int32(r.IntN(3)) - 1, StackID: uint64(n%7)*2 + 1, Stack: s,
				IsPiece: r.IntN(3) == 0, At: begun.Add(time.Duration(r.IntN(1000)) * time.Second)})
			reserved += size
			if isPool || n == 0 { // a tensor at the beginning: tensors are known
				used := min(size, (1+r.Uint64N(64))*512)
				all = append(all, Allocation{Address: at, Size: used, Device: 0, IsTensor: true, StackID: 99, Stack: stack.Stack{line("t", 1)}})
				active += used
			} else {
				active += size
			}
			at += size + r.Uint64N(2)*512
		}
		s := New(all, false, nil)
		var before bytes.Buffer
		require.NoError(t, s.Write(&before))
		require.Equal(t, reserved, s.Bytes, seed)
		var total, inuse int64
		for _, segment := range read(t, s).Segments {
			total += segment.TotalSize
			for _, b := range segment.Blocks {
				if b.State == "active_allocated" {
					inuse += b.Size
				}
			}
		}
		require.Equal(t, []int64{int64(s.Bytes), int64(s.ActiveBytes)}, []int64{total, inuse}, seed)
		r.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
		var again bytes.Buffer
		require.NoError(t, New(all, false, nil).Write(&again))
		require.Len(t, again.Bytes(), before.Len(), "the order does not matter")
	}
}

// TestOpcodesAreThoseThatTheViewerReads: the reader in MemoryViz.js knows these and no others.
func TestOpcodesAreThoseThatTheViewerReads(t *testing.T) {
	many := training()
	for n := range 2500 { // more than one batch, more texts than a byte counts
		many = append(many, Allocation{Address: uint64(1<<44 + n*4096), Size: 4096, StackID: uint64(1000 + n),
			Stack: stack.Stack{line(fmt.Sprintf("f%d\xff\"</script>\n", n), uint32(n*40))}})
	}
	var b bytes.Buffer
	require.NoError(t, New(many, false, nil).Write(&b))
	known := strings.Fields(`PROTO MARK EMPTY_DICT SETITEMS EMPTY_LIST APPENDS BININT BININT1 BININT2 LONG1 NEWTRUE NEWFALSE
		BINUNICODE SHORT_BINUNICODE BINPUT LONG_BINPUT BINGET LONG_BINGET STOP`)
	used := strings.Fields(python(t, b.Bytes(), "import pickletools, sys; print(*sorted({o.name for o, _, _ in pickletools.genops(sys.stdin.buffer.read())}))"))
	require.Subset(t, known, used)
	require.Contains(t, used, "LONG_BINGET", "the test is large enough")
	longest := python(t, b.Bytes(), "import pickle, sys; d = pickle.load(sys.stdin.buffer); print(len(d['segments']), d['segments'][9]['frames'][0]['name'])")
	require.Regexp(t, `^2506 f\d+`+"\uFFFD\"</script>\n", longest)
}

// TestPyTorchsOwnProgramReadsIt, where it is there: make test-torch fetches it.
func TestPyTorchsOwnProgramReadsIt(t *testing.T) {
	found, err := filepath.Glob("../../../build/fixtures/torch/root/usr/lib/python3/dist-packages/torch/cuda/_memory_viz.py")
	require.NoError(t, err)
	if len(found) == 0 {
		t.Skip("PyTorch has not been fetched: run test/support/fixtures/torch.sh")
	}
	var b bytes.Buffer
	require.NoError(t, New(training(), false, nil).Write(&b))
	out := python(t, b.Bytes(), fmt.Sprintf(`
import importlib.util, pickle, sys
spec = importlib.util.spec_from_file_location("viz", %q)
viz = importlib.util.module_from_spec(spec); spec.loader.exec_module(viz)
d = pickle.load(sys.stdin.buffer)
same = lambda text: text
print(viz.segsum(d)); print(viz.trace(d)); print(viz.memory(d, same)); print(viz.segments(d, same)); print(viz.compare([], d["segments"], same))
for page in viz.trace_plot(d), viz.trace_plot(d, plot_segments=True), viz.segment_plot(d):
    assert "snapshot.pickle" in page
`, found[0]))
	require.Contains(t, out, "total_allocated: 17.0MiB")
	require.Contains(t, out, "total_reserved: 35.0MiB")
	require.Contains(t, out, "segments: 6")
	require.Contains(t, out, "active_allocated;train.py:9:forward;libc10_cuda.so:0:malloc 5242780")
	require.Contains(t, out, "active_allocated;<gaps> 100")
}
