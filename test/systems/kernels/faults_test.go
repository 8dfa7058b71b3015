// SPDX-License-Identifier: Apache-2.0

package kernels

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/gpu-gadgets/gpu-gadgets/test/support/compare"
)

// TestFaults: what may happen to a machine while bin/ig-gpu traces a workload. The workload's figures stay
// exact, and nothing is dropped. The test changes the machine for good, so it is the last one.
func TestFaults(t *testing.T) {
	requireInside(t)
	var passed []string
	try := func(name string, test func(t *testing.T)) {
		t.Run(name, func(t *testing.T) {
			test(t)
			passed = append(passed, name) // neither failed nor skipped
		})
	}
	for _, fault := range []struct {
		name   string
		happen func(t *testing.T)
	}{
		{"clock", stepClock},
		{"suspend", suspend},
		{"hotplug", replugProcessor},
		{"unprivileged", func(t *testing.T) { set(t, "/proc/sys/kernel/unprivileged_bpf_disabled", "2") }},
		{"integrity", func(t *testing.T) { set(t, lockdown(t), "integrity") }},
	} {
		try(fault.name, func(t *testing.T) { during(t, fault.happen) })
	}
	try("CPU came", onAnotherProcessor)
	t.Run("confidentiality", func(t *testing.T) {
		set(t, lockdown(t), "confidentiality")
		out, err := exec.Command(built(t, "bin/ig-gpu"), "run", "cuda_alloc", "--host", "--timeout", "20").CombinedOutput()
		require.Error(t, err)
		require.Equal(t, 1, strings.Count(string(out), "\n"), "one line: %s", out)
		require.Contains(t, string(out), "/sys/kernel/security/lockdown", "what to look at")
	})
	record(t, "faults", "%s", strings.Join(passed, ", "))
}

// during traces a workload to which something happens while it makes its calls.
func during(t *testing.T, happen func(*testing.T)) {
	library := built(t, "build/simcuda/libcuda.so.1")
	w := startWorkload(t, "python3", library, "--calls", "4000")
	g := startProduct(t, w)
	began := time.Now()
	_, err := io.WriteString(w.stdin, "\n")
	require.NoError(t, err)
	happen(t)
	w.expect("holding")
	requireTruth(t, g, expected(t, w.dir), func(rows []compare.Row) []compare.Row { return rows })
	w.resume("done")
	g.interrupt()
	require.Empty(t, g.drops, g.stderr.String())
	t.Logf("%v", time.Since(began).Round(time.Second))
}

func set(t *testing.T, file, value string) {
	t.Helper()
	require.NoError(t, os.WriteFile(file, []byte(value), 0o644))
}

// stepClock sets the date forward and back, as NTP sets a clock that was wrong.
func stepClock(t *testing.T) {
	for _, hours := range []time.Duration{26, -50, 24} {
		now := unix.NsecToTimeval(time.Now().Add(hours * time.Hour).UnixNano())
		require.NoError(t, unix.Settimeofday(&now))
		time.Sleep(500 * time.Millisecond)
	}
}

// suspend lets the machine stand still for 10 s of which it learns nothing, as a virtual machine that is
// moved does (package vm).
func suspend(t *testing.T) {
	before := boottime(t)
	require.NoError(t, os.WriteFile("/run/vm/suspend", []byte("10s"), 0o644))
	for began := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		if _, err := os.Stat("/run/vm/suspend"); err != nil {
			break
		}
		require.Less(t, time.Since(began), time.Minute, "the machine was not suspended")
	}
	require.Greater(t, boottime(t)-before, 9*time.Second)
}

func boottime(t *testing.T) time.Duration {
	t.Helper()
	var at unix.Timespec
	require.NoError(t, unix.ClockGettime(unix.CLOCK_BOOTTIME, &at))
	return time.Duration(at.Nano())
}

// online is the switch of the second processor.
const online = "/sys/devices/system/cpu/cpu1/online"

// replugProcessor takes a processor away and gives it back.
func replugProcessor(t *testing.T) {
	if _, err := os.Stat(online); err != nil {
		t.Skip("one processor")
	}
	for _, value := range []string{"0", "1"} {
		set(t, online, value)
		time.Sleep(500 * time.Millisecond)
	}
}

// onAnotherProcessor: a processor that was away when the gadgets started has samples, and the events of
// processes that start on it.
func onAnotherProcessor(t *testing.T) {
	if _, err := os.Stat(online); err != nil {
		t.Skip("one processor")
	}
	set(t, online, "0")
	stacks := start(t, built(t, "bin/ig-gpu"), "run", "py_stack", "--host", "-o", "json")
	memory := start(t, built(t, "bin/ig-gpu"), "run", "cuda_alloc", "--host", "-o", "json")
	spinning := launch(t, "python3", "-c", "while True: pass")
	stacks.wait("samples", func() bool { return stacks.sampled[uint32(spinning.cmd.Process.Pid)] > 0 })
	first := startWorkload(t, "python3", built(t, "build/simcuda/libcuda.so.1"), "--calls", "1")
	memory.wait("the library is attached", func() bool { return memory.attached[uint32(first.cmd.Process.Pid)] })
	require.NoError(t, spinning.cmd.Process.Kill())
	set(t, online, "1")
	time.Sleep(3 * time.Second) // more than a period of internal/process/cpus

	// Processes inherit it.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var before, one unix.CPUSet
	require.NoError(t, unix.SchedGetaffinity(0, &before))
	one.Set(1)
	require.NoError(t, unix.SchedSetaffinity(0, &one))
	defer func() { require.NoError(t, unix.SchedSetaffinity(0, &before)) }()

	content, err := os.ReadFile(built(t, "build/simcuda/libcuda.so.1"))
	require.NoError(t, err)
	library := filepath.Join(t.TempDir(), "libcuda.so.1") // that no process has mapped before
	require.NoError(t, os.WriteFile(library, content, 0o755))
	w := startWorkload(t, "python3", library, "--calls", "2000")
	pid := uint32(w.cmd.Process.Pid)
	memory.wait("the library is attached", func() bool { return memory.attached[pid] })
	w.resume("holding")
	requireTruth(t, memory, expected(t, w.dir), func(rows []compare.Row) []compare.Row { return rows })
	stacks.wait("samples of the processor that came", func() bool { return stacks.sampled[pid] > 0 })
	w.resume("done")
	memory.interrupt()
	stacks.interrupt()
}

// lockdown is the file that makes the kernel refuse what could change or reveal it.
func lockdown(t *testing.T) string {
	t.Helper()
	const file = "/sys/kernel/security/lockdown"
	if _, err := os.Stat(file); err != nil {
		require.NoError(t, unix.Mount("securityfs", "/sys/kernel/security", "securityfs", 0, ""))
	}
	return file
}
