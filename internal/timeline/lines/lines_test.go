// SPDX-License-Identifier: Apache-2.0

package lines

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/gpu-gadgets/gpu-gadgets/internal/process/numa"
	"github.com/gpu-gadgets/gpu-gadgets/internal/timeline/weave"
)

var me = weave.Thread{Process: 0xabc, PID: 7, TID: 8, Comm: "a\xffb"}

func call(n uint64) *weave.Call {
	return &weave.Call{
		Thread: me, Start: 1000 + n, End: 1500 + n, Function: "cuLaunchKernel", Kind: weave.Launch, Kernel: "gemm",
		Grid: [3]uint32{4, 2, 1}, Block: [3]uint32{64, 1, 1}, Device: weave.DeviceOf(0), Stream: 0x7f20,
		Stack: &weave.Stack{ID: 0xffffffffffffffff, Labels: []string{"f (x.py:1)", "<module> (x.py:9)"}},
	}
}

func read(t *testing.T, path string) (all []map[string]any) {
	t.Helper()
	b, err := os.ReadFile(path)
	require.NoError(t, err)
	require.True(t, len(b) == 0 || b[len(b)-1] == '\n', "the last line is not whole")
	for line := range strings.Lines(string(b)) {
		var v map[string]any
		require.NoError(t, json.Unmarshal([]byte(line), &v), line)
		all = append(all, v)
	}
	return all
}

func TestLinesHaveAllEvents(t *testing.T) {
	path := filepath.Join(t.TempDir(), "e.jsonl")
	w, err := Create(path, 1_700_000_000*time.Second)
	require.NoError(t, err)
	w.Call(call(0))
	w.Call(call(9))
	w.Host(&weave.Host{Thread: me, Kind: weave.Syscall, Start: 5, End: 6, Name: "pread64", File: "weights.bin", Bytes: 4096, Result: 0})
	w.Host(&weave.Host{Thread: me, Kind: weave.Slept, Start: 5, End: 6, Name: "sleeping", Reason: "futex_do_wait"})
	w.Memory(&me, 77, numa.Process{RSSBytes: 4096}, map[string]uint64{"0": 4096})
	w.Node(77, numa.Node{Node: 1, TotalBytes: 1 << 40})
	w.Inuse(&weave.Inuse{Thread: me, At: 78, Device: weave.DeviceOf(1), Bytes: 0})
	w.Inuse(&weave.Inuse{Thread: me, At: 78, IsHost: true, Bytes: 4096})
	require.NoError(t, w.Close())
	all := read(t, path)
	require.Len(t, all, 9)
	require.Equal(t, map[string]any{
		"type": "inuse", "time": "2023-11-14T22:13:20.000000078Z", "boot_ns": 78.0, "process": "abc", "pid": 7.0, "comm": "a\ufffdb",
		"device": 1.0, "bytes": 0.0,
	}, all[7])
	require.Equal(t, true, all[8]["host"])
	require.NotContains(t, all[8], "device")
	require.Equal(t, map[string]any{"type": "stack", "stack": "ffffffffffffffff", "frames": []any{"f (x.py:1)", "<module> (x.py:9)"}}, all[0])
	require.Equal(t, map[string]any{
		"type": "call", "time": "2023-11-14T22:13:20.000001Z", "start_boot_ns": 1000.0, "end_boot_ns": 1500.0, "process": "abc",
		"pid": 7.0, "tid": 8.0, "comm": "a\ufffdb", "function": "cuLaunchKernel", "kind": "launch", "kernel": "gemm",
		"grid": []any{4.0, 2.0, 1.0}, "block": []any{64.0, 1.0, 1.0}, "device": 0.0, "stream": "7f20", "stack": "ffffffffffffffff",
	}, all[1])
	require.Equal(t, 0.0, all[3]["result"])
	require.Equal(t, "futex_do_wait", all[4]["wchan"])
	require.Equal(t, map[string]any{"0": 4096.0}, all[5]["node_bytes"])
	require.NotContains(t, all[5], "tid")
	require.Equal(t, float64(1<<40), all[6]["total_bytes"])
}

// TestFullDisk: the file ends with a whole line, and missing lines are counted.
func TestFullDisk(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skipf("needs root to mount a small disk; runs as user %d", os.Geteuid())
	}
	dir := t.TempDir()
	if err := unix.Mount("small", dir, "tmpfs", 0, "size=256k"); err != nil {
		t.Skipf("cannot mount a small disk: %v", err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	path := filepath.Join(dir, "e.jsonl")
	w, err := Create(path, 0)
	require.NoError(t, err)
	const n = 5000
	for i := range uint64(n) {
		w.Call(call(i))
	}
	err = w.Close()
	require.ErrorIs(t, err, syscall.ENOSPC)
	require.ErrorContains(t, err, "no space is left in "+dir)
	require.EqualValues(t, n+1, w.Lines()+w.Unwritten())
	require.EqualValues(t, w.Lines(), len(read(t, path)))
	require.NotZero(t, w.Lines())
}

// TestEndedReader is an error, no signal.
func TestEndedReader(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pipe")
	require.NoError(t, unix.Mkfifo(path, 0o600))
	reader, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	require.NoError(t, err)
	w, err := Create(path, 0)
	require.NoError(t, err)
	w.Call(call(0))
	require.NoError(t, w.Flush())
	require.NoError(t, reader.Close())
	w.Call(call(1))
	require.ErrorContains(t, w.Flush(), "its reader has exited")
	require.EqualValues(t, 1, w.Unwritten())
	require.ErrorContains(t, w.Close(), "1 lines are not in it")
}
