// SPDX-License-Identifier: Apache-2.0

package top

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/internal/profile"
	"github.com/gpu-gadgets/gpu-gadgets/internal/stack"
)

var update = flag.Bool("update", false, "write the golden files")

func python(function, file string, line uint32) stack.Frame {
	return stack.Frame{Kind: stack.KindPython, Function: function, File: file, Line: line}
}

var (
	server = profile.Process{ID: 1, PID: 4711, Comm: "python3", Namespace: "prod", Pod: "vllm-0"}
	other  = profile.Process{ID: 2, PID: 815, Comm: "python3"}
	alloc  = stack.Frame{Kind: stack.KindNative, Function: "cudaMalloc", File: "/usr/lib/libcudart.so.12"}
	main   = python("main", "/srv/serve.py", 12)
	kv     = stack.Stack{alloc, python("GPUModelRunner._allocate_kv_cache_tensors", "/srv/vllm/model.py", 141), main}
	load   = stack.Stack{alloc, python("Model.load", "/srv/vllm/model.py", 20), main}
	lost   = stack.UnknownStack()
)

func memory(p profile.Process, s stack.Stack, kind string, device int32, inuse, freed int64) Row {
	return Row{Row: profile.Row{Process: p, Stack: s, Kind: kind, Device: device, Values: profile.Values{
		AllocBytes: inuse + freed, AllocObjects: 4, FreedBytes: freed, FreedObjects: 1, InuseBytes: inuse, InuseObjects: 3, PeakBytes: inuse + freed/2, AtPeakBytes: inuse + freed/4,
	}}}
}

func serving() []Row {
	return []Row{
		memory(server, kv, "device", 0, 4<<30, 0), memory(server, kv, "device", 1, 3<<30, 512<<20), memory(server, kv, "tensor", 0, 3<<30, 0),
		memory(server, load, "pool", 0, 700<<20, 0), memory(other, load, "device", 0, 26<<20, 26<<20), memory(other, lost, "host", profile.UnknownDevice, 0, 4096),
	}
}

func calls() []Row {
	launch := profile.Row{Process: server, Kind: "launch", Device: 0, Stack: append(stack.Stack{{Kind: stack.KindNative, Function: "ampere_sgemm_128x64"}}, kv...)}
	launch.Values = profile.Values{Calls: 900, Launches: 900, HostNanoseconds: 4_500_000, DeviceNanoseconds: 90_000_000}
	wait := profile.Row{Process: server, Kind: "wait", Device: 0, Stack: load, Values: profile.Values{Calls: 12, HostNanoseconds: 1_250_000_000, WaitNanoseconds: 1_250_000_000}}
	copied := profile.Row{Process: other, Kind: "copy HtoD", Device: 0, Stack: load, Values: profile.Values{Calls: 3, CopiedBytes: 96 << 20, HostNanoseconds: 31_000}}
	return []Row{{launch, "ampere_sgemm_128x64"}, {Row: wait}, {Row: copied}}
}

func show(m *Model, width int) string {
	lines, _, _ := m.Body(width)
	var all strings.Builder
	for _, l := range lines {
		all.WriteString(strings.TrimRight(l.String(), " ") + "\n")
	}
	return all.String()
}

// TestScreens compares what is shown with files that are to be read like code.
func TestScreens(t *testing.T) {
	at := time.Unix(1_700_000_000, 0)
	for _, c := range []struct {
		name string
		keys []string
	}{
		{"line", nil}, {"stack", []string{"g"}}, {"process", []string{"g", "g"}}, {"device", []string{"g", "g", "g"}}, {"pod", []string{"g", "g", "g", "g"}},
		{"tree", []string{"t"}}, {"sorted-by-alloc", []string{">", ">"}}, {"launches", []string{Tab}}, {"waits", []string{Tab, Tab}},
		{"kernel", []string{Tab, "g", "g", "g", "g", "g"}}, {"launches-tree", []string{Tab, "t"}}, {"diff", []string{"m", "grow", "d"}}, {"diff-without-mark", []string{"d"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := New(ByLine, Memory, Launches, Waits)
			m.Update(profile.Memory, at, serving())
			m.Update(profile.Calls, at, nil)
			m.Update(profile.Calls, at.Add(2*time.Second), calls())
			for _, key := range c.keys {
				switch key {
				case "m":
					m.Mark(at)
				case "grow":
					grown := serving()
					grown[0] = memory(server, kv, "device", 0, 4<<30+26<<20, 0)
					grown[3] = memory(server, load, "pool", 0, 200<<20, 500<<20)
					m.Update(profile.Memory, at.Add(time.Second), grown)
				default:
					require.True(t, m.Key(key))
				}
			}
			got := fmt.Sprintf("80 columns:\n%s\n132 columns:\n%s", show(m, 80), show(m, 132))
			path := filepath.Join("testdata", c.name+".txt")
			if *update {
				require.NoError(t, os.MkdirAll("testdata", 0o755))
				require.NoError(t, os.WriteFile(path, []byte(got), 0o644))
			}
			want, err := os.ReadFile(path)
			require.NoError(t, err)
			require.Equal(t, string(want), got)
		})
	}
}

// TestNativeRowsAreOfTheProgramsFunction: of the functions of the driver there are few.
func TestNativeRowsAreOfTheProgramsFunction(t *testing.T) {
	driver := stack.Frame{Kind: stack.KindNative, Function: "cuMemAlloc_v2", File: "/usr/lib/libcuda.so.1"}
	grow := stack.Frame{Kind: stack.KindNative, Function: "KVCache::grow()", File: "/app/server"}
	kernel := stack.Frame{Kind: stack.KindKernel, Function: "gemm"}
	require.Equal(t, "KVCache::grow() (server)", label(&Row{Row: profile.Row{Stack: stack.Stack{driver, grow}}}))
	require.Equal(t, "KVCache::grow() (server)", label(&Row{Row: profile.Row{Stack: stack.Stack{kernel, driver, grow}}, Kernel: "gemm"}))
	require.Equal(t, "gemm", label(&Row{Row: profile.Row{Stack: stack.Stack{kernel}}, Kernel: "gemm"}))
	require.Equal(t, stack.Unknown, label(&Row{}))
}

// TestSumsAreExactHoweverRowsAreGrouped: totals are of all rows, layer by layer.
func TestSumsAreExactHoweverRowsAreGrouped(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 50 {
		var rows []Row
		want := map[profile.Layer]int64{}
		for range r.IntN(60) {
			kind := []string{"device", "host", "vmm", "tensor"}[r.IntN(4)]
			row := memory([]profile.Process{server, other}[r.IntN(2)], []stack.Stack{kv, load, lost}[r.IntN(3)], kind, int32(r.IntN(4)-1), r.Int64N(1<<40), r.Int64N(1<<30))
			rows = append(rows, row)
			want[profile.LayerOf(kind)] += row.InuseBytes
		}
		for by := range By(len(byNames)) {
			m := New(by, Memory)
			m.Update(profile.Memory, time.Unix(1, 0), rows)
			got := map[profile.Layer]int64{}
			for _, g := range m.groups() {
				got[g.layer] += g.values.InuseBytes
			}
			require.Equal(t, want, got, by)
			sums := map[profile.Layer]int64{}
			for _, sum := range totals(m.groups()) {
				sums[sum.layer] = sum.values.InuseBytes
			}
			require.Equal(t, want, sums, by)
			for _, root := range m.tree() {
				var self func(n *node) int64
				self = func(n *node) int64 {
					sum := n.self
					for _, c := range n.children {
						sum += self(c)
					}
					return sum
				}
				require.Equal(t, root.total, self(root))
			}
		}
	}
}

// What grew and what shrank are nearly the same: shares are of both, and what has less than 1 % of both is hidden.
func TestTheTreeOfADifferenceHasSharesOfWhatGrewAndShrank(t *testing.T) {
	at, small := time.Unix(1, 0), stack.Stack{python("log", "/srv/log.py", 3), main}
	m := New(ByLine, Memory)
	m.Update(profile.Memory, at, []Row{memory(server, kv, "device", 0, 1<<30, 0), memory(server, load, "device", 0, 2<<30, 0)})
	m.Mark(at)
	m.Key("d")
	m.Key("t")
	require.NotContains(t, show(m, 80), "main")
	m.Update(profile.Memory, at.Add(time.Second), []Row{
		memory(server, kv, "device", 0, 2<<30, 0), memory(server, load, "device", 0, 1<<30+10<<20, 0), memory(server, small, "device", 0, 1<<20, 0),
	})
	got := show(m, 80)
	for _, line := range []string{
		`\+11\.0 MiB +0\.5 % +main \(serve\.py:12\)`, `\+1\.00 GiB +\+1\.00 GiB +50\.2 % +GPU.*_tensors \(model\.py:141\)`,
		`-1014 MiB +-1014 MiB +-49\.7 % +Model\.load \(model\.py:20\)`,
	} {
		require.Regexp(t, line, got)
	}
	require.NotContains(t, got, "log.py")
}

// TestTheFileAndLineAreWholeAtEveryWidth down to where nothing but the name fits.
func TestTheFileAndLineAreWholeAtEveryWidth(t *testing.T) {
	m := New(ByLine, Memory)
	m.Update(profile.Memory, time.Unix(1, 0), serving())
	for width := 30; width < 160; width++ {
		require.Contains(t, show(m, width), "(model.py:141)", width)
		for line := range strings.SplitSeq(show(m, width), "\n") {
			require.LessOrEqual(t, len([]rune(line)), width)
		}
	}
}

func TestWhatAMarkIsComparedWithBeginsWithTheMark(t *testing.T) {
	at := time.Unix(1, 0)
	m := New(ByLine, Memory, Launches)
	m.Update(profile.Memory, at, serving())
	m.Mark(at)
	m.Key("d")
	require.Equal(t, "Nothing has changed since the mark.\n", show(m, 80))
	m.Key(Tab)
	m.Update(profile.Calls, at.Add(time.Second), calls()) // counted from after the mark on
	require.Contains(t, show(m, 80), "+900")
}
