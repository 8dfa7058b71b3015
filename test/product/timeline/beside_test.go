// SPDX-License-Identifier: Apache-2.0

package timeline

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/gpu-gadgets/gpu-gadgets/examples/simcuda/journal"
)

// TestMemoryInUse: run beside cuda_kernel, cuda_alloc's counters show how much a process
// holds of each GPU, as in the driver's journal; streams are named by GPU.
func TestMemoryInUse(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("SIMCUDA_JOURNAL", dir)
	t.Setenv("SIMCUDA_DEVICES", "2")
	w := run(t, "../../test/product/timeline/gpus.py")
	tr := w.trace("--beside", "cuda_alloc", "--events-out", filepath.Join(t.TempDir(), "events.jsonl"))
	w.work()
	counters := []string{"GPU 0 in use, bytes", "GPU 1 in use, bytes"}
	for begun := time.Now(); ; time.Sleep(100 * time.Millisecond) {
		require.Less(t, time.Since(begun), waitLimit, "there is no memory in the timeline")
		if f := read(t, tr.path); len(f.counters[counters[0]]) > 0 && len(f.counters[counters[1]]) > 0 {
			break
		}
	}
	begun := bootTime()
	w.work()
	f := tr.end()
	require.Empty(t, f.Metadata["lost"])
	truth := readHeld(t, dir)
	for device, name := range counters {
		points := f.counters[name]
		checked, most := 0, 0.0
		for _, p := range points {
			if at := uint64(p[0]); at > begun {
				// Read shortly before, on a busy machine.
				require.True(t, truth.has(device, at-uint64(time.Second), at, uint64(p[1])), "%s: %v in no moment before %d", name, p[1], at)
				checked, most = checked+1, max(most, p[1])
			}
		}
		require.Greater(t, checked, 5)
		require.Greater(t, most, 4096.0)
		last := truth[device][len(truth[device])-1]
		require.EqualValues(t, last.bytes, points[len(points)-1][1], "what it holds at the end")
	}
	launches := map[string]int{}
	for track := range f.tracks {
		if gpu, _, ok := strings.Cut(track, ", stream "); ok {
			launches[gpu] += len(f.of(track, "launch"))
		}
	}
	require.Len(t, launches, 2, "%v", launches)
	require.Equal(t, 300, launches["GPU 0"]+launches["GPU 1"])
	require.Greater(t, min(launches["GPU 0"], launches["GPU 1"]), 50)
}

func clock(which int32) uint64 {
	var ts unix.Timespec
	_ = unix.ClockGettime(which, &ts)
	return uint64(ts.Nano())
}

func bootTime() uint64 { return clock(unix.CLOCK_BOOTTIME) }

// held is how much of each device a process holds, from times of CLOCK_BOOTTIME on.
type held map[int][]moment

type moment struct{ at, bytes uint64 }

func readHeld(t *testing.T, dir string) held {
	t.Helper()
	journals, err := journal.ReadDir(dir)
	require.NoError(t, err)
	offset := bootTime() - clock(unix.CLOCK_MONOTONIC)
	all, now, sizes := held{}, map[int]uint64{}, map[uint64]uint64{}
	for _, j := range journals {
		for _, r := range j.Records {
			device := int(r.Device)
			switch r.Type {
			case journal.Alloc:
				sizes[r.Seq] = r.Size
				now[device] += r.Size
			case journal.Free:
				now[device] -= sizes[r.AllocSeq]
			default:
				continue
			}
			all[device] = append(all[device], moment{r.TimeNS + offset, now[device]})
		}
	}
	return all
}

// has is whether so many bytes were held at a time between two.
func (h held) has(device int, from, until, bytes uint64) bool {
	var current uint64
	for _, m := range h[device] {
		if m.at > from && current == bytes {
			return true
		}
		if m.at > until {
			return false
		}
		current = m.bytes
	}
	return current == bytes
}

// TestCollectivesBesideCalls: calls of the driver, and of NCCL, of the same threads, in one
// file, in which each track has one name.
func TestCollectivesBesideCalls(t *testing.T) {
	pids := startTraining(t)

	path := filepath.Join(t.TempDir(), "trace.json.gz")
	html := filepath.Join(t.TempDir(), "trace.html")
	var f *file
	// A busy machine may take longer than a run to attach.
	for begun := time.Now(); f == nil || len(f.of(mainThread, "nccl")) == 0 || len(f.of(mainThread, "wait")) == 0; {
		require.Less(t, time.Since(begun), waitLimit, "the timeline is empty")
		cmd := exec.Command("../../../bin/ig-gpu", "run", "cuda_kernel", "--host", "--timeout", "5", "-o", "none",
			"--pid", strings.Join(pids, ","), "--beside", "nccl_trace,cuda_alloc", "--timeline-out", path, "--timeline-html", html)
		text, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", text)
		f = read(t, path)
	}
	require.NotEmpty(t, f.named(mainThread, "ncclAllReduce"))
	operations := 0
	for track := range f.tracks {
		if strings.HasPrefix(track, "NCCL, ") {
			operations += len(f.of(track, "nccl"))
		}
	}
	require.NotZero(t, operations)
	require.NotEmpty(t, f.processes)
	for pid, names := range f.processes {
		require.Contains(t, pids, fmt.Sprint(pid), "another process")
		require.Len(t, names, 1, "process %d is named twice", pid)
	}
	for track, times := range f.threadNames {
		require.Equal(t, 1, times, "track %v is named twice", track)
	}
	page, err := os.ReadFile(html)
	require.NoError(t, err)
	require.Contains(t, string(page), "ncclAllReduce")
	require.Contains(t, string(page), "cuStreamSynchronize")
}

// TestBesideIsRefusedWithAReason: an invalid --beside is reported before anything is attached.
func TestBesideIsRefusedWithAReason(t *testing.T) {
	w := run(t, "decode.py", "--steps", "1")
	for beside, want := range map[string]string{
		"cuda_kernel": "cuda_kernel is run already",
		"trace_tcp":   `"trace_tcp" is none of cuda_alloc, cuda_kernel, nccl_trace`,
	} {
		require.Contains(t, fails(t, w, "--beside", beside, "--timeline-out", filepath.Join(t.TempDir(), "t.gz")), want)
	}
	require.Contains(t, fails(t, w, "--beside", "cuda_alloc"), "--beside needs --timeline-out")
}
