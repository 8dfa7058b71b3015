// SPDX-License-Identifier: Apache-2.0

package verb

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestOddRanksAreThoseThatAreNotWhereMostAre(t *testing.T) {
	procfs := t.TempDir()
	process := func(pid, maps, environ string) {
		dir := filepath.Join(procfs, pid)
		require.NoError(t, os.MkdirAll(dir, 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(dir, "maps"), []byte(maps), 0o600))
		require.NoError(t, os.WriteFile(filepath.Join(dir, "environ"), []byte(environ), 0o600))
	}
	const nccl = "7f0000000000-7f0000001000 r-xp 00000000 08:01 7 /opt/libnccl.so.2\n"
	process("10", "", "A=1\x00")
	process("21", nccl, "A=1\x00RANK=2\x00")
	process("22", nccl, "RANK=1\x00")
	process("23", nccl, "RANK=0\x00")
	process("30", "", "RANK=0\x00")
	process("40", nccl, "A=1\x00")
	wait, load := []string{"<module> (train.py:60)", "synchronize (train.py:29)"}, []string{"<module> (train.py:60)", "load (train.py:41)"}
	threads := []thread{
		{PID: 10, TID: 10, Stack: []string{"<module> (torchrun:8)"}},
		{PID: 21, TID: 21, Stack: wait}, {PID: 22, TID: 22, Stack: load}, {PID: 23, TID: 23, Stack: wait},
		{PID: 23, TID: 99, Stack: load}, // no main thread
		{PID: 30, TID: 30, Stack: load}, // loads data for rank 0, and has no NCCL
		{PID: 40, TID: 40, Stack: load}, // has only loaded NCCL, with PyTorch
	}
	groups := grouped(ranksOf(procfs, threads))
	require.Equal(t, []odd{
		{Ranks: []int{2, 0}, Count: 2, IsDominant: true, Place: "synchronize (train.py:29)", PIDs: []uint32{21, 23}, Stack: wait},
		{Ranks: []int{1}, Count: 1, Place: "load (train.py:41)", PIDs: []uint32{22}, Stack: load},
	}, groups)
	var out bytes.Buffer
	require.NoError(t, writeOdd(&out, groups, false))
	require.Equal(t, `2 of 3 ranks are at synchronize (train.py:29). The others are not:

rank 1 at load (train.py:41)
  process 22
    load (train.py:41)
    <module> (train.py:60)
`, out.String())

	out.Reset()
	require.NoError(t, writeOdd(&out, groups[:1], false))
	require.Equal(t, "All 2 ranks are at synchronize (train.py:29).\n", out.String())
	out.Reset()
	require.NoError(t, writeOdd(&out, groups, true))
	require.Contains(t, out.String(), `{"ranks":[1],"count":1,"dominant":false,"place":"load (train.py:41)","pids":[22]`)

	for _, pid := range []string{"21", "22", "23"} {
		process(pid, nccl, "")
	}
	require.Equal(t, 1, ranksOf(procfs, threads)[1].rank, "without RANK, the place in the list")
	require.Equal(t, 0, ranksOf(procfs, threads)[0].rank)
}

// TestWorkersAreInNoGroup: a data loader's are forked, with the mappings and the environment of their rank. Ranks of two jobs
// may have the same numbers.
func TestWorkersAreInNoGroup(t *testing.T) {
	procfs := t.TempDir()
	var threads []thread
	start := func(pid, parent, rank int, stack ...string) {
		dir := filepath.Join(procfs, strconv.Itoa(pid))
		require.NoError(t, os.MkdirAll(dir, 0o755))
		for name, text := range map[string]string{
			"maps":    "7f0000000000-7f0000001000 r-xp 00000000 08:01 7 /opt/libnccl.so.2\n",
			"environ": fmt.Sprintf("WORLD_SIZE=4\x00RANK=%d\x00", rank),
			"stat":    fmt.Sprintf("%d (python3) S %d %d 0 0\n", pid, parent, pid),
		} {
			require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
		}
		threads = append(threads, thread{PID: uint32(pid), TID: uint32(pid), Stack: stack})
	}
	for job := range 2 {
		for rank := range 4 {
			line := "synchronize (train.py:29)"
			if job == 1 && rank == 3 {
				line = "load (train.py:41)"
			}
			pid := 100 + 10*job + rank
			start(pid, 1, rank, line)
			for worker := range 4 {
				start(1000+10*pid+worker, pid, rank, "_worker_loop (torch/utils/data/_utils/worker.py:320)")
			}
		}
	}
	groups := grouped(ranksOf(procfs, threads))
	require.Len(t, groups, 2)
	require.Equal(t, []uint32{100, 101, 102, 103, 110, 111, 112}, groups[0].PIDs)
	require.Equal(t, []uint32{113}, groups[1].PIDs)
	require.Equal(t, []int{3}, groups[1].Ranks)
}
