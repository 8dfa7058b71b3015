// SPDX-License-Identifier: Apache-2.0

package procmaps

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func parseAll(t *testing.T, text string) ([]Mapping, error) {
	t.Helper()
	var all []Mapping
	err := Parse(strings.NewReader(text), func(m Mapping) bool {
		all = append(all, m)
		return true
	})
	return all, err
}

func TestParseLine(t *testing.T) {
	for name, c := range map[string]struct {
		line string
		want Mapping
	}{
		"library": {
			"7f00-8f00 r-xp 00001000 08:02 1234                       /usr/lib/libcuda.so.1\n",
			Mapping{0x7f00, 0x8f00, 0x1000, Read | Exec, 0x802, 1234, "/usr/lib/libcuda.so.1", false},
		},
		"deleted": {
			"1000-2000 r--s 00000000 00:1f 7   /tmp/a b.so (deleted)\n",
			Mapping{0x1000, 0x2000, 0, Read | Shared, 0x1f, 7, "/tmp/a b.so", true},
		},
		"newline and backslash in the name": {
			"1000-2000 rw-p 00000000 103:05 7   /tmp/a\\012b\\040c\n",
			Mapping{0x1000, 0x2000, 0, Read | Write, 0x10305, 7, "/tmp/a\nb\\040c", false},
		},
		"anonymous": {
			"1000-2000 rwxp 00000000 00:00 0 \n",
			Mapping{0x1000, 0x2000, 0, Read | Write | Exec, 0, 0, "", false},
		},
		"vdso at the end of a file without newline": {
			"ffff0000-ffff1000 r-xp 00000000 00:00 0    [vdso]",
			Mapping{0xffff0000, 0xffff1000, 0, Read | Exec, 0, 0, "[vdso]", false},
		},
	} {
		t.Run(name, func(t *testing.T) {
			all, err := parseAll(t, c.line)
			require.NoError(t, err)
			require.Equal(t, []Mapping{c.want}, all)
		})
	}
}

func TestParseSkipsWhatTheKernelWouldNotWrite(t *testing.T) {
	good := "1000-2000 r-xp 00000000 00:01 7 /a\n"
	for name, bad := range map[string]string{
		"empty address":  "- r-xp 0 00:01 7 /b\n",
		"end before":     "2000-1000 r-xp 0 00:01 7 /b\n",
		"words":          "once upon a time\n",
		"too long":       "3000-4000 r-xp 0 00:01 7 /" + strings.Repeat("x", 5*maxLine) + "\n",
		"perms":          "3000-4000 rx 0 00:01 7 /b\n",
		"huge number":    "3000-fffffffffffffffff r-xp 0 00:01 7 /b\n",
		"nul bytes":      "\x00\x00\x00\n",
		"negative inode": "3000-4000 r-xp 0 00:01 -7 /b\n",
	} {
		t.Run(name, func(t *testing.T) {
			all, err := parseAll(t, good+bad+good)
			require.ErrorIs(t, err, ErrMalformed)
			require.Len(t, all, 2)
		})
	}
}

func FuzzParse(f *testing.F) {
	f.Add("7f00-8f00 r-xp 00001000 08:02 1234   /usr/lib/libcuda.so.1\n")
	f.Add("1000-2000 r--s 00000000 00:1f 7   /tmp/a\\012b (deleted)")
	f.Fuzz(func(t *testing.T, text string) {
		_ = Parse(strings.NewReader(text), func(m Mapping) bool {
			if m.Start >= m.End {
				t.Fatalf("empty mapping %+v from %q", m, text)
			}
			return true
		})
	})
}

// Whatever a process calls itself, the fields are the kernel's.
func FuzzStatFields(f *testing.F) {
	f.Add("a) b", "1 (x")
	f.Add("(", ") S 1 2 3")
	f.Add("\n", "")
	f.Fuzz(func(t *testing.T, comm, text string) {
		fields := StatFields([]byte("42 (" + comm + ") S 1 7"))
		if len(fields) != 3 || string(fields[0]) != "S" || string(fields[2]) != "7" {
			t.Fatalf("%q of a process called %q", fields, comm)
		}
		_ = StatFields([]byte(text))
	})
}

// fakeProc writes the procfs of one process.
func fakeProc(t *testing.T, root string, pid, start int, maps string) {
	t.Helper()
	dir := filepath.Join(root, fmt.Sprint(pid))
	require.NoError(t, os.MkdirAll(dir, 0o755))
	stat := fmt.Sprintf("%d (a) b) S 1 %s%d 0\n", pid, strings.Repeat("0 ", 17), start)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "stat"), []byte(stat), 0o644))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "maps"), []byte(maps), 0o644))
}

func TestStartTimeOfACommandWithBrackets(t *testing.T) {
	root := t.TempDir()
	fakeProc(t, root, 5, 777, "")
	start, err := StartTime(root, 5)
	require.NoError(t, err)
	require.Equal(t, uint64(777), start)
}

func TestCacheNamesAddressesOfExitedProcess(t *testing.T) {
	root := t.TempDir()
	c := NewCache(Config{ProcFS: root})
	fakeProc(t, root, 5, 777, "1000-2000 r-xp 0 00:01 7 /a\n2000-3000 rw-p 0 00:01 7 /a\n")
	s, err := c.Snapshot(5)
	require.NoError(t, err)
	require.Len(t, s.Mappings, 1, "only executable mappings are kept")

	require.NoError(t, os.RemoveAll(filepath.Join(root, "5")))
	m, ok := c.Find(5, 0x1800)
	require.True(t, ok)
	require.Equal(t, "/a", m.Path)
	_, err = c.Snapshot(5)
	require.ErrorIs(t, err, ErrGone)
	_, ok = c.Find(5, 0x1800)
	require.True(t, ok, "ErrGone must not drop the snapshot")

	// The pid is reused: the old process stays reachable by its key.
	fakeProc(t, root, 5, 888, "1000-2000 r-xp 0 00:01 7 /b\n")
	_, err = c.Snapshot(5)
	require.NoError(t, err)
	m, _ = c.Find(5, 0x1800)
	require.Equal(t, "/b", m.Path)
	m, ok = c.Lookup(Process{5, 777}, 0x1800)
	require.True(t, ok)
	require.Equal(t, "/a", m.Path)
}

func TestCacheReadsAgainForUncoveredAddress(t *testing.T) {
	root := t.TempDir()
	c := NewCache(Config{ProcFS: root, MinRefresh: 30 * time.Millisecond})
	fakeProc(t, root, 5, 777, "1000-2000 r-xp 0 00:01 7 /a\n")
	_, ok := c.Find(5, 0x5000)
	require.False(t, ok)
	fakeProc(t, root, 5, 777, "1000-2000 r-xp 0 00:01 7 /a\n5000-6000 r-xp 0 00:01 8 /late\n")
	_, ok = c.Find(5, 0x5000)
	require.False(t, ok, "rate limit")
	time.Sleep(40 * time.Millisecond)
	m, ok := c.Find(5, 0x5000)
	require.True(t, ok)
	require.Equal(t, "/late", m.Path)
}

func TestFilesAroundAnAddress(t *testing.T) {
	root := t.TempDir()
	c := NewCache(Config{ProcFS: root})
	around := func(addr uint64) (paths []string) {
		for _, m := range c.Around(5, addr) {
			paths = append(paths, m.Path)
		}
		return paths
	}
	require.Empty(t, around(0x3000), "nothing is read")
	fakeProc(t, root, 5, 777, "1000-2000 r-xp 0 00:01 7 /a\n2000-3000 rw-p 0 00:01 7 /a\n"+
		"4000-5000 r-xp 0 00:00 0 \n6000-7000 r-xp 0 00:00 0 [vdso]\n8000-9000 r-xp 0 00:01 8 /b\n")
	_, err := c.Snapshot(5)
	require.NoError(t, err)
	for addr, want := range map[uint64][]string{
		0x0500: {"/a"}, 0x1500: {"/a"}, 0x2500: {"/a", "/b"}, 0x4500: {"/a", "/b"}, 0x7500: {"/a", "/b"}, 0x9500: {"/b"},
	} {
		require.Equal(t, want, around(addr), "%#x", addr)
	}
	c.Exited(5)
	require.Equal(t, []string{"/b"}, around(^uint64(0)))
}

func TestCacheAfterExec(t *testing.T) {
	root := t.TempDir()
	c := NewCache(Config{ProcFS: root})
	fakeProc(t, root, 5, 777, "1000-2000 r-xp 0 00:01 7 /a\n")
	_, err := c.Snapshot(5)
	require.NoError(t, err)
	fakeProc(t, root, 5, 777, "1000-2000 r-xp 0 00:01 7 /b\n")
	c.Stale(5)
	m, _ := c.Find(5, 0x1000)
	require.Equal(t, "/b", m.Path)
}

func TestCacheIsBounded(t *testing.T) {
	root := t.TempDir()
	c := NewCache(Config{ProcFS: root, MaxProcesses: 10, MaxExited: 3})
	for pid := 1; pid <= 50; pid++ {
		fakeProc(t, root, pid, pid, "1000-2000 r-xp 0 00:01 7 /a\n")
		_, err := c.Snapshot(uint32(pid))
		require.NoError(t, err)
		if pid%2 == 0 {
			c.Exited(uint32(pid))
		}
		require.LessOrEqual(t, c.running.Len()+c.exited.Len(), 10)
		require.LessOrEqual(t, c.exited.Len(), 3)
		require.Equal(t, c.running.Len()+c.exited.Len(), len(c.byPID))
		require.Len(t, c.byExited, c.exited.Len())
	}
}

// A pipe without a writer blocks like the lock of a process that hangs.
func TestAProcessThatHangsDoesNotBlock(t *testing.T) {
	root := t.TempDir()
	c := NewCache(Config{ProcFS: root})
	fakeProc(t, root, 5, 777, "")
	maps := filepath.Join(root, "5", "maps")
	require.NoError(t, os.Remove(maps))
	require.NoError(t, unix.Mkfifo(maps, 0o600))
	_, err := c.Snapshot(5)
	require.ErrorIs(t, err, ErrStuck)
	begin := time.Now()
	const often = 40 // so that a busy machine makes no difference
	for range often {
		_, err = c.Snapshot(5)
		require.ErrorIs(t, err, ErrStuck)
	}
	require.Less(t, time.Since(begin), often*readTimeout/2, "one that is known to hang is not waited for")

	f, err := os.OpenFile(maps, os.O_WRONLY, 0) // the lock is released
	require.NoError(t, err)
	_, err = f.WriteString("1000-2000 r-xp 0 00:01 7 /a\n")
	require.NoError(t, err)
	f.Close()
	require.Eventually(t, func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.reading[5] == nil
	}, time.Second, time.Millisecond)
}

// Processes of one tenant hang, more than may be waited for: those of another one are read.
func TestThoseThatHangTakeNoRoomOfOtherTenants(t *testing.T) {
	root := t.TempDir()
	c := NewCache(Config{ProcFS: root})
	add := func(pid int, tenant string) string {
		fakeProc(t, root, pid, 777, "1000-2000 r-xp 0 00:01 7 /a\n")
		require.NoError(t, os.WriteFile(filepath.Join(root, strconv.Itoa(pid), "cgroup"), []byte("0::/"+tenant+"\n"), 0o600))
		return filepath.Join(root, strconv.Itoa(pid), "maps")
	}
	hang := func(pid int, tenant string) {
		maps := add(pid, tenant)
		require.NoError(t, os.Remove(maps))
		require.NoError(t, unix.Mkfifo(maps, 0o600))
		t.Cleanup(func() { // ends the read, if there is one
			if f, err := os.OpenFile(maps, os.O_WRONLY|unix.O_NONBLOCK, 0); err == nil {
				f.Close()
			}
		})
	}
	var done sync.WaitGroup
	for n := range 2 * maxReading {
		hang(1000+n, fmt.Sprint("hostile", n%3))
	}
	for n := range 2 * maxReading {
		done.Go(func() {
			_, err := c.Snapshot(uint32(1000 + n))
			assert.ErrorIs(t, err, ErrStuck)
		})
	}
	done.Wait()
	require.Len(t, c.reading, 3*maxReading/4)
	add(7, "honest")
	_, err := c.Snapshot(7)
	require.NoError(t, err)
	add(8, "hostile1")
	_, err = c.Snapshot(8)
	require.ErrorIs(t, err, ErrStuck)
}

func TestSnapshotIsSortedWhateverTheFileSays(t *testing.T) {
	root := t.TempDir()
	c := NewCache(Config{ProcFS: root})
	fakeProc(t, root, 5, 1, "5000-6000 r-xp 0 00:01 7 /b\n1000-2000 r-xp 0 00:01 7 /a\n")
	m, ok := c.Find(5, 0x1000)
	require.True(t, ok)
	require.Equal(t, "/a", m.Path)
}

// TestOpenDeletedFile runs on the machine's own /proc.
func TestOpenDeletedFile(t *testing.T) {
	sleep, err := exec.LookPath("sleep")
	require.NoError(t, err)
	b, err := os.ReadFile(sleep)
	require.NoError(t, err)
	path := filepath.Join(t.TempDir(), "a sleeper\nof two lines")
	require.NoError(t, os.WriteFile(path, b, 0o755))
	cmd := exec.Command(path, "60")
	require.NoError(t, cmd.Start())
	defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()

	c := NewCache(Config{})
	mapping := func() (m Mapping) {
		require.Eventually(t, func() bool { // Start returns before the program is mapped
			s, err := c.Snapshot(uint32(cmd.Process.Pid))
			require.NoError(t, err)
			i := slices.IndexFunc(s.Mappings, func(m Mapping) bool { return m.Path == path })
			if i >= 0 {
				m = s.Mappings[i]
			}
			return i >= 0
		}, 30*time.Second, time.Millisecond)
		return m
	}
	f, err := c.Open(uint32(cmd.Process.Pid), mapping())
	require.NoError(t, err)
	f.Close()

	require.NoError(t, os.Remove(path))
	require.NoError(t, os.WriteFile(path, []byte("another file"), 0o644))
	m := mapping()
	require.True(t, m.Deleted)
	f, err = c.Open(uint32(cmd.Process.Pid), m)
	if os.Geteuid() != 0 {
		require.ErrorIs(t, err, os.ErrPermission)
		t.Skip("map_files needs root; the uid is not 0")
	}
	require.NoError(t, err)
	defer f.Close()
	got := make([]byte, 4)
	_, err = f.ReadAt(got, 0)
	require.NoError(t, err)
	require.Equal(t, "\x7fELF", string(got))
}

func TestOpenInRootStaysInside(t *testing.T) {
	root := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(root, "inside"), []byte("in"), 0o644))
	require.NoError(t, os.Symlink("/inside", filepath.Join(root, "absolute")))
	require.NoError(t, os.Symlink("../../../../../../etc/passwd", filepath.Join(root, "escape")))
	f, err := OpenInRoot(root, "/absolute")
	require.NoError(t, err)
	f.Close()
	_, err = OpenInRoot(root, "/escape")
	require.ErrorIs(t, err, os.ErrNotExist)
	_, err = OpenInRoot(root, "/")
	require.True(t, errors.Is(err, ErrNotRegular), err)
}

func BenchmarkSnapshotOfThousandMappings(b *testing.B) {
	var text strings.Builder
	for i := range 1000 {
		fmt.Fprintf(&text, "7f%06x000-7f%06x000 r-xp 00001000 08:02 %d          /usr/lib/x86_64-linux-gnu/lib%d.so\n",
			2*i, 2*i+1, i, i/4)
	}
	b.ReportAllocs()
	for b.Loop() {
		_ = Parse(strings.NewReader(text.String()), func(Mapping) bool { return true })
	}
}
