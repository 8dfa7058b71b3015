// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/test/support/simulated"
	"github.com/gpu-gadgets/gpu-gadgets/test/support/subject"
)

// The eBPF programs count while ig-gpu is stopped: nothing is missing when it continues, of processes
// that ran on and of one that started and ended in the meantime.
func TestAStoppedGadgetMissesNothing(t *testing.T) {
	t.Parallel()
	driver := simulated.DriverCopy(t)
	w := subject.StartSteps(t)
	w.Do("load %s", driver)
	r := start(t)
	r.waitAttached(w.PID())
	require.NoError(t, r.cmd.Process.Signal(syscall.SIGSTOP))
	require.Equal(t, "ok churning", w.Request("churn 65536"))
	short := subject.StartSteps(t)
	short.Do("load %s", driver)
	short.Do("alloc weights 3 4096")
	short.End()
	time.Sleep(time.Duration(subject.Volume(5, 60)) * time.Second)
	stopChurn(t, w) // ends the process
	require.NoError(t, r.cmd.Process.Signal(syscall.SIGCONT))

	eventually(t, "the rows of both processes, which have ended", func() bool {
		return allocs(w.Truth().AllocObjects)(r.last(w.PID())) && allocs(3)(r.last(short.PID()))
	})
	code, _ := r.interrupt()
	require.Zero(t, code, r.errors())
	requireExact(t, w, r.last(w.PID()))
	requireExact(t, short, r.last(short.PID()))
	lost := r.lost()
	delete(lost, "freed_before_attach") // of other tests' processes, which ran when this one attached
	require.Empty(t, lost)
	t.Logf("%d calls while it was stopped", w.Truth().Calls)
}

// A package manager replaces the file under running processes, which keep the old one.
func TestADriverUpgradedUnderARunningProcess(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	library := simulated.Copy(t, dir, "simcuda", "libcuda.so.1")
	old := subject.StartSteps(t)
	old.Do("load %s", library)
	old.Do("alloc weights 2 4096")
	r := start(t)
	r.waitAttached(old.PID())
	old.Do("alloc weights 3 4096")

	upgraded := simulated.Copy(t, filepath.Join(dir, "new"), "simcuda", "libcuda.so.1")
	require.NoError(t, os.Rename(upgraded, library))
	fresh := subject.StartSteps(t)
	fresh.Do("load %s", library)
	r.waitAttached(fresh.PID())
	old.Do("alloc kv_cache 5 4096")
	fresh.Do("alloc weights 7 4096")
	old.Do("free weights 1") // it saw this one: of the first two it knows nothing
	r.waitRows("the process with the old driver", old.PID(), allocs(8))
	r.waitRows("the process with the new driver", fresh.PID(), allocs(7))
	fresh.End()
	eventually(t, "its end", func() bool { return r.last(fresh.PID())[0].ImplicitObjects > 0 })
	requireExact(t, fresh, r.last(fresh.PID()))
	code, _ := r.interrupt()
	require.Zero(t, code, r.errors())
}

// The kernel kills ig-gpu where its container has too little memory. The traced process runs on, nothing
// is left in the kernel, and the next ig-gpu has the calls that follow.
func TestMemoryLimitOfTheGadget(t *testing.T) {
	group := memoryGroup(t)
	w := busy(t)
	before := kernelObjects(t)
	r := start(t)
	r.waitAttached(w.PID())
	held := heldBy(fmt.Sprint(r.cmd.Process.Pid))
	require.NotEmpty(t, held)
	// What it has already counts for the group it comes from, if the version is 1: so it has to need more.
	group.limit(256 << 10)
	group.add(r.cmd.Process.Pid)
	for began := time.Now(); len(heldBy(fmt.Sprint(r.cmd.Process.Pid))) > 0; {
		require.Less(t, time.Since(began), waitLimit, "it lives with 256 KiB")
		more := subject.StartSteps(t)
		more.Do("load %s", simulated.DriverCopy(t))
		more.End()
	}
	require.Equal(t, -1, r.exit(), "it was killed: %s", r.errors())
	require.Equal(t, syscall.SIGKILL, r.cmd.ProcessState.Sys().(syscall.WaitStatus).Signal())
	requireGone(t, held)
	requireNothingNew(t, before)
	requireNotPatched(t, w.PID())

	r = start(t, "--pid", fmt.Sprint(w.PID()))
	r.waitAttached(w.PID())
	r.waitRows("rows of the process", w.PID(), allocs(100))
	code, _ := r.interrupt()
	require.Zero(t, code, r.errors())
	stopChurn(t, w)
}

// group is a control group for memory, of either version.
type group struct {
	t         *testing.T
	dir, file string
}

// memoryGroup makes one.
func memoryGroup(t *testing.T) group {
	t.Helper()
	own, err := os.ReadFile("/proc/self/cgroup")
	require.NoError(t, err)
	for line := range strings.Lines(string(own)) {
		fields := strings.SplitN(strings.TrimSpace(line), ":", 3)
		g := group{t: t}
		switch fields[1] {
		case "memory":
			g.dir, g.file = filepath.Join("/sys/fs/cgroup/memory", fields[2]), "memory.limit_in_bytes"
		case "":
			g.dir, g.file = filepath.Join("/sys/fs/cgroup", fields[2]), "memory.max"
		default:
			continue
		}
		g.dir = filepath.Join(g.dir, fmt.Sprintf("limited-%d", os.Getpid()))
		if os.Mkdir(g.dir, 0o755) != nil {
			continue
		}
		t.Cleanup(func() { _ = os.Remove(g.dir) })
		if _, err := os.Stat(filepath.Join(g.dir, g.file)); err == nil {
			return g
		}
	}
	t.Skip("no control group for memory can be made here")
	return group{}
}

func (g group) add(pid int) {
	g.t.Helper()
	require.NoError(g.t, os.WriteFile(filepath.Join(g.dir, "cgroup.procs"), []byte(strconv.Itoa(pid)), 0o644))
}

// limit sets how much memory it may have.
func (g group) limit(bytes int) {
	g.t.Helper()
	require.NoError(g.t, os.WriteFile(filepath.Join(g.dir, g.file), []byte(strconv.Itoa(bytes)), 0o644))
}

// Without the right to load programs it ends with one line that says what is missing.
func TestRefusedProgramsAreAnError(t *testing.T) {
	t.Parallel()
	for _, rights := range []string{"-sys_admin,-bpf", "-sys_admin,-perfmon"} {
		text := fails(t, inShell(t, "", "exec setpriv --bounding-set="+rights))
		require.Contains(t, text, "CAP_SYS_ADMIN", rights)
	}
}

// A kernel function that refuses: seccomp, as container runtimes set it.
func TestRefusedSystemCallIsAnError(t *testing.T) {
	t.Parallel()
	cmd := gadget(t)
	shim := filepath.Join(t.TempDir(), "refuse")
	out, err := exec.Command("cc", "-O1", "-Wall", "-Werror", "-o", shim, "testdata/refuse.c").CombinedOutput()
	require.NoError(t, err, string(out))
	cmd.Args = append([]string{shim, cmd.Path}, cmd.Args[1:]...)
	cmd.Path = shim
	text := fails(t, cmd)
	require.Contains(t, text, "although it has CAP_SYS_ADMIN: a seccomp profile")
}

// A container, or a small image, that has mounted neither tracefs nor the file system of eBPF.
func TestMissingFileSystemsAreMounted(t *testing.T) {
	t.Parallel()
	const without = "for i in 1 2; do umount -l /sys/kernel/debug/tracing /sys/kernel/debug /sys/kernel/tracing /sys/fs/bpf 2>/dev/null || true; done; " +
		"! grep -E ' (tracefs|debugfs|bpf) ' /proc/mounts >&2; "
	w := subject.StartSteps(t)
	w.Load()
	r := launch(t, inShell(t, without, "exec", "--pid", fmt.Sprint(w.PID())))
	r.waitAttached(w.PID())
	w.Do("alloc weights 3 4096")
	r.waitRows("rows of the process", w.PID(), allocs(3))
	code, _ := r.interrupt()
	require.Zero(t, code, r.errors())
}
