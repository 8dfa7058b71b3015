// SPDX-License-Identifier: Apache-2.0

// Package hostile tests bin/ig-gpu beside a tenant that wants to harm it: program/, a process with
// files that are no libraries or change while they are read, with more mappings, threads, processes
// and stacks than there is room for, with names that drive terminals, with pages that do not come and
// file systems that do not answer.
// An honest tenant's figures must stay those of the simulated driver's journal, to the byte, its
// libraries must be attached to as quickly as ever, and what ig-gpu takes is bounded.
package hostile

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/examples/simcuda/journal"
	"github.com/gpu-gadgets/gpu-gadgets/test/support/compare"
	"github.com/gpu-gadgets/gpu-gadgets/test/support/simulated"
	"github.com/gpu-gadgets/gpu-gadgets/test/support/subject"
	"github.com/gpu-gadgets/gpu-gadgets/test/support/subject/iggpu"
)

// mode is one of program/, and how much of it the short and the long form do.
type mode struct {
	name        string
	short, long int
	// loses are the reasons that must be counted in the long form; none of it is the honest tenant's.
	loses []string
	// over is the time over which the use of the processor is averaged in the long form; 0: least.
	over time.Duration
	// before: the honest one's first call is after it, in the long form.
	before bool
	// calls: it calls the driver, and waits for a second line when it has loaded it.
	calls bool
}

// begin lets the program attack; it is attached to first where it calls the driver, if r is not nil.
func (m mode) begin(p *subject.Process, r *iggpu.Run) {
	p.Say("go")
	if !m.calls {
		return
	}
	p.Expect("loaded")
	if r != nil {
		r.WaitAttached(p.PID())
	}
	p.Say("go")
}

const (
	stacks = "stacks" // fills the tables
	reuse  = "reuse"  // has processes with the same pid
)

var modes = []mode{
	{name: stacks, short: 20_000, long: 1_000_000, loses: []string{"stacks_full", "live_full"}, over: time.Minute, calls: true},
	{name: "symbols", short: 100_000, long: 1_000_000, over: time.Minute},
	{name: "sparse", short: 1024, long: 1024},
	{name: "special", short: 14, long: 200},
	{name: "replaced", short: 60, long: 5000},
	{name: "mappings", short: 3000, long: 60_000, over: time.Minute},
	{name: "dlopens", short: 100, long: 5000},
	{name: "threads", short: 500, long: 20_000},
	{name: "forks", short: 300, long: 30_000},
	{name: "execs", short: 200, long: 10_000},
	{name: "searches", short: 5, long: 1000, over: time.Minute},
	{name: "hangs", short: 60, long: 1000},
	{name: "names", short: 1000, long: 2800},
	{name: "pages", short: 500, long: 5000, calls: true},
	{name: reuse, short: 100, long: 2000, calls: true},
	{name: "callers", short: 200, long: 8000, loses: []string{"processes_full"}, over: time.Minute, before: true, calls: true},
}

// build compiles the program, and returns its path.
func build(t *testing.T) string {
	t.Helper()
	sources, err := filepath.Glob("program/*.c")
	require.NoError(t, err)
	program := filepath.Join(t.TempDir(), "hostile")
	// Stacks differ in the place that a function was called from: no tail calls.
	args := append([]string{"-O1", "-fno-omit-frame-pointer", "-fno-optimize-sibling-calls", "-Wall", "-Wextra", "-Werror",
		"-std=gnu11", "-o", program}, sources...)
	out, err := exec.Command("cc", append(args, "-ldl", "-lpthread")...).CombinedOutput()
	require.NoError(t, err, string(out))
	return program
}

// attack starts a mode, which waits for a line.
func attack(t *testing.T, program string, m mode, count int) *subject.Process {
	t.Helper()
	cmd := exec.Command(program, m.name, simulated.DriverCopy(t), t.TempDir(), strconv.Itoa(count))
	cmd.Env = append(os.Environ(), "SIMCUDA_INIT_MS=0") // each process starts the driver
	return startTenant(t, cmd)
}

// startTenant starts a command as in a container, and waits until it is ready.
func startTenant(t *testing.T, cmd *exec.Cmd) *subject.Process {
	t.Helper()
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
	p := subject.Start(t, cmd)
	p.Expect("ready")
	return p
}

// ended waits until a mode has done what it does, and returns what it printed before.
func ended(p *subject.Process) (lines []string) {
	for {
		line := p.Line()
		if line == "done" {
			return lines
		}
		lines = append(lines, line)
	}
}

// honest is a workload whose truth is known.
type honest struct {
	*subject.Process
	dir string
}

// startHonest starts it with so many calls, in four seconds: its allocations that are refused are fewer in
// a second than a container's events have room for.
func startHonest(t *testing.T, calls int) honest {
	t.Helper()
	dir := t.TempDir()
	p := subject.Start(t, exec.Command("python3", "../../gadgets/exact/workload.py", "--libcuda", simulated.DriverCopy(t), "--out", dir,
		"--calls", strconv.Itoa(calls), "--seconds", "4", "--processes", "2", "--start-on-stdin", "--hold"))
	require.Contains(t, p.Line(), "ready")
	return honest{p, dir}
}

// end lets its processes end, after their calls.
func (h honest) end(t *testing.T) {
	t.Helper()
	h.Say("end")
	require.Contains(t, h.Line(), "done")
	h.Wait()
}

// expected are the rows of its processes, all of which have ended.
func (h honest) expected(t *testing.T) []compare.Row {
	t.Helper()
	journals, err := journal.ReadDir(h.dir)
	require.NoError(t, err)
	truth, err := compare.ReadTruth(h.dir)
	require.NoError(t, err)
	rows, err := compare.Expected(journals, truth, compare.Options{Exited: true, MaxFrames: 128})
	require.NoError(t, err)
	require.NotEmpty(t, rows)
	return rows
}

// requireExact compares the honest tenant's rows of a file with the truth: by
// stack.
func (h honest) requireExact(t *testing.T, file string) {
	t.Helper()
	want := h.expected(t)
	pids := map[uint32]bool{}
	for _, r := range want {
		pids[r.PID] = true
	}
	have := rowsOf(t, file, pids)
	diffs := compare.Diff(want, have)
	if len(diffs) > 0 {
		var table strings.Builder
		require.NoError(t, compare.Print(&table, diffs, 5))
		t.Errorf("%d of %d rows differ:\n%s", len(diffs), len(want), table.String())
	}
	t.Logf("%d rows of the honest tenant, %d differ", len(want), len(diffs))
}

// The short form: all modes after another, a little of each, in one run.
func TestHonestTenantIsExactBesideAHostileOne(t *testing.T) {
	program := build(t)
	file := filepath.Join(t.TempDir(), "lines")
	r := iggpu.Start(t, "cuda_alloc", "--jsonl-out", file)
	h := startHonest(t, 6000)
	r.WaitAttached(h.PID())
	before, began := processorTime(t, r), time.Now()
	var slowest latency
	var reused []string
	processes := 0
	// The tables are as full as one tenant can make them before the honest one has a row.
	first := attack(t, program, modes[0], modes[0].short)
	modes[0].begin(first, r)
	ended(first)
	h.Say("go")
	for _, m := range modes[1:] {
		p := attack(t, program, m, m.short)
		m.begin(p, r)
		if m.name == "hangs" {
			slowest.add(newLibrary(t, r)) // while it does
		}
		lines := ended(p)
		switch m.name {
		case "pages":
			t.Log(lines)
		case reuse:
			reused, processes = lines, m.short
		}
		slowest.add(newLibrary(t, r))
		p.End()
	}
	wall, used := time.Since(began), processorTime(t, r)
	require.Contains(t, h.Line(), "holding")
	h.end(t)
	first.End()
	most := mostMemory(t, r)
	r.Interrupt()
	t.Logf("%d modes in %.1f s: ig-gpu used %.1f %% of a core and %d MiB; a new library was attached to in %v at most; lost: %v",
		len(modes), wall.Seconds(), 100*(used-before).Seconds()/wall.Seconds(), most>>20, slowest, r.Drops())
	h.requireExact(t, file)
	requireEach(t, file, reused, processes)
	require.Less(t, most, int64(maxMemory))
	slowest.require(t, 1)
	require.Equal(t, []string{"stacks_full"}, slices.Collect(maps.Keys(losses(r))), "of the hostile one")
}

// The long form: each mode in a run of its own.
func TestEachModeAlone(t *testing.T) {
	if os.Getenv(subject.LongVariable) == "" {
		t.Skipf("%s is not set: the short form has all modes (make test-long)", subject.LongVariable)
	}
	program := build(t)
	slower := slowness(t)
	for _, m := range modes {
		t.Run(m.name, func(t *testing.T) { alone(t, program, m, slower) })
	}
}

// quietShare is the share that ig-gpu has beside the honest tenant alone, in percent of a core, on the machine for which
// SECURITY.md promises its limits.
const quietShare = 4.0

// slowness measures that share here, and returns by which factor it is larger, at least 1: on a machine that shares
// its memory with others it was 11 %, although a loop of Python took no longer.
func slowness(t *testing.T) float64 {
	r := iggpu.Start(t, "cuda_alloc", "--jsonl-out", filepath.Join(t.TempDir(), "lines"))
	h := startHonest(t, 20000)
	r.WaitAttached(h.PID())
	h.Say("go")
	newLibrary(t, r)
	before, began := processorTime(t, r), time.Now()
	for time.Since(began) < least {
		newLibrary(t, r)
		time.Sleep(time.Second)
	}
	share := 100 * (processorTime(t, r) - before).Seconds() / time.Since(began).Seconds()
	require.Contains(t, h.Line(), "holding")
	h.end(t)
	r.Interrupt()
	slower := max(1, share/quietShare)
	t.Logf("without an attack ig-gpu uses %.1f %% of a core: limits are %.1f times those of SECURITY.md", share, slower)
	return slower
}

// least is the least time over which a mode's use of the processor is averaged.
const least = 20 * time.Second

// longest is the most that an attack may take.
const longest = 2 * time.Minute

func alone(t *testing.T, program string, m mode, slower float64) {
	file := filepath.Join(t.TempDir(), "lines")
	r := iggpu.Start(t, "cuda_alloc", "--jsonl-out", file)
	h := startHonest(t, 20000)
	r.WaitAttached(h.PID())
	if !m.before {
		h.Say("go")
	}
	p := attack(t, program, m, m.long)
	newLibrary(t, r)
	before, began := processorTime(t, r), time.Now()
	m.begin(p, r)
	done := make(chan []string, 1)
	go func() { done <- ended(p) }()
	var lines []string
	var slowest latency
	for isDone := false; !isDone || time.Since(began) < max(least, m.over); time.Sleep(time.Second) {
		require.Less(t, time.Since(began), longest, "the attack does not end")
		slowest.add(newLibrary(t, r))
		select {
		case lines = <-done:
			isDone = true
		default:
		}
	}
	wall, used := time.Since(began), processorTime(t, r)
	if m.before {
		h.Say("go")
		require.Contains(t, h.Line(), "holding")
		p.End()
	} else {
		p.End()
		require.Contains(t, h.Line(), "holding")
	}
	h.end(t)
	most := mostMemory(t, r)
	end := r.Interrupt()
	share := 100 * (used - before).Seconds() / wall.Seconds()
	t.Logf("%d: ig-gpu used %.1f %% of a core for %.0f s and %d MiB; a new library was attached to in %v at most; the end took %v; lost: %v %v",
		m.long, share, wall.Seconds(), most>>20, slowest, end.Round(100*time.Millisecond), r.Drops(), lines)
	h.requireExact(t, file)
	switch m.name {
	case reuse:
		requireEach(t, file, lines, m.long)
	case stacks:
		require.Regexp(t, fmt.Sprintf(`the container of process %d\b.* has taken its share of the tables`, p.PID()), r.Errors())
	}
	require.Less(t, most, int64(maxMemory))
	slowest.require(t, slower)
	if share >= maxShare*slower {
		slower = max(slower, slowness(t)) // others may share the memory now who did not when it was measured
	}
	require.Less(t, share, maxShare*slower)
	lost := slices.Collect(maps.Keys(losses(r)))
	require.Subset(t, lost, m.loses)
	if len(m.loses) == 0 {
		require.Empty(t, lost)
	}
}

// losses are the drops but for callers that are missing in stacks: no number is wrong for them.
func losses(r *iggpu.Run) map[string]uint64 {
	lost := r.Drops()
	maps.DeleteFunc(lost, func(reason string, _ uint64) bool { return strings.HasPrefix(reason, "native_") })
	return lost
}

const (
	maxMemory = 300 << 20
	maxShare  = 10.0 // percent of a core
)
