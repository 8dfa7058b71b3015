// SPDX-License-Identifier: Apache-2.0

package waits

import (
	"bufio"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// start runs waiter.py and returns the parent and its child; 0: none.
func start(t *testing.T, way string) (parent, child uint32) {
	t.Helper()
	cmd := exec.Command("python3", "testdata/waiter.py", way)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		_ = cmd.Wait()
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	_, err = fmt.Sscan(line, &child)
	require.NoError(t, err)
	return uint32(cmd.Process.Pid), child
}

// asleep reads waits of main threads until each is in one of the system calls.
func asleep(t *testing.T, pids []uint32, calls string) (all []Wait) {
	t.Helper()
	require.Eventually(t, func() bool {
		all = nil
		for _, pid := range pids {
			w, err := NewReader("/proc").Read(pid, pid)
			if err != nil || !strings.Contains(" "+calls+" ", " "+w.Syscall+" ") {
				return false
			}
			all = append(all, w)
		}
		return true
	}, 20*time.Second, 10*time.Millisecond, "the processes do not wait in %s: %v", calls, all)
	return all
}

// Two processes that wait for each other, in each way: each one's wait names the other, and
// both together are a circle.
func TestProcessesThatWaitForEachOther(t *testing.T) {
	for way, c := range map[string]struct {
		calls string
		kind  Kind
	}{
		"pipe":      {"read", Pipe},
		"unix":      {"recvfrom", Socket},
		"tcp":       {"recvfrom", Socket},
		"poll":      {"poll ppoll", Socket},
		"epoll":     {"epoll_wait epoll_pwait", Socket},
		"select":    {"select pselect6", Socket},
		"semaphore": {"futex", Shared},
		"futex":     {"futex", Shared},
	} {
		t.Run(way, func(t *testing.T) {
			parent, child := start(t, way)
			r := NewReader("/proc")
			var edges []Edge
			for _, w := range asleep(t, []uint32{parent, child}, c.calls) {
				found := r.Edges([]Wait{w})
				require.Len(t, found, 1, "%+v", w)
				require.Equal(t, c.kind, found[0].Resource.Kind)
				edges = append(edges, found...)
			}
			require.Equal(t, []uint32{child}, edges[0].To)
			require.Equal(t, []uint32{parent}, edges[1].To)
			require.True(t, r.IsClosed(asleep(t, []uint32{parent}, c.calls)[0], []uint32{parent, child}))
			circle := []uint32{min(parent, child), max(parent, child)}
			require.Equal(t, [][]uint32{circle}, Cycles(edges, map[uint32]bool{parent: true, child: true}))
			require.Empty(t, Cycles(edges, map[uint32]bool{parent: true}), "the child works and may end the wait")
		})
	}
}

func TestWaitsThatNoOtherProcessEnds(t *testing.T) {
	for way, want := range map[string]Kind{"lock": Lock, "timed": Lock, "sleep": Timer} {
		pid, _ := start(t, way)
		w := asleep(t, []uint32{pid}, "futex clock_nanosleep nanosleep select pselect6")[0]
		require.Len(t, w.For, 1)
		require.Equal(t, want, w.For[0].Kind, way)
		r := NewReader("/proc")
		require.Empty(t, r.Ends(pid, w.For[0]).PIDs)
		require.Equal(t, way == "lock", r.IsClosed(w, []uint32{pid}), way)
	}
}

// A wait for several things counts as one that something else may end if that is so for one of
// them, such as a socket that listens.
func TestServerThatWaitsForClientsTooIsInNoCircle(t *testing.T) {
	parent, child := start(t, "server")
	waits := asleep(t, []uint32{parent, child}, "poll ppoll recvfrom")
	r := NewReader("/proc")
	edges := append(r.Edges(waits[:1]), r.Edges(waits[1:])...)
	require.Len(t, edges, 3)
	require.Empty(t, Cycles(edges, map[uint32]bool{parent: true, child: true}))
	require.False(t, r.IsClosed(waits[0], []uint32{parent, child}))
	require.True(t, r.IsClosed(waits[1], []uint32{parent, child}))
}

func TestParentWaitsForItsChild(t *testing.T) {
	parent, child := start(t, "child")
	edges := NewReader("/proc").Edges(asleep(t, []uint32{parent}, "wait4"))
	require.Len(t, edges, 1)
	require.Equal(t, []uint32{child}, edges[0].To)
}

func TestThreadThatEndedIsAnError(t *testing.T) {
	_, err := NewReader("/proc").Read(1<<30, 1<<30)
	require.ErrorIs(t, err, fs.ErrNotExist)
}

// Cycles: a circle counts if nothing outside of it can end one of its waits.
func TestCycles(t *testing.T) {
	edges := func(pairs ...[2]uint32) (all []Edge) {
		for _, p := range pairs {
			all = append(all, Edge{From: p[0], To: []uint32{p[1]}})
		}
		return all
	}
	all := map[uint32]bool{1: true, 2: true, 3: true, 4: true}
	require.Equal(t, [][]uint32{{1, 2, 3}}, Cycles(edges([2]uint32{3, 1}, [2]uint32{1, 2}, [2]uint32{2, 3}, [2]uint32{4, 1}), all))
	require.Empty(t, Cycles(edges([2]uint32{1, 2}, [2]uint32{2, 3}), all))
	require.Empty(t, Cycles(edges([2]uint32{1, 2}, [2]uint32{2, 1}, [2]uint32{2, 9}), all), "2 waits for what only 9 has, which works")
	require.Equal(t, [][]uint32{{1, 2}}, Cycles([]Edge{{From: 1, To: []uint32{2}}, {From: 2, To: []uint32{1, 9}}}, all), "9 has inherited it")
	require.Equal(t, [][]uint32{{1, 2}, {3, 4}}, Cycles(edges([2]uint32{1, 2}, [2]uint32{2, 1}, [2]uint32{3, 4}, [2]uint32{4, 3}), all))
	require.Empty(t, Cycles([]Edge{{From: 1, To: []uint32{2}}, {From: 2, To: []uint32{1}}, {From: 2}}, all), "a timer")
}

func TestSyscallIsReadWhateverItIs(t *testing.T) {
	c, ok := parseSyscall("202 0x7f0000000010 0x189 0x0 0x0 0x0 0xffffffff 0x7ffd 0x7f01\n")
	require.True(t, ok)
	require.Equal(t, syscallOf(202, 0x7f0000000010, 0x189, 0, 0, 0, 0xffffffff), c)
	for _, text := range []string{"", "running\n", "-1 0x7ffd 0x7f01\n", "1 2 3", "x 0x0 0x0 0x0 0x0 0x0 0x0 0x0 0x0",
		"1 0xz 0x0 0x0 0x0 0x0 0x0 0x0 0x0"} {
		_, ok := parseSyscall(text)
		require.False(t, ok, text)
	}
}

func syscallOf(number int, arguments ...uint64) (c syscallArguments) {
	c.number = number
	copy(c.arguments[:], arguments)
	return c
}

// What a process chose, descriptors and addresses, is read within limits and without a panic.
func TestOddArgumentsAreReadWithinLimits(t *testing.T) {
	procfs := t.TempDir()
	dir := filepath.Join(procfs, "7")
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "task", "7"), 0o755))
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "fdinfo"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "mem"), nil, 0o600))
	var watched strings.Builder
	for fd := range 5000 {
		fmt.Fprintf(&watched, "tfd: %8d events:       19 data: 0  pos:0 ino:1 sdev:1\n", fd)
	}
	watched.WriteString("tfd: x events: 19 data\ntfd: 1 events: zz data\ntfd:\n")
	require.NoError(t, os.WriteFile(filepath.Join(dir, "fdinfo", "3"), []byte(watched.String()), 0o600))
	r := NewReader(procfs)
	for _, odd := range []uint64{0, 3, 1 << 20, 1<<63 - 1, 1 << 63, ^uint64(0)} {
		for number := range calls {
			text := fmt.Sprintf("%d 0x%x 0x%x 0x%x 0x%x 0x%x 0x%x 0x0 0x0\n", number, odd, odd, odd, odd, odd, odd)
			require.NoError(t, os.WriteFile(filepath.Join(dir, "task", "7", "syscall"), []byte(text), 0o600))
			w, err := r.Read(7, 7)
			require.NoError(t, err)
			require.NotEmpty(t, w.For, "%s", w.Syscall)
			require.LessOrEqual(t, len(w.For), maxDescriptors)
			require.False(t, r.IsClosed(w, []uint32{7}) && w.For[0].Kind != Lock)
		}
	}
}

func TestAddressesOfBothFamilies(t *testing.T) {
	for text, want := range map[string]string{
		"0100007F:1F90":                         "127.0.0.1:8080",
		"0000000000000000FFFF00000100007F:1F90": "127.0.0.1:8080",
		"00000000000000000000000001000000:0050": "[::1]:80",
	} {
		a, err := parseAddress(text)
		require.NoError(t, err)
		require.Equal(t, want, a.String())
	}
	for _, text := range []string{"", "0100007F", "01:50", "zz:50", "0100007F:zz"} {
		_, err := parseAddress(text)
		require.Error(t, err, text)
	}
}

// TestWaitsThatEndByThemselves, by the arguments that the system calls have.
func TestWaitsThatEndByThemselves(t *testing.T) {
	const never = 0xffffffff // as an int, -1
	for n, c := range []struct {
		call  syscallArguments
		timed bool
	}{
		{syscallArguments{unix.SYS_FUTEX, [6]uint64{1, 128, 0, 0}}, false},               // FUTEX_WAIT_PRIVATE
		{syscallArguments{unix.SYS_FUTEX, [6]uint64{1, 9 | 128 | 256, 0, 0x7fff}}, true}, // FUTEX_WAIT_BITSET
		{syscallArguments{unix.SYS_FUTEX, [6]uint64{1, 1, 0, 0x7fff}}, false},            // FUTEX_WAKE
		{syscallArguments{unix.SYS_EPOLL_PWAIT, [6]uint64{4, 1, 10, never}}, false},
		{syscallArguments{unix.SYS_EPOLL_PWAIT, [6]uint64{4, 1, 10, 60000}}, true},
		{syscallArguments{unix.SYS_PPOLL, [6]uint64{1, 1, 0}}, false},
		{syscallArguments{unix.SYS_PPOLL, [6]uint64{1, 1, 0x7fff}}, true},
		{syscallArguments{unix.SYS_PSELECT6, [6]uint64{4, 1, 0, 0, 0x7fff}}, true},
		{syscallArguments{unix.SYS_READ, [6]uint64{4, 1, 10, 1, 1}}, false},
		{syscallArguments{unix.SYS_WAIT4, [6]uint64{never, 1, 10, 1, 1}}, false},
	} {
		require.Equal(t, c.timed, c.call.isTimed(), n)
	}
}
