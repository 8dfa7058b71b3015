// SPDX-License-Identifier: Apache-2.0

// Package soak runs all of NVIDIA's gadgets, with all exports that stream, while processes start and end
// as on a busy node in weeks: SOAK=1h has a million processes, 100,000 of them with a mount
// namespace of their own and GPU memory, and ten million stacks. Memory, maps, files, goroutines and
// processor time of ig-gpu must not grow after its first tenth.
package soak

import (
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/test/support/job"
	"github.com/gpu-gadgets/gpu-gadgets/test/support/simulated"
	"github.com/gpu-gadgets/gpu-gadgets/test/support/subject"
	"github.com/gpu-gadgets/gpu-gadgets/test/support/subject/usage"
)

const (
	// variable names how long it runs, e.g. 1h.
	variable = "SOAK"
	// perSecond is a million processes in an hour.
	perSecond = 278
	samples   = 100
	// most is by how much anything may grow after the first tenth of the time: in an hour, and
	// in less, where caches still fill: stacks that were removed are kept for five minutes.
	most, mostShort = 0.05, 1.0
	hour            = time.Hour
	// settled: the rows of exited processes are kept for a minute. In less than an hour, the first states
	// that count are those after that.
	settled = 100 * time.Second
)

var gadgets = []string{"cuda_alloc", "cuda_kernel", "nccl_trace", "py_stack"}

func TestSoak(t *testing.T) {
	text := os.Getenv(variable)
	if text == "" {
		t.Skip(variable + " is not set: 1h, or 4m for a short one (make test-soak)")
	}
	length, err := time.ParseDuration(text)
	require.NoError(t, err, variable)
	require.Greater(t, length, settled*5/4, "what is compared comes after that")
	to := startBackends(t)
	var runs []*run
	for _, gadget := range gadgets {
		runs = append(runs, start(t, gadget, to))
	}
	ranks := job.Start(t, "soak", "--ranks", "2", "--step", "0.1")
	churn := startChurn(t, length)
	ranks.Begin()
	churn.Say("go")

	limit, moments := mostShort, 1
	if length >= hour {
		limit, moments = most, 3
	}
	watched := map[*run][]state{}
	took := sinceLast()
	began := time.Now()
	for n := range samples {
		time.Sleep(time.Until(began.Add(length * time.Duration(n+1) / samples)))
		work := took(t, churn.PID())
		for _, r := range runs {
			s := r.look(t, moments)
			s.work = work
			watched[r] = append(watched[r], s)
		}
	}
	var done struct{ processes, containers, stacks, bytes uint64 }
	_, err = fmt.Sscan(churn.Line(), &done.processes, &done.containers, &done.stacks, &done.bytes)
	require.NoError(t, err)
	t.Logf("%v: %d processes, %d of them with a mount namespace and GPU memory, %d stacks, %d MiB", length, done.processes, done.containers, done.stacks, done.bytes>>20)
	first := max(samples/10, int(samples*settled/length))
	for _, r := range runs {
		r.checkFlat(t, watched[r], first, limit)
	}
	to.requireAll(t)
	requireAlive(t, runs[0])
	for _, r := range runs { // one after the other: programs are freed
		r.Interrupt()
	}
}

// requireAlive: after all that, a new process is traced, and its figures are exact.
func requireAlive(t *testing.T, r *run) {
	t.Helper()
	w := subject.StartSteps(t)
	w.Load()
	r.WaitAttached(w.PID())
	w.Do("alloc weights 2 %d", 1<<20)
	w.Do("free weights 1")
	require.Eventually(t, func() bool {
		return r.metric(t, "gpu_memory_inuse_bytes", w.PID()) == 1<<20 && r.metric(t, "gpu_memory_allocated_bytes_total", w.PID()) == 2<<20
	}, time.Minute, time.Second, "the metrics of a process that started after the soak")
	w.End()
}

// startChurn starts testdata/churn.c, and short-lived interpreters.
func startChurn(t *testing.T, length time.Duration) *subject.Process {
	t.Helper()
	program := filepath.Join(t.TempDir(), "churn")
	// Stacks differ in the place that a function was called from: no tail calls.
	out, err := exec.Command("cc", "-O1", "-fno-omit-frame-pointer", "-fno-optimize-sibling-calls", "-Wall", "-Wextra", "-Werror",
		"-std=gnu11", "-o", program, "testdata/churn.c", "-ldl").CombinedOutput()
	require.NoError(t, err, string(out))
	p := subject.Start(t, exec.Command(program, simulated.DriverCopy(t), strconv.Itoa(perSecond), strconv.Itoa(int(length.Seconds()))))
	p.Expect("ready")
	stop := make(chan struct{})
	ended := make(chan error, 1)
	go func() { // a Python process each second
		for {
			select {
			case <-stop:
				ended <- nil
				return
			case <-time.After(time.Second):
			}
			if err := exec.Command("python3", "-c", "import threading, time; threading.Thread(target=time.sleep, args=(0.3,)).start()").Run(); err != nil {
				ended <- err
				return
			}
		}
	}()
	t.Cleanup(func() {
		close(stop)
		require.NoError(t, <-ended)
	})
	p.Timeout += length
	return p
}

// sinceLast returns a function for the part of a core that a process and its children took since the last call, in percent.
func sinceLast() func(*testing.T, int) float64 {
	var before time.Duration
	at := time.Now()
	return func(t *testing.T, pid int) float64 {
		t.Helper()
		user, system, err := usage.CPU(pid)
		require.NoError(t, err)
		ofUser, ofSystem, err := usage.ChildrenCPU(pid)
		require.NoError(t, err)
		sum, now := user+system+ofUser+ofSystem, time.Now()
		percent := 100 * (sum - before).Seconds() / now.Sub(at).Seconds()
		before, at = sum, now
		return percent
	}
}

// checkFlat compares the start and the end of the line that fits the states best, from the first that counts. What a
// table holds goes up and down by a tenth within minutes, as rows are removed in groups: two tenths of the time
// compared with each other differ by that.
func (r *run) checkFlat(t *testing.T, all []state, first int, limit float64) {
	t.Helper()
	tenth := len(all) / 10
	var table strings.Builder
	var grown []string
	for _, of := range quantities {
		early, late := line(all[first:], of.value)
		fmt.Fprintf(&table, "\n  %-41s %8.1f %8.1f  %+.1f %%  in tenths:", of.name, early, late, 100*(late-early)/max(early, 1e-9))
		for some := range slices.Chunk(all, tenth) {
			fmt.Fprintf(&table, " %.1f", median(some, of.value))
		}
		if of.slack > 0 && late-early > max(limit*early, of.slack) {
			grown = append(grown, of.name)
		}
	}
	t.Logf("%s, the trend from %d %% of the time to the end:%s", r.gadget, first, table.String())
	assert.Empty(t, grown, "%s: more than %.0f %% more", r.gadget, 100*limit)
}

// line is the least-squares line through the states, at the first and at the last of them.
func line(all []state, of func(state) float64) (first, last float64) {
	n := float64(len(all))
	var sumX, sumY, sumXX, sumXY float64
	for i, s := range all {
		x, y := float64(i), of(s)
		sumX, sumY, sumXX, sumXY = sumX+x, sumY+y, sumXX+x*x, sumXY+x*y
	}
	slope := (n*sumXY - sumX*sumY) / (n*sumXX - sumX*sumX)
	first = (sumY - slope*sumX) / n
	return first, first + slope*(n-1)
}

// A leak of a twentieth is one, whatever goes up and down besides.
func TestLine(t *testing.T) {
	of := func(s state) float64 { return s.live }
	for growth, want := range map[float64]float64{0: 100, 0.1: 109, -0.5: 55} {
		var exact, uneven []state
		for n := range 91 {
			live := 100 + growth*float64(n)
			exact = append(exact, state{live: live})
			uneven = append(uneven, state{live: live + 10*math.Sin(float64(n))})
		}
		first, last := line(exact, of)
		require.InDelta(t, 100, first, 1e-6)
		require.InDelta(t, want, last, 1e-6)
		first, last = line(uneven, of)
		require.InDelta(t, 100, first, 1)
		require.InDelta(t, want, last, 1)
	}
}

func median(all []state, of func(state) float64) float64 {
	var values []float64
	for _, s := range all {
		values = append(values, of(s))
	}
	slices.Sort(values)
	return values[len(values)/2]
}
