// SPDX-License-Identifier: Apache-2.0

package holder

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// process writes /proc of a process.
type process struct {
	pid, parent, session int
	mode                 byte
	cpu, start           int // ticks
	pending              string
	comm                 string
}

func (p process) write(t *testing.T, procfs string) {
	t.Helper()
	dir := filepath.Join(procfs, fmt.Sprint(p.pid))
	require.NoError(t, os.MkdirAll(dir, 0o755))
	if p.comm == "" {
		p.comm = "python3"
	}
	if p.pending == "" {
		p.pending = "0000000000000000"
	}
	stat := fmt.Sprintf("%d (%s) %c %d %d %d 0 -1 0 0 0 0 0 %d %d 0 0 20 0 1 0 %d 1 2 3\n", p.pid, p.comm, p.mode, p.parent, p.session, p.session, p.cpu/2, p.cpu-p.cpu/2, p.start)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "stat"), []byte(stat), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "status"), []byte("Name:\tx\nSigPnd:\t0000000000000000\nShdPnd:\t"+p.pending+"\n"), 0o600))
}

func TestStatIsReadWhateverTheNameIs(t *testing.T) {
	procfs := t.TempDir()
	process{pid: 7, parent: 3, session: 2, mode: 'S', cpu: 151, start: 4200, comm: "a) R 1 (b"}.write(t, procfs)
	s, err := Read(procfs, 7)
	require.NoError(t, err)
	require.Equal(t, State{Comm: "a) R 1 (b", Mode: 'S', Parent: 3, Group: 2, Session: 2, CPU: 1510 * time.Millisecond, Start: 42 * time.Second}, s)
	require.NoError(t, os.WriteFile(filepath.Join(procfs, "7", "stat"), []byte("7 (x) S 1"), 0o600))
	_, err = Read(procfs, 7)
	require.ErrorContains(t, err, "not a stat file")
	_, err = Read(procfs, 8)
	require.ErrorIs(t, err, os.ErrNotExist)
}

func TestPIDInItsOwnNamespaceIsFound(t *testing.T) {
	require.Equal(t, os.Getpid(), InnerPID("/proc", uint32(os.Getpid())))
	procfs := t.TempDir()
	for pid, c := range map[uint32]struct {
		status string
		want   int
	}{
		7: {"Name:\tx\nNSpid:\t7\t30\t2\nNSpgid:\t7\t30\t1\n", 2},
		8: {"Name:\tNSpid: 3\nNSpid:\t8\n", 8},
		9: {"Name:\tx\nNSpid:\n", 9},
	} {
		dir := filepath.Join(procfs, fmt.Sprint(pid))
		require.NoError(t, os.MkdirAll(dir, 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(dir, "status"), []byte(c.status), 0o600))
		require.Equal(t, c.want, InnerPID(procfs, pid))
	}
	require.Equal(t, 10, InnerPID(procfs, 10), "it has ended")
}

// TestVerdicts: a shell (2) with a live child, and all that can be wrong with one.
func TestVerdicts(t *testing.T) {
	worker := process{pid: 7, parent: 2, session: 2, mode: 'S', cpu: 100, start: 500}
	for _, c := range []struct {
		name   string
		change func(step int, p *process)
		shell  string // "", "gone", or "reused" by another session
		calls  func(step int) int64
		want   Reason
	}{
		{name: "sleeps under its parent"},
		{name: "orphan", change: func(_ int, p *process) { p.parent = 1 }, shell: "gone", want: Orphan},
		{name: "orphan, the id of its session in use again", change: func(_ int, p *process) { p.parent = 1 }, shell: "reused", want: Orphan},
		{name: "becomes an orphan of a parent in its session", change: func(step int, p *process) { p.parent = 2 - min(step, 1) }, want: Orphan},
		{name: "service", change: func(_ int, p *process) { p.parent, p.session = 1, 7 }},
		{name: "main process of a container", change: func(_ int, p *process) { p.parent, p.session = 0, 0 }},
		{name: "orphan that works", change: func(step int, p *process) { p.parent, p.cpu = 1, 100+step*500 }, shell: "gone"},
		{name: "orphan that wakes up now and then", change: func(step int, p *process) { p.parent, p.cpu = 1, 100+step/3 }, shell: "gone", want: Orphan},
		{name: "orphan that calls the driver", change: func(_ int, p *process) { p.parent = 1 }, shell: "gone", calls: func(step int) int64 { return int64(step) }},
		{name: "blocked", change: func(_ int, p *process) { p.mode = 'D' }, want: Blocked},
		{name: "blocked now and then", change: func(step int, p *process) { p.mode = "DS"[step%2] }},
		{name: "stopped", change: func(_ int, p *process) { p.mode = 'T' }, want: Stopped},
		{name: "main thread exited", change: func(_ int, p *process) { p.mode = 'Z' }, want: Exited},
		{name: "killed", change: func(_ int, p *process) { p.mode, p.pending = 'D', "0000000000000100" }, want: Killed},
		{name: "terminated, and may still end", change: func(_ int, p *process) { p.pending = "0000000000004000" }},
		{name: "holds nothing", change: func(_ int, p *process) { p.mode = 'D' }, calls: func(int) int64 { return -1 }},
	} {
		t.Run(c.name, func(t *testing.T) {
			procfs := t.TempDir()
			process{pid: 1, session: 1, mode: 'S'}.write(t, procfs)
			switch c.shell {
			case "":
				process{pid: 2, parent: 1, session: 2, mode: 'S', start: 400}.write(t, procfs)
			case "reused":
				process{pid: 2, parent: 1, session: 2, mode: 'S', start: 900}.write(t, procfs)
			}
			tracker := Tracker{ProcFS: procfs, After: 30 * time.Minute}
			begin := time.Unix(1_700_000_000, 0)
			for step := range 5 {
				p := worker
				if c.change != nil {
					c.change(step, &p)
				}
				p.write(t, procfs)
				h := Holder{PID: 7, Bytes: 12 << 30, Line: "load (train.py:7)"}
				if c.calls != nil {
					if h.Calls = c.calls(step); h.Calls < 0 {
						h.Bytes = 0
					}
				}
				verdicts := tracker.Look(begin.Add(time.Duration(step)*10*time.Minute), time.Hour, []Holder{h, {PID: 99, Bytes: 1}})
				if step < 3 || c.want == "" {
					require.Empty(t, verdicts, "step %d", step)
					continue
				}
				require.Len(t, verdicts, 1)
				require.Equal(t, Verdict{h, "python3", c.want, time.Duration(step) * 10 * time.Minute, time.Hour - 5*time.Second}, verdicts[0])
				require.Contains(t, verdicts[0].String(), "python3[7] "+c.want.Words()+"; it has done nothing for 30m0s"[:len("; it has done nothing for ")])
			}
			// Another process of the same id starts at zero.
			next := worker
			next.parent, next.start = 1, 100000
			next.write(t, procfs)
			require.Empty(t, tracker.Look(begin.Add(time.Hour), time.Hour, []Holder{{PID: 7, Bytes: 1}}))
		})
	}
}

// TestRealProcesses on this kernel: one whose parent has ended, one that is stopped, and one that
// only sleeps.
func TestRealProcesses(t *testing.T) {
	start := func(script string) uint32 {
		cmd := exec.Command("sh", "-c", script)
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		out, err := cmd.StdoutPipe()
		require.NoError(t, err)
		require.NoError(t, cmd.Start())
		line, err := bufio.NewReader(out).ReadString('\n')
		require.NoError(t, err)
		var pid int
		_, err = fmt.Sscan(strings.TrimSpace(line), &pid)
		require.NoError(t, err)
		t.Cleanup(func() {
			_ = syscall.Kill(pid, syscall.SIGKILL)
			_ = cmd.Wait()
		})
		if strings.HasSuffix(script, "exit") {
			_ = cmd.Wait()
		}
		return uint32(pid)
	}
	orphan := start("sleep 100 >/dev/null 2>&1 & echo $!; exit")
	child := start("sleep 100 >/dev/null & echo $!; wait")
	stopped := start("sleep 100 >/dev/null & echo $!; wait")
	require.NoError(t, syscall.Kill(int(stopped), syscall.SIGSTOP))

	holders := []Holder{{PID: orphan, Bytes: 3}, {PID: child, Bytes: 2}, {PID: stopped, Bytes: 1}}
	tracker := Tracker{ProcFS: "/proc", After: 200 * time.Millisecond}
	var got []Verdict
	for deadline := time.Now().Add(20 * time.Second); len(got) < 2 && time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		got = tracker.Look(time.Now(), 0, holders)
	}
	require.Len(t, got, 2)
	require.Equal(t, []Reason{Orphan, Stopped}, []Reason{got[0].Reason, got[1].Reason})
	require.Equal(t, []uint32{orphan, stopped}, []uint32{got[0].PID, got[1].PID})
	require.Equal(t, "sleep", got[0].Comm)
}
