// SPDX-License-Identifier: Apache-2.0

package frozen

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// waiter runs waiter.py, and returns it and its child; 0: none.
func waiter(t *testing.T, way string) (parent, child uint32) {
	t.Helper()
	cmd := exec.Command("python3", "../waits/testdata/waiter.py", way)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
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

// TestProcessesThatStandStill: in each way, what the main thread waits for, and the circle, also
// where only one of the two is given.
func TestProcessesThatStandStill(t *testing.T) {
	for way, c := range map[string]struct {
		waitsFor string
		isCircle bool
	}{
		"pipe": {"pipe", true}, "epoll": {"socket", true}, "semaphore": {"shared memory", true},
		"server": {"socket", false}, "child": {"child", false}, "lock": {"lock", false}, "sleep": {"timer", false},
	} {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			parent, child := waiter(t, way)
			s := Standstill{ProcFS: "/proc", After: 200 * time.Millisecond}
			var want, have []uint32
			if c.isCircle {
				want = []uint32{min(parent, child), max(parent, child)}
			}
			require.Empty(t, s.Look(time.Now(), []uint32{parent}), "the first look")
			require.Eventually(t, func() bool {
				all := s.Look(time.Now(), []uint32{parent, 1 << 30})
				if len(all) == 0 {
					return false
				}
				require.Len(t, all, 1)
				require.Equal(t, []any{parent, "python3", c.waitsFor}, []any{all[0].PID, all[0].Comm, all[0].WaitsFor})
				require.GreaterOrEqual(t, all[0].For, s.After)
				have = all[0].Circle
				// The other one has been read, too. On a busy machine it begins to wait later.
				return all[0].For > 3*s.After && slices.Equal(want, have)
			}, 20*time.Second, 50*time.Millisecond, "want the circle %v", want)
		})
	}
}

// TestProcessesThatRunDoNotStandStill: one that computes, one that wakes up now and then, and one
// whose main thread waits for a thread that computes.
func TestProcessesThatRunDoNotStandStill(t *testing.T) {
	const spin = "import threading\ndef f():\n while True: pass\n"
	var pids []uint32
	for _, code := range []string{"while True: pass", "import time\nwhile True: time.sleep(0.05)",
		spin + "t = threading.Thread(target=f)\nt.start()\nt.join()"} {
		cmd := exec.Command("python3", "-c", "print('ready', flush=True)\n"+code)
		out, err := cmd.StdoutPipe()
		require.NoError(t, err)
		require.NoError(t, cmd.Start())
		t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
		// What python3 may be until then, a script that looks for it, does wait.
		_, err = bufio.NewReader(out).ReadString('\n')
		require.NoError(t, err)
		pids = append(pids, uint32(cmd.Process.Pid))
	}
	s := Standstill{ProcFS: "/proc", After: 1500 * time.Millisecond}
	for end := time.Now().Add(2 * s.After); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		require.Empty(t, s.Look(time.Now(), pids))
	}
}

// TestAProcessOfAnOldIDIsAnother, and odd files are no turns.
func TestAProcessOfAnOldIDIsAnother(t *testing.T) {
	procfs := t.TempDir()
	dir := filepath.Join(procfs, "7", "task", "7")
	require.NoError(t, os.MkdirAll(dir, 0o755))
	write := func(start int, turns string) {
		stat := fmt.Sprintf("7 (python3) S 1 7 7 0 -1 0 0 0 0 0 5 5 0 0 20 0 1 0 %d 1 2 3\n", start)
		require.NoError(t, os.WriteFile(filepath.Join(procfs, "7", "stat"), []byte(stat), 0o600))
		require.NoError(t, os.WriteFile(filepath.Join(procfs, "7", "status"), []byte("SigPnd:\t0\nShdPnd:\t0\n"), 0o600))
		require.NoError(t, os.WriteFile(filepath.Join(dir, "schedstat"), []byte(turns), 0o600))
	}
	s := Standstill{ProcFS: procfs, After: time.Minute}
	now := time.Unix(1_700_000_000, 0)
	look := func(minutes int) int {
		return len(s.Look(now.Add(time.Duration(minutes)*time.Minute), []uint32{7}))
	}
	write(100, "1 2 3\n")
	require.Equal(t, []int{0, 1}, []int{look(0), look(2)})
	write(200, "1 2 3\n")
	require.Equal(t, []int{0, 1}, []int{look(4), look(6)})
	write(200, "1 2 4\n")
	require.Equal(t, []int{0, 1}, []int{look(8), look(10)})
	for _, odd := range []string{"", "1 2", "1 2 x", "-1 -1 -1"} {
		write(200, odd)
		require.Zero(t, look(12))
		require.Zero(t, look(20), odd)
	}
}
