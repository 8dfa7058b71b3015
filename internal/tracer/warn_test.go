// SPDX-License-Identifier: Apache-2.0

package tracer

import (
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/gpu-gadgets/gpu-gadgets/internal/process/procmaps"
)

// fakeProcFS has processes that cannot be read: one whose maps are
// unreadable as a directory is, one that maps a library which is not there, and
// entries that are no processes.
func fakeProcFS(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	process := func(pid int) string {
		dir := filepath.Join(root, fmt.Sprint(pid))
		require.NoError(t, os.MkdirAll(dir, 0o755))
		stat := fmt.Sprintf("%d (x) S 1 %s7 0\n", pid, strings.Repeat("0 ", 17))
		require.NoError(t, os.WriteFile(filepath.Join(dir, "stat"), []byte(stat), 0o644))
		return dir
	}
	require.NoError(t, os.Mkdir(filepath.Join(process(11), "maps"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(process(12), "maps"),
		[]byte("1000-2000 r-xp 00000000 00:01 7 /nowhere/libtracertest.so\n"), 0o644))
	require.NoError(t, os.WriteFile(filepath.Join(process(13), "maps"), []byte("\x00garbage\n"), 0o644))
	require.NoError(t, os.WriteFile(filepath.Join(root, "uptime"), nil, 0o644))
	require.NoError(t, os.Mkdir(filepath.Join(root, "99999999999999999999"), 0o755))
	return root
}

func TestUnreadableProcesses(t *testing.T) {
	k := load(t)
	warnings := make(chan string, 10)
	tr, rows := start(t, Config{
		ProcFS: fakeProcFS(t), Programs: k.programs, WarnAfter: 50 * time.Millisecond,
		Warn: func(s string) { warnings <- s },
	})
	row, _ := rows.wait(t, "unreadable", func(a Attachment) bool { return a.PID == 12 })
	require.Equal(t, StatusUnreadable, row.Status)
	require.Equal(t, 1, tr.Stats().Unreadable)
	require.Equal(t, 3, tr.Stats().Processes)
	require.Contains(t, <-warnings, "another PID namespace", "the fake procfs has no self")
	w := <-warnings
	require.Contains(t, w, "no process has mapped libtracertest.so* (read the mappings of 2 processes, 1 unreadable)")
	require.Contains(t, w, "process 12: /nowhere/libtracertest.so: unreadable")
	select {
	case w := <-warnings:
		t.Fatalf("repeated at once: %s", w)
	case <-time.After(200 * time.Millisecond):
	}
}

func TestNoWarningWhenAttached(t *testing.T) {
	k := load(t)
	h := startHost(t)
	h.ask("open %s", buildLibrary(t, t.TempDir()))
	_, rows := start(t, Config{
		Programs: k.programs, WarnAfter: 2 * time.Second,
		Warn: func(s string) { t.Error(s) },
	})
	rows.attached(t, h.pid)
	time.Sleep(2500 * time.Millisecond)
}

func TestStartNamesTheProcessThatCannotBeTraced(t *testing.T) {
	k := load(t)
	for pid, want := range map[uint32]string{
		11:   "read mappings of process 11: ",
		4000: "process 4000: no such process",
	} {
		tr, err := New(Config{ProcFS: fakeProcFS(t), Programs: k.programs, Points: testPoints, PIDs: []uint32{pid}})
		require.NoError(t, err)
		err = tr.Start(t.Context())
		require.ErrorContains(t, err, want)
		require.NotContains(t, err.Error(), "\n")
		tr.Stop()
	}
}

func TestPIDsWithDescendants(t *testing.T) {
	k := load(t)
	h, other := startHost(t), startHost(t)
	path := buildLibrary(t, t.TempDir())
	h.ask("open %s", path)
	other.ask("open %s", path)
	selected := map[uint32]bool{}
	_, rows := start(t, Config{
		Programs: k.programs, PIDs: []uint32{h.pid}, ScanInterval: 50 * time.Millisecond,
		Select: func(pid uint32, yes bool) error { selected[pid] = yes; return nil },
	})
	rows.attached(t, h.pid)
	child := uint32(h.ask("fork"))
	rows.attached(t, child)
	rows.mu.Lock()
	defer rows.mu.Unlock()
	for _, a := range rows.all {
		require.NotEqual(t, other.pid, a.PID)
	}
	require.Equal(t, map[uint32]bool{h.pid: true, child: true}, selected)
}

func TestWithoutPrivileges(t *testing.T) {
	if os.Geteuid() == 0 {
		require.NoError(t, checkPrivileges())
		// Capabilities are of the thread; it ends with this goroutine.
		done := make(chan error)
		go func() {
			lockThread()
			header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
			var none [2]unix.CapUserData
			if err := unix.Capset(&header, &none[0]); err != nil {
				done <- err
				return
			}
			done <- checkPrivileges()
		}()
		require.ErrorIs(t, <-done, ErrPrivileges)
		return
	}
	require.ErrorIs(t, checkPrivileges(), ErrPrivileges)
}

// A pipe without a writer blocks like the lock of a process that hangs: it is the one to be traced.
func TestAProcessThatHangsIsTraced(t *testing.T) {
	procfs := t.TempDir()
	dir := filepath.Join(procfs, "7")
	require.NoError(t, os.Mkdir(dir, 0o755))
	stat, err := os.ReadFile("/proc/self/stat")
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "stat"), stat, 0o644))
	pipe := filepath.Join(dir, "maps")
	require.NoError(t, unix.Mkfifo(pipe, 0o600))
	t.Cleanup(func() { // ends the reads
		f, err := os.OpenFile(pipe, os.O_WRONLY, 0)
		require.NoError(t, err)
		f.Close()
	})
	require.NoError(t, Check(procfs, []uint32{7}))

	var warnings []string
	tr := &Tracer{state: newState(), cfg: Config{
		ProcFS: procfs, Maps: procmaps.NewCache(procmaps.Config{ProcFS: procfs}), ScanInterval: time.Second,
		PIDs: []uint32{7}, Warn: func(s string) { warnings = append(warnings, s) },
	}}
	tr.inspect(7, 0)
	require.NoError(t, tr.checkSelected())
	require.Equal(t, []string{"process 7 hangs in the kernel: its libraries are not known until it continues"}, warnings)

	tr.processes[7].err = os.ErrPermission
	require.ErrorIs(t, tr.checkSelected(), os.ErrPermission)
}

func TestConfigErrors(t *testing.T) {
	one := &ebpf.Program{}
	for name, c := range map[string]struct {
		cfg  Config
		want string
	}{
		"no points":   {Config{}, "no functions"},
		"no programs": {Config{Points: testPoints}, "no programs for attach mode perf"},
		"no exit":     {Config{Points: testPoints, Mode: Perf, Programs: Programs{Enter: one}}, "no programs for attach mode perf"},
		"wrong mode":  {Config{Points: testPoints, Mode: "ptrace"}, `unknown attach mode "ptrace"`},
		"no multi":    {Config{Points: testPoints, Mode: Multi, Programs: Programs{Enter: one, Exit: one}}, "attach mode multi"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := New(c.cfg)
			require.ErrorContains(t, err, c.want)
		})
	}
}

func TestStopWithoutStart(t *testing.T) {
	tr, err := New(Config{Points: testPoints, Programs: Programs{Enter: &ebpf.Program{}, Exit: &ebpf.Program{}}, Mode: Perf})
	require.NoError(t, err)
	tr.Stop()
	tr.Stop()
}

func TestCancelledContextEndsTheLoop(t *testing.T) {
	k := load(t)
	tr, err := New(Config{Programs: k.programs, Points: testPoints})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	require.NoError(t, tr.Start(ctx))
	cancel()
	tr.done.Wait()
	tr.Stop()
}

func FuzzParseCache(f *testing.F) {
	if b, err := os.ReadFile("/etc/ld.so.cache"); err == nil {
		f.Add(b[:min(len(b), 4096)])
	}
	tr, err := New(Config{Points: []Point{{Library: "libc"}}, Programs: Programs{Enter: &ebpf.Program{}}, Mode: Perf})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if got := tr.parseCache(b); len(got) > maxFound {
			t.Fatalf("%d paths", len(got))
		}
	})
}

// TestParseCacheOfEndlessNames: every entry leads to the same long name.
func TestParseCacheOfEndlessNames(t *testing.T) {
	b := make([]byte, maxCache)
	for i := range b {
		b[i] = 1
	}
	copy(b, "glibc-ld.so.cache1.1")
	for i := 48; i < 48+24*maxCached; i += 24 {
		binary.NativeEndian.PutUint32(b[i+8:], maxCache/2)
	}
	tr, err := New(Config{Points: []Point{{Library: "libc"}}, Programs: Programs{Enter: &ebpf.Program{}}, Mode: Perf})
	require.NoError(t, err)
	begin := time.Now()
	require.Empty(t, tr.parseCache(b))
	t.Log(time.Since(begin))
	require.Less(t, time.Since(begin), 30*time.Second, "a blink, and not hours")
}

func TestParseCacheOfThisMachine(t *testing.T) {
	b, err := os.ReadFile("/etc/ld.so.cache")
	if err != nil {
		t.Skip("no /etc/ld.so.cache: ", err)
	}
	tr, err := New(Config{Points: []Point{{Library: "libc"}}, Programs: Programs{Enter: &ebpf.Program{}}, Mode: Perf})
	require.NoError(t, err)
	found := tr.parseCache(b)
	require.NotEmpty(t, found)
	require.FileExists(t, found[0])
}
