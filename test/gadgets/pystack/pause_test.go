// SPDX-License-Identifier: Apache-2.0

package pystack

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// window is the measurement of threads.py's loop: its longest pause in seconds, and the
// number of pauses by power of two of microseconds.
type window struct {
	Pause float64
	Over  map[int]int
}

// pauses are those of several windows: the longest of each in milliseconds, and all by
// power of two of microseconds.
type pauses struct {
	longest []float64
	over    map[int]int
}

func (p *pauses) add(w window) {
	p.longest = append(p.longest, 1e3*w.Pause)
	if p.over == nil {
		p.over = map[int]int{}
	}
	for power, count := range w.Over {
		p.over[power] += count
	}
}

// median is that of the longest pauses.
func (p pauses) median() float64 {
	return slices.Sorted(slices.Values(p.longest))[len(p.longest)/2]
}

func (p pauses) String() string {
	var text strings.Builder
	fmt.Fprintf(&text, "longest pause %.2f ms (median of %d; all %.2f to %.2f); pauses from",
		p.median(), len(p.longest), slices.Min(p.longest), slices.Max(p.longest))
	for _, power := range slices.Sorted(maps.Keys(p.over)) {
		fmt.Fprintf(&text, " %dµs:%d", 1<<power, p.over[power])
	}
	return text.String()
}

// TestDumpDoesNotPauseTheProcess: the longest pauses that a loop in the process
// sees while it is dumped over and over are not longer than while another process
// is, which costs the machine the same, and it is never in the state of a stopped
// one. That a dump which stops it would be seen is tried, too.
func TestDumpDoesNotPauseTheProcess(t *testing.T) {
	python := pythons(t)[0]
	w := start(t, python, "testdata/threads.py", "200")
	truth(t, w)
	other := start(t, python, "testdata/threads.py", "200")
	truth(t, other)
	self, control := load(t, dump, w.Process.Pid), load(t, dump, other.Process.Pid)
	threads(t, self) // caches
	threads(t, control)
	// The loop has the highest priority, so that other programs do not cause its pauses.
	realtime := &unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_FIFO, Priority: 1}
	if err := unix.SchedSetAttr(w.Process.Pid, realtime, 0); err != nil {
		t.Logf("the loop has no real-time priority (%v): the figures are those of a busy machine", err)
	}

	stopped := func() bool {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", w.Process.Pid))
		if err != nil {
			t.Fatal(err)
		}
		_, rest, _ := strings.Cut(string(stat), ") ")
		return rest[0] == 'T' || rest[0] == 't'
	}
	dumps := 0
	during := func(dump func()) func(time.Time) {
		return func(end time.Time) {
			for ; time.Now().Before(end); dumps++ {
				dump()
				if stopped() {
					t.Fatal("the process is stopped")
				}
			}
		}
	}
	const rounds, length = 7, 100 * time.Millisecond
	kinds := []struct {
		name string
		do   func(end time.Time)
	}{
		{"alone", func(time.Time) {}},
		{"while another process is dumped", during(func() { threads(t, control) })},
		{"while it is dumped", during(func() { threads(t, self) })},
		{"while it is stopped for each dump", func(end time.Time) {
			// Again and again: on a busy machine one stop may come after the window.
			for time.Now().Before(end) {
				_ = w.Process.Signal(unix.SIGSTOP)
				threads(t, self)
				_ = w.Process.Signal(unix.SIGCONT)
				time.Sleep(length / 10)
			}
		}},
	}
	measured := make([]pauses, len(kinds))
	for range rounds {
		for n, kind := range kinds {
			fmt.Fprintln(w.in, "window", length.Seconds())
			kind.do(time.Now().Add(length))
			var said window
			w.read(t, &said)
			measured[n].add(said)
			// Real-time threads have 95 % of a CPU, and others wait for it.
			time.Sleep(length / 4)
		}
	}
	longest := make([]float64, len(kinds))
	for n, kind := range kinds {
		longest[n] = measured[n].median()
		t.Logf("%s, windows of %v: %s", kind.name, length, measured[n])
	}
	t.Logf("%d dumps", dumps)
	// One millisecond: one or two interrupts may take that long on a virtual machine.
	most := 1.5*max(longest[0], longest[1]) + 1
	if longest[2] > most {
		t.Errorf("pauses of %.2f ms while the process is dumped, at most %.2f without", longest[2], most)
	}
	if longest[3] <= most {
		t.Errorf("a dump that stops the process makes pauses of %.2f ms: this test would not see them", longest[3])
	}
}
