// SPDX-License-Identifier: Apache-2.0

package torch

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/internal/process/procmaps"
)

func TestAnAllocatorInThePlaceOfThePoolIsSaidOnce(t *testing.T) {
	var q quiet
	see := func(asked map[uint32]uint64) []string {
		q.read()
		return q.see(asked)
	}
	require.Empty(t, see(map[uint32]uint64{7: 1000}), "no PyTorch was found there")
	q.find(7, "python3", "")
	q.find(8, "train", "")
	q.find(9, "idle", "")
	all := map[uint32]uint64{7: 1000, 8: 1000, 9: quietAfter - 1}
	require.Empty(t, see(all), "its pools may be read later")
	q.reported(8)
	lines := see(all)
	require.Len(t, lines, 1)
	require.Contains(t, lines[0], "PyTorch of python3[7] has reported no tensor during 1000 allocations")
	require.Empty(t, see(all), "once")
	all[9]++
	require.Empty(t, see(all))
	require.Len(t, see(all), 1)

	delete(all, 8) // it ends, and another has its number
	require.Empty(t, see(all))
	q.find(8, "other", "")
	all[8] = quietAfter
	require.Empty(t, see(all))
	require.Len(t, see(all), 1)
}

// The pools may be read less often than the allocations.
func TestAReadingCountsOnlyAfterOneOfThePools(t *testing.T) {
	var q quiet
	q.find(7, "python3", "")
	all := map[uint32]uint64{7: 1000}
	for range 3 * quietReadings {
		require.Empty(t, q.see(all))
	}
	q.read()
	require.Empty(t, q.see(all))
	require.Empty(t, q.see(all), "the same reading of the pools")
	q.read()
	require.Len(t, q.see(all), 1)
}

// Most processes end without a word, and a daemon runs for months.
func TestQuietProcessesAreNotRememberedForEver(t *testing.T) {
	var q quiet
	for pid := range uint32(3 * maxQuiet) {
		q.find(pid, "python3", "")
	}
	require.LessOrEqual(t, len(q.found), maxQuiet)
}

// JAX on several GPUs, with PyTorch only for its DataLoader: the driver's allocations are none of PyTorch's.
func TestWhoUsesPyTorchOnTheCPUIsNotReported(t *testing.T) {
	procfs := t.TempDir()
	for pid, library := range map[uint32]string{7: "libc10_cuda.so", 8: "libc10.so", 9: "libc10_hip.so"} {
		dir := filepath.Join(procfs, fmt.Sprint(pid))
		require.NoError(t, os.Mkdir(dir, 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(dir, "stat"), []byte("1 (python3) S 1 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 5 0\n"), 0o644))
		require.NoError(t, os.WriteFile(filepath.Join(dir, "maps"), []byte("1000-2000 r-xp 00000000 fe:00 7                          /torch/lib/"+library+"\n"), 0o644))
	}
	maps := procmaps.NewCache(procmaps.Config{ProcFS: procfs})
	q := quiet{maps: maps}
	all := map[uint32]uint64{}
	var lines []string
	for pid := range uint32(4) {
		q.find(7+pid, "python3", "") // the last has ended
		all[7+pid] = quietAfter
	}
	for range quietReadings {
		q.read()
		lines = append(lines, q.see(all)...)
	}
	require.Len(t, lines, 2, "%v", lines)
	require.NotContains(t, fmt.Sprint(lines), "python3[8]")
	require.Contains(t, lines[0], "or the process does not use the GPU through PyTorch")
}
