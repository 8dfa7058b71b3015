// SPDX-License-Identifier: Apache-2.0

package jsonl

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/internal/format/screen"
	"github.com/gpu-gadgets/gpu-gadgets/internal/profile"
	"github.com/gpu-gadgets/gpu-gadgets/internal/profile/fixture"
	"github.com/gpu-gadgets/gpu-gadgets/internal/stack"
)

var update = flag.Bool("update", false, "rewrite the golden files")

func TestLines(t *testing.T) {
	p := fixture.Small()
	var b bytes.Buffer
	e := NewEncoder(&b)
	rows := map[string]bool{}
	for n, r := range p.Rows {
		id := profile.RowID{Process: r.Process.ID, StackID: uint64(n + 1), Kind: r.Kind, Device: r.Device}
		require.NoError(t, e.Row(p.Time, id, r))
		rows[id.Hash()] = true
	}
	require.Len(t, rows, len(p.Rows))
	first := p.Rows[0]
	require.NoError(t, e.OOM(profile.OOM{
		Time: p.Time, Process: first.Process, Stack: first.Stack, API: "cuMemAlloc_v2",
		Error: "CUDA_ERROR_OUT_OF_MEMORY", Device: 3, RequestedBytes: 1 << 30, InuseBytes: 12 << 20,
		Holders: []profile.Holder{{Stack: first.Stack, Bytes: 12 << 20}},
	}))

	const path = "testdata/small.jsonl"
	if *update {
		require.NoError(t, os.MkdirAll("testdata", 0o755))
		require.NoError(t, os.WriteFile(path, b.Bytes(), 0o644))
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, string(want), b.String())

	lines := strings.Split(strings.TrimSuffix(b.String(), "\n"), "\n")
	require.Len(t, lines, len(p.Rows)+1)
	for _, line := range lines {
		require.True(t, json.Valid([]byte(line)))
	}
}

func TestFramesOfLibrariesAndKernelsAreMarked(t *testing.T) {
	var b bytes.Buffer
	require.NoError(t, NewEncoder(&b).Row(time.Time{}, profile.RowID{}, profile.Row{Stack: stack.Stack{
		{Kind: stack.KindKernel, Function: "gemm"},
		{Kind: stack.KindPython, Function: "Condition.wait", File: "/usr/lib/python3.11/threading.py", Line: 327, Library: true},
		{Kind: stack.KindPython, Function: "load_batch", File: "/app/train.py", Line: 18},
	}}))
	require.Contains(t, b.String(), `"stack":[{"function":"gemm","kind":"kernel"},`+
		`{"function":"Condition.wait","file":"/usr/lib/python3.11/threading.py","line":327,"kind":"python","library":true},`+
		`{"function":"load_batch","file":"/app/train.py","line":18,"kind":"python"}]`)
}

func TestNoNameInALineDrivesATerminal(t *testing.T) {
	const name = "\u009b2J\u202e\x7f\x1b["
	var b bytes.Buffer
	require.NoError(t, NewEncoder(&b).Row(time.Time{}, profile.RowID{}, profile.Row{
		Process: profile.Process{Comm: name}, Stack: stack.Stack{{Kind: stack.KindPython, Function: name, File: name}},
	}))
	line := strings.TrimSuffix(b.String(), "\n")
	require.Equal(t, screen.Clean(line), line)
	var back struct{ Comm string }
	require.NoError(t, json.Unmarshal([]byte(line), &back))
	require.Equal(t, name, back.Comm)
}

type full struct{}

func (full) Write([]byte) (int, error) { return 0, errors.New("no space left on device") }

func TestWriteErrorIsReported(t *testing.T) {
	require.ErrorContains(t, NewEncoder(full{}).Row(fixture.Small().Time, profile.RowID{}, profile.Row{}), "write jsonl: no space left")
}

func TestSpansAreNamedWhereTheyAreKnown(t *testing.T) {
	p := fixture.Spans()
	var b bytes.Buffer
	e := NewEncoder(&b)
	for _, r := range p.Rows {
		require.NoError(t, e.Row(p.Time, profile.RowID{Process: r.Process.ID, Kind: r.Kind}, r))
		require.NoError(t, e.Sample(p.Time, profile.RowID{}, r))
	}
	require.NoError(t, e.OOM(profile.OOM{Span: fixture.SpanIDs[0]}))
	require.NoError(t, e.OOM(profile.OOM{}))
	require.Equal(t, 3, strings.Count(b.String(), `"span_id":"00f067aa0ba902b7"`))
	require.Equal(t, 2, strings.Count(b.String(), `"span_id":"b7ad6b7169203331"`))
	require.Equal(t, 5, strings.Count(b.String(), "span_id"))
}

// TestARefusalOfAPoolHasItsOwnAccount: what it had before ig-gpu attached is in no row.
func TestARefusalOfAPoolHasItsOwnAccount(t *testing.T) {
	var b bytes.Buffer
	require.NoError(t, NewEncoder(&b).OOM(profile.OOM{API: profile.PoolAPI, InuseBytes: 2, PoolBytes: 78}))
	require.Contains(t, b.String(), `"inuse_bytes":2,"pool_allocated_bytes":78,`)
}

// TestCallsHaveTheirDevice: device 0 is one, too.
func TestCallsHaveTheirDevice(t *testing.T) {
	for device, want := range map[int32]string{0: `"device":0,`, 1: `"device":1,`, profile.UnknownDevice: `"device":-1,`} {
		var b bytes.Buffer
		require.NoError(t, NewEncoder(&b).Call(time.Unix(0, 0), profile.RowID{}, profile.Row{Kind: "launch", Device: device, Values: profile.Values{Calls: 3}}))
		require.Contains(t, b.String(), `"operation":"launch",`+want+`"calls":3`)
	}
}
