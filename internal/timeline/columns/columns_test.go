// SPDX-License-Identifier: Apache-2.0

package columns

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/parquet-go/parquet-go"
	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/internal/timeline/lines"
	"github.com/gpu-gadgets/gpu-gadgets/internal/timeline/weave"
)

// row is a row as a reader decodes it.
type row struct {
	Type        string  `parquet:"type,optional"`
	Time        *int64  `parquet:"time,optional,timestamp(nanosecond)"`
	Start       *int64  `parquet:"start_boot_ns,optional"`
	End         *int64  `parquet:"end_boot_ns,optional"`
	Process     *uint64 `parquet:"process,optional"`
	PID         *int32  `parquet:"pid,optional"`
	TID         *int32  `parquet:"tid,optional"`
	Comm        *string `parquet:"comm,optional"`
	Function    *string `parquet:"function,optional"`
	Kind        *string `parquet:"kind,optional"`
	Kernel      *string `parquet:"kernel,optional"`
	GridX       *int64  `parquet:"grid_x,optional"`
	BlockX      *int64  `parquet:"block_x,optional"`
	GridY       *int64  `parquet:"grid_y,optional"`
	BlockY      *int64  `parquet:"block_y,optional"`
	GridZ       *int64  `parquet:"grid_z,optional"`
	BlockZ      *int64  `parquet:"block_z,optional"`
	Shared      *int64  `parquet:"shared_bytes,optional"`
	Device      *int32  `parquet:"device,optional"`
	Stream      *uint64 `parquet:"stream,optional"`
	Bytes       *int64  `parquet:"bytes,optional"`
	Direction   *string `parquet:"direction,optional"`
	Error       *string `parquet:"error,optional"`
	Stack       *uint64 `parquet:"stack,optional"`
	Frames      *string `parquet:"frames,optional"`
	CPU         *int32  `parquet:"cpu,optional"`
	Reason      *string `parquet:"reason,optional"`
	WChan       *string `parquet:"wchan,optional"`
	Call        *string `parquet:"call,optional"`
	File        *string `parquet:"file,optional"`
	Result      *int64  `parquet:"result,optional"`
	FileBytes   *int64  `parquet:"file_bytes,optional"`
	AnonBytes   *int64  `parquet:"anon_bytes,optional"`
	OnHost      *int32  `parquet:"on_host,optional"`
	Launch      *int64  `parquet:"launch_boot_ns,optional"`
	GPUStream   *int64  `parquet:"gpu_stream,optional"`
	Graph       *int64  `parquet:"graph,optional"`
	Node        *uint64 `parquet:"node,optional"`
	Correlation *int64  `parquet:"correlation,optional"`
}

// asLine is the row as the JSON line of the same event.
func (r *row) asLine() map[string]any {
	line := map[string]any{"type": r.Type}
	put(line, "start_boot_ns", r.Start)
	put(line, "end_boot_ns", r.End)
	put(line, "pid", r.PID)
	put(line, "tid", r.TID)
	put(line, "shared_bytes", r.Shared)
	put(line, "device", r.Device)
	put(line, "bytes", r.Bytes)
	put(line, "cpu", r.CPU)
	put(line, "result", r.Result)
	put(line, "file_bytes", r.FileBytes)
	put(line, "anon_bytes", r.AnonBytes)
	put(line, "launch_boot_ns", r.Launch)
	put(line, "gpu_stream", r.GPUStream)
	put(line, "graph", r.Graph)
	put(line, "correlation", r.Correlation)
	if r.Node != nil {
		line["node"] = strconv.FormatUint(*r.Node, 10)
	}
	if r.Time != nil {
		line["time"] = time.Unix(0, *r.Time).UTC().Format(time.RFC3339Nano)
	}
	for name, id := range map[string]*uint64{"process": r.Process, "stream": r.Stream, "stack": r.Stack} {
		if id != nil {
			line[name] = strconv.FormatUint(*id, 16)
		}
	}
	for name, s := range map[string]*string{
		"comm": r.Comm, "function": r.Function, "kind": r.Kind, "kernel": r.Kernel, "direction": r.Direction, "error": r.Error,
		"reason": r.Reason, "wchan": r.WChan, "call": r.Call, "file": r.File,
	} {
		if s != nil {
			line[name] = *s
		}
	}
	if r.GridX != nil {
		line["grid"] = []any{float64(*r.GridX), float64(*r.GridY), float64(*r.GridZ)}
		line["block"] = []any{float64(*r.BlockX), float64(*r.BlockY), float64(*r.BlockZ)}
	}
	switch r.Type {
	case "stack":
		var frames []any
		for f := range strings.SplitSeq(*r.Frames, "\n") {
			frames = append(frames, f)
		}
		line["frames"] = frames
	case "inuse":
		line["boot_ns"] = line["start_boot_ns"]
		delete(line, "start_boot_ns")
		delete(line, "end_boot_ns")
		if r.OnHost != nil {
			line["host"] = true
		}
	}
	return line
}

func put[T int32 | int64](line map[string]any, name string, n *T) {
	if n != nil {
		line[name] = float64(*n)
	}
}

func readRows(t *testing.T, path string) (out []map[string]any) {
	t.Helper()
	b, err := os.ReadFile(path)
	require.NoError(t, err)
	r := parquet.NewGenericReader[row](bytes.NewReader(b))
	defer r.Close()
	for {
		some := make([]row, 64)
		n, err := r.Read(some)
		for i := range some[:n] {
			out = append(out, some[i].asLine())
		}
		if errors.Is(err, io.EOF) {
			return out
		}
		require.NoError(t, err)
	}
}

func readLines(t *testing.T, path string) (out []map[string]any) {
	t.Helper()
	b, err := os.ReadFile(path)
	require.NoError(t, err)
	for line := range strings.Lines(string(b)) {
		var v map[string]any
		require.NoError(t, json.Unmarshal([]byte(line), &v))
		out = append(out, v)
	}
	return out
}

// TestRowsAreTheLines: random events of all kinds are the same in the table as in the
// JSON lines, in the same order.
func TestRowsAreTheLines(t *testing.T) {
	const offset = 1_700_000_000 * time.Second
	dir := t.TempDir()
	w, err := Create(filepath.Join(dir, "e.parquet"), offset)
	require.NoError(t, err)
	l, err := lines.Create(filepath.Join(dir, "e.jsonl"), offset)
	require.NoError(t, err)
	rng := rand.New(rand.NewPCG(3, 4))
	some := func(all ...string) string { return all[rng.IntN(len(all))] }
	few := func(n uint64) uint64 { return rng.Uint64N(n) * rng.Uint64N(2) }
	for range 2000 {
		by := weave.Thread{Process: rng.Uint64() | 1<<63, PID: 7, TID: 8, Comm: some("python3", "a\xffb", "worker-ü")}
		start := 1 + rng.Uint64N(1<<50)
		end := start + rng.Uint64N(1000)
		id := few(9)
		stack := &weave.Stack{ID: id * 0x1fffffffffffffff, Labels: []string{"leaf (x.py:" + strconv.FormatUint(id, 10) + ")", "<module> (y.py:1)"}}
		switch rng.IntN(5) {
		case 0, 1:
			c := &weave.Call{
				Thread: by, Start: start, End: end, Function: some("cuLaunchKernel", "ncclAllReduce"), Kind: weave.Launch,
				Kernel: some("", "gemm"), Shared: uint32(few(100)), Device: weave.DeviceOf(int32(rng.IntN(4)) - 1),
				Stream: few(1 << 60), Bytes: few(1 << 40), Direction: some("", "HtoD"), Error: some("", "", "CUDA_ERROR_X"), Stack: stack,
			}
			if rng.IntN(2) == 0 {
				c.Grid, c.Block = [3]uint32{rng.Uint32() | 1, 2, 3}, [3]uint32{4, 5, 6}
			}
			w.Call(c)
			l.Call(c)
		case 2:
			h := &weave.Host{
				Thread: by, Kind: weave.HostKind(1 + rng.IntN(5)), Start: start, End: end, CPU: uint32(rng.IntN(3)), Name: some("", "read"),
				Reason: some("", "futex_do_wait"), File: some("", "weights.bin"), Result: rng.Int64N(1<<40) - 1<<39,
				Bytes: few(1 << 30), FileBytes: few(1 << 30), AnonBytes: few(1 << 30), Stack: stack,
			}
			w.Host(h)
			l.Host(h)
		case 3:
			k := &weave.Kernel{
				Thread: by, Start: start, End: end, Launch: few(1 << 50), Name: "gemm", Function: some("", "cuLaunchKernel"),
				Device: weave.DeviceOf(int32(rng.IntN(2))), Stream: uint32(few(100)), Graph: uint32(few(3)), Node: rng.Uint64(),
				Correlation: rng.Uint32(), Stack: stack,
			}
			w.Kernel(k)
			l.Kernel(k)
		case 4:
			u := &weave.Inuse{Thread: by, At: start, Device: weave.DeviceOf(int32(rng.IntN(3)) - 1), IsHost: rng.IntN(2) == 0, Bytes: few(1 << 40)}
			w.Inuse(u)
			l.Inuse(u)
		}
	}
	require.NoError(t, w.Close())
	require.NoError(t, l.Close())
	got, want := readRows(t, filepath.Join(dir, "e.parquet")), readLines(t, filepath.Join(dir, "e.jsonl"))
	require.Len(t, got, len(want))
	for n := range want {
		require.Equal(t, want[n], got[n], "row %d", n)
	}
	require.Equal(t, uint64(len(want)), w.Lines())
	types := map[string]bool{}
	for _, v := range want {
		types[v["type"].(string)] = true
	}
	require.Len(t, types, 9, "%v", types)
	require.True(t, slices.ContainsFunc(want, func(v map[string]any) bool { return v["comm"] == "a\ufffdb" }))
}

// TestAFileThatIsNotClosedOpens: as a killed run leaves it, with what was flushed.
func TestAFileThatIsNotClosedOpens(t *testing.T) {
	path := filepath.Join(t.TempDir(), "e.parquet")
	w, err := Create(path, 0)
	require.NoError(t, err)
	require.Empty(t, readRows(t, path))
	u := &weave.Inuse{Thread: weave.Thread{Process: 1, PID: 1, Comm: "x"}, At: 1, Bytes: 5}
	w.Inuse(u)
	require.NoError(t, w.Flush())
	require.Empty(t, readRows(t, path), "it waits for more")
	w.flush = w.flush.Add(-flushEvery)
	require.NoError(t, w.Flush())
	require.Len(t, readRows(t, path), 1)
	w.Inuse(u)
	require.NoError(t, w.Close())
	require.Len(t, readRows(t, path), 2)
}
