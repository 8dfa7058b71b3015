// SPDX-License-Identifier: Apache-2.0

package pystack

import (
	"fmt"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// sample attaches the sampler to the CPU clock, as ig does.
func sample(t testing.TB, c *ebpf.Collection, hz uint64) (stop func()) {
	t.Helper()
	var fds []int
	stop = func() {
		for _, fd := range fds {
			unix.Close(fd)
		}
		fds = nil
	}
	t.Cleanup(func() { stop() })
	for cpu := range runtime.NumCPU() {
		fd, err := unix.PerfEventOpen(&unix.PerfEventAttr{
			Type: unix.PERF_TYPE_SOFTWARE, Config: unix.PERF_COUNT_SW_CPU_CLOCK,
			Sample_type: unix.PERF_SAMPLE_RAW, Sample: hz, Bits: unix.PerfBitFreq,
		}, -1, cpu, -1, unix.PERF_FLAG_FD_CLOEXEC)
		if err != nil {
			t.Fatal(err)
		}
		fds = append(fds, fd)
		if err := unix.IoctlSetInt(fd, unix.PERF_EVENT_IOC_SET_BPF, c.Programs["sampler"].FD()); err != nil {
			t.Fatal(err)
		}
		if err := unix.IoctlSetInt(fd, unix.PERF_EVENT_IOC_ENABLE, 0); err != nil {
			t.Fatal(err)
		}
	}
	return stop
}

// until waits for so many samples, however much of the processor the program gets.
func until(t testing.TB, c *ebpf.Collection, samples uint64) {
	t.Helper()
	for end := time.Now().Add(3 * time.Minute); ; time.Sleep(20 * time.Millisecond) {
		n := uint64(0)
		for _, v := range rows(t, c) {
			n += v.Samples
		}
		if n >= samples {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%d samples in three minutes, want %d", n, samples)
		}
	}
}

func rows(t testing.TB, c *ebpf.Collection) map[rowKey]row {
	t.Helper()
	out := map[rowKey]row{}
	var k rowKey
	var v row
	it := c.Maps["rows_by_stack"].Iterate()
	for it.Next(&k, &v) {
		out[k] = v
	}
	if err := it.Err(); err != nil {
		t.Fatal(err)
	}
	return out
}

// TestProfileShares: functions that use 50, 30 and 20 % of the CPU have these
// shares of the samples, on lines of theirs, and the thread holds the GIL.
func TestProfileShares(t *testing.T) {
	// From the line of `def`, where a call that has just begun is, to the one of
	// `return`.
	body := map[string][]uint32{"half": {12, 16}, "third": {19, 23}, "fifth": {26, 30}}
	for _, python := range pythons(t) {
		t.Run(filepath.Base(python), func(t *testing.T) {
			w := start(t, python, "testdata/shares.py")
			w.read(t, nil)
			resume := w.hold(t)
			c := load(t, onCPU, w.Process.Pid)
			// Often, so that few of the program's seconds have enough samples.
			stop := sample(t, c, 4999)
			resume()
			until(t, c, 2000)
			stop()
			w.in.Close()
			got := rows(t, c)
			used := map[string]float64{}
			w.read(t, &used)

			samples := map[string]float64{}
			var sum, gil, useful float64
			for k, v := range got {
				sum += float64(v.Samples)
				gil += float64(v.GIL)
				f := frames(t, c, k.Stack)
				if len(f) == 0 {
					t.Errorf("%d samples have no frames", v.Samples)
					continue
				}
				lines, ours := body[f[0].name]
				if !ours {
					continue // main() itself
				}
				if f[0].line < lines[0] || f[0].line > lines[1] {
					t.Errorf("%s at line %d, it has %v", f[0].name, f[0].line, lines)
				}
				if len(f) != 3 || f[1].name != "main" || f[2].name != "<module>" {
					t.Errorf("stack of %s: %v", f[0].name, f)
				}
				samples[f[0].name] += float64(v.Samples)
				useful += float64(v.Samples)
			}
			if useful < 1800 {
				t.Fatalf("%v of 2000 samples are in functions that do something", useful)
			}
			all := used["half"] + used["third"] + used["fifth"]
			for name := range body {
				is, want := 100*samples[name]/useful, 100*used[name]/all
				t.Logf("%s: %.1f %% of %v samples, used %.1f %%", name, is, useful, want)
				// Of 1800 samples, 5 points are more than four standard deviations.
				if is-want > 5 || want-is > 5 {
					t.Errorf("%s: %.1f %% of the samples, used %.1f %% of the time", name, is, want)
				}
			}
			if gil < 0.98*sum {
				t.Errorf("the GIL was held in %v of %v samples of the only thread", gil, sum)
			}
		})
	}
}

// TestWallCountsSleepers: each pass of the iterator is one sample of each thread.
func TestWallCountsSleepers(t *testing.T) {
	w := start(t, pythons(t)[0], "testdata/threads.py", "30")
	want := truth(t, w)
	c := load(t, wall, w.Process.Pid)
	const passes = 5
	for range passes {
		threads(t, c)
	}
	stacks := map[string]uint64{}
	for _, f := range want {
		stacks[fmt.Sprint(f)] += passes
	}
	for k, v := range rows(t, c) {
		key := fmt.Sprint(frames(t, c, k.Stack))
		if stacks[key] == v.Samples {
			delete(stacks, key)
		}
	}
	if len(stacks) != 0 {
		t.Errorf("not counted %d times per thread: %v", passes, stacks)
	}
}
