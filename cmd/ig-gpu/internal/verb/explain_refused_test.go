// SPDX-License-Identifier: Apache-2.0

package verb

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/inspektor-gadget/inspektor-gadget/pkg/datasource"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/gadget-service/api"
	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/internal/profile"
	"github.com/gpu-gadgets/gpu-gadgets/operators/judge/ooms"
	"github.com/gpu-gadgets/gpu-gadgets/operators/send/nvml"
)

const fromBefore = "Most of what the process held then was allocated before the watch began, or other processes held it"

// refusedBy is a refusal of the driver, which held so many bytes by so many lines.
func refusedBy(holders string, bytes uint64) ooms.Failure {
	return ooms.Failure{
		Comm: "python3", PID: 7, Frame: "next_batch (serve.py:30)", API: "cuMemAlloc_v2", Error: "CUDA_ERROR_OUT_OF_MEMORY", By: "driver",
		Holders: holders, InuseBytes: bytes, RequestedBytes: 2 << 30, Device: 0,
	}
}

// watched are the facts of a process whose driver counts so many bytes.
func watched(driver int64, refused ...ooms.Failure) *facts {
	f := newFacts([]uint32{7}, 10*time.Second)
	f.commands, f.read, f.driver, f.refused.all = []string{"python3 serve.py"}, 2, driver, refused
	if driver >= 0 {
		f.used[7] = map[string]uint64{"GPU-0": uint64(driver)}
	}
	return f
}

// holds adds a row that is held when the watch ends.
func (f *facts) holds(device int32, bytes int64) {
	if f.peaks.rows == nil {
		f.peaks.rows = map[profile.RowID]*peakRow{}
	}
	id := profile.RowID{Process: 1, Kind: "device", Device: device}
	f.peaks.rows[id] = &peakRow{row: profile.Row{Process: profile.Process{ID: 1, PID: 7}, Kind: "device", Device: device, Values: profile.Values{InuseBytes: bytes}}}
}

// TestTheLineThatIsRefusedIsNotBlamedForMemoryFromBefore the watch.
func TestTheLineThatIsRefusedIsNotBlamedForMemoryFromBefore(t *testing.T) {
	const blamed, notBlamed = "next_batch (serve.py:30): its allocation was refused.",
		"No line: an allocation was refused at next_batch (serve.py:30), but the lines that hold the memory are unknown."
	for _, f := range []*facts{watched(-1, refusedBy("", 0)), watched(80<<30, refusedBy("1.00 MiB f (a.py:1)", 1<<20))} {
		text := explained(t, f)
		require.Contains(t, text, fromBefore)
		require.Contains(t, text, notBlamed)
	}
	require.Contains(t, explained(t, watched(-1, refusedBy("9.00 GiB f (a.py:1)", 9<<30))), blamed)

	freed := watched(500<<20, refusedBy("60.0 GiB f (a.py:1)", 60<<30)) // it caught the error
	require.Contains(t, explained(t, freed), blamed)
	many := watched(8*71<<30, refusedBy("70.0 GiB f (a.py:1)", 70<<30)) // on each of its GPUs
	for device := range int32(8) {
		many.holds(device, 70<<30)
	}
	require.Contains(t, explained(t, many), blamed)
	require.NotContains(t, explained(t, many), fromBefore)

	tensors := refusedBy("1.00 GiB f (a.py:1)", 1<<30)
	tensors.API, tensors.Pool = profile.PoolAPI, ooms.Pool{AllocatedBytes: 78 << 30, ReservedBytes: 79 << 30, Refused: "cuMemAlloc_v2"}
	require.Contains(t, explained(t, watched(80<<30, tensors)), notBlamed)
	tensors.InuseBytes = 77 << 30
	require.Contains(t, explained(t, watched(80<<30, tensors)), blamed)
}

// TestContextsOfOthersAreNotHeldFromBefore: neither those of other ranks, nor those on other GPUs, are what a process held on one GPU.
func TestContextsOfOthersAreNotHeldFromBefore(t *testing.T) {
	ranks := watched(8*(3<<29), refusedBy("10.0 GiB f (a.py:1)", 10<<30))
	spread := watched(8<<29, refusedBy("3.00 GiB f (a.py:1)", 3<<30))
	spread.used[7] = map[string]uint64{}
	for n := range uint32(8) {
		ranks.used[7+n] = map[string]uint64{"GPU": 3 << 29}
		spread.used[7][string('a'+rune(n))] = 1 << 29
	}
	for _, f := range []*facts{ranks, spread} {
		text := explained(t, f)
		require.NotContains(t, text, fromBefore)
		require.Contains(t, text, "next_batch (serve.py:30): its allocation was refused.")
	}
	spread.refused.all[0].Device, spread.refused.all[0].Holders = profile.UnknownDevice, "3.00 GiB f (a.py:1)"
	require.Contains(t, explained(t, spread), fromBefore, "the rows are of all GPUs, too")
}

// TestAProcessThatDiesOfARefusalHeldWhatItHeld: when the watch ends its rows hold nothing, and the driver counts nothing for it.
func TestAProcessThatDiesOfARefusalHeldWhatItHeld(t *testing.T) {
	f := watched(500<<20, refusedBy("60.0 GiB load (serve.py:9)", 60<<30)) // the context, when the watch began
	f.finish(f.began.Add(10*time.Second), false, map[uint32]time.Time{7: f.began.Add(2 * time.Second)})
	text := explained(t, f)
	require.Contains(t, text, "It held 60.0 GiB on that GPU of what was allocated after ig-gpu attached: 60.0 GiB load (serve.py:9).\n")
	require.Contains(t, text, "next_batch (serve.py:30): its allocation was refused.")
	require.NotContains(t, text, fromBefore)
	require.NotContains(t, text, "Watch the process from its start")
	require.NotContains(t, text, "counts 500 MiB", "it is gone")
}

// TestARefusalSaysWhatIsNeededToJudgeIt: its size, its GPU, and why PyTorch's pool had no room.
func TestARefusalSaysWhatIsNeededToJudgeIt(t *testing.T) {
	r := refusedBy("40.0 GiB f (a.py:1)", 40<<30)
	r.API, r.Device = profile.PoolAPI, 3
	r.Pool = ooms.Pool{AllocatedBytes: 40 << 30, ReservedBytes: 79 << 30, Refused: "cuMemAlloc_v2", By: "driver", Unused: ooms.Unused{PiecesBytes: 39 << 30}}
	f := watched(-1, r)
	text := explained(t, f)
	require.Contains(t, text, "An allocation was refused: torch of 2.00 GiB on GPU 3 at next_batch (serve.py:30): CUDA_ERROR_OUT_OF_MEMORY.\n"+
		"    It held 40.0 GiB on that GPU: 40.0 GiB f (a.py:1); PyTorch's pool uses 40.0 GiB of its 79.0 GiB: 39.0 GiB are in pieces that are too small (fragmentation;")
	f.pids = append(f.pids, 8)
	require.Contains(t, explained(t, f), "An allocation was refused: python3[7] torch of 2.00 GiB")
}

// TestARefusalThatPyTorchRecoversFromIsNotOutOfMemory: its pool returns its cache, and asks the driver again.
func TestARefusalThatPyTorchRecoversFromIsNotOutOfMemory(t *testing.T) {
	at := func(r ooms.Failure, at time.Duration) ooms.Failure {
		r.At = uint64(at)
		return r
	}
	driver := refusedBy("40.0 GiB f (a.py:1)", 40<<30)
	pool := driver
	pool.API, pool.By = profile.PoolAPI, "torch"
	pool.Pool = ooms.Pool{AllocatedBytes: 41 << 30, ReservedBytes: 79 << 30, Refused: "cuMemAlloc_v2"}
	withTensors := func(refused ...ooms.Failure) *facts {
		f := watched(80<<30, refused...)
		f.peaks.rows = map[profile.RowID]*peakRow{{Process: 1}: {row: profile.Row{
			Process: profile.Process{ID: 1, PID: 7}, Kind: profile.KindTensor, Values: profile.Values{InuseBytes: 30 << 30},
		}}}
		f.places["tensor"] = &place{frame: "embed (model.py:5)", now: 30 << 30, isTensor: true}
		return f
	}
	text := explained(t, withTensors(at(driver, time.Second), at(driver, 2*time.Second)))
	require.Contains(t, text, "The driver refused 2 times, the last time cuMemAlloc_v2 of 2.00 GiB on GPU 0 at next_batch (serve.py:30): CUDA_ERROR_OUT_OF_MEMORY.\n"+
		"    PyTorch's pool was not out of memory after that: ")
	require.Contains(t, text, "embed (model.py:5): tensors that it made hold most (30.0 GiB)")
	require.NotContains(t, text, "refused: ")
	require.NotContains(t, text, "No allocation was refused")

	text = explained(t, withTensors(at(driver, time.Second), at(driver, time.Second), at(pool, 2*time.Second)))
	require.Contains(t, text, "An allocation was refused: torch of 2.00 GiB on GPU 0", "it is one")
	require.NotContains(t, text, "The driver refused")
	text = explained(t, withTensors(at(driver, time.Second), at(pool, time.Hour)))
	require.Contains(t, text, "An allocation was refused: torch of 2.00 GiB on GPU 0")
	require.Contains(t, text, "The driver refused cuMemAlloc_v2 of 2.00 GiB on GPU 0", "of another request")

	ended := withTensors(at(driver, time.Second))
	ended.peaks.rows = nil
	require.Contains(t, explained(t, ended), "An allocation was refused: cuMemAlloc_v2 of 2.00 GiB")
	pinned := driver
	pinned.IsHost = true
	require.Contains(t, explained(t, withTensors(pinned)), "An allocation was refused: cuMemAlloc_v2", "the pool has no memory of the host")
}

// TestOtherProcessesOnTheGPUsAreNamed where one is full: it may be time-sliced.
func TestOtherProcessesOnTheGPUsAreNamed(t *testing.T) {
	root := t.TempDir()
	for pid, command := range map[string]string{"11": "python3\x00other.py\x00", "12": "python3\x00small.py\x00"} {
		require.NoError(t, os.MkdirAll(filepath.Join(root, pid), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(root, pid, "cmdline"), []byte(command), 0o600))
	}
	require.NoError(t, os.MkdirAll(filepath.Join(root, "13"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(root, "13", "comm"), []byte("worker\n"), 0o600))
	cfg := Config{ProcFS: root}
	cfg.Machine.OpenGPUs = func() (nvml.Library, error) {
		return counting{{PID: 7, Bytes: 1 << 30}, {PID: 11, Bytes: 60 << 30}, {PID: 12, Bytes: 3 << 20}, {PID: 13, Bytes: 2 << 20}, {PID: 14, Bytes: 1 << 20}, {PID: 15}}, nil
	}
	f := watched(1<<30, refusedBy("1.00 GiB f (a.py:1)", 1<<30))
	f.refused.others = neighbours(cfg, f.counted(cfg))
	text := explained(t, f)
	require.Contains(t, text, "    When the watch ended, other processes held 60.0 GiB, on all GPUs:\n    60.0 GiB by 11 python3 other.py\n"+
		"    3.00 MiB by 12 python3 small.py\n    2.00 MiB by 13 [worker]\n    and 1 more\n")

	f.refused.all[0].By = "libvgpu.so"
	require.NotContains(t, explained(t, f), "other processes held 60.0 GiB", "it is the process's own limit")
	f.refused.all[0].By, f.refused.all[0].IsHost = "driver", true
	require.NotContains(t, explained(t, f), "other processes held 60.0 GiB")
	f.refused.all[0] = ooms.Failure{API: profile.PoolAPI, Error: "CUDA_ERROR_OUT_OF_MEMORY", By: "torch"}
	require.NotContains(t, explained(t, f), "other processes held 60.0 GiB", "the pool has a limit")
}

// TestDescendantsOfOneThatHasEndedAreStillWatched: a launcher that ends leaves ranks, of which some started during the watch.
func TestDescendantsOfOneThatHasEndedAreStillWatched(t *testing.T) {
	cfg := Config{ProcFS: t.TempDir()}
	cfg.Machine.OpenGPUs = func() (nvml.Library, error) {
		return counting{nvml.ProcessMemory{PID: 8, Bytes: 2 << 30}, nvml.ProcessMemory{PID: 9, Bytes: 3 << 30}, nvml.ProcessMemory{PID: 10, Bytes: 1 << 30}}, nil
	}
	f := watched(-1, refusedBy("1.00 GiB f (a.py:1)", 1<<30))
	f.users = []uint32{8}
	f.peaks.rows = map[profile.RowID]*peakRow{{Process: 2}: {row: profile.Row{Process: profile.Process{ID: 2, PID: 9}, Kind: "device"}}}
	others := neighbours(cfg, f.counted(cfg))
	require.Equal(t, int64(5<<30), f.driver)
	require.Equal(t, []neighbour{{10, "[]", 1 << 30}}, others)

	f = watched(-1, refusedBy("1.00 GiB f (a.py:1)", 1<<30))
	require.NotContains(t, explained(t, f), "python3[7] cuMemAlloc_v2")
	f.peaks.rows = map[profile.RowID]*peakRow{{Process: 2}: {row: profile.Row{Process: profile.Process{ID: 2, PID: 9}, Kind: "device"}}}
	require.Contains(t, explained(t, f), "An allocation was refused: python3[7] cuMemAlloc_v2")
}

// counting is a library of a vendor that counts memory.
type counting []nvml.ProcessMemory

func (c counting) Read() nvml.Reading              { return nvml.Reading{Processes: c} }
func (c counting) Processes() []nvml.ProcessMemory { return c }
func (counting) Close()                            {}

// TestALineIsNotBlamedForWhatTheGPUDoesNotSupport: NCCL and XLA ask for what few GPUs have, and then without it.
func TestALineIsNotBlamedForWhatTheGPUDoesNotSupport(t *testing.T) {
	f := newFacts([]uint32{7}, 10*time.Second)
	f.read = 2
	ds, err := datasource.New(datasource.TypeSingle, "ooms")
	require.NoError(t, err)
	values := map[string]string{"frame": "init (nccl.py:5)", "api": "cuMemCreate", "error": "CUDA_ERROR_NOT_PERMITTED", "refused_by": "driver"}
	fields := map[string]datasource.FieldAccessor{}
	for name := range values {
		fields[name], err = ds.AddField(name, api.Kind_String)
		require.NoError(t, err)
	}
	p, err := ds.NewPacketSingle()
	require.NoError(t, err)
	for name, value := range values {
		require.NoError(t, fields[name].PutString(p, value))
	}
	f.ooms(ds, []datasource.Data{p})
	var text strings.Builder
	require.NoError(t, writeSentences(&text, compose(f), false))
	require.Contains(t, text.String(), "An allocation failed, though not for lack of memory: cuMemCreate at init (nccl.py:5): CUDA_ERROR_NOT_PERMITTED.")
	require.Contains(t, text.String(), "No allocation was refused during the watch.")
	require.NotContains(t, text.String(), "init (nccl.py:5): its allocation was refused")
}
