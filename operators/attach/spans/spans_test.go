// SPDX-License-Identifier: Apache-2.0

package spans

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/internal/process/procmaps"
)

// fakeMemory is a Table.
type fakeMemory struct {
	mu      sync.Mutex
	sources map[uint32]Source
	size    int // 0: 8192
}

func (m *fakeMemory) Size() int { return cmp.Or(m.size, maxSources) }

func (m *fakeMemory) PIDs() ([]uint32, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Collect(maps.Keys(m.sources)), nil
}

func (m *fakeMemory) Put(tgid uint32, s Source) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, ok := m.sources[tgid]; !ok && len(m.sources) == m.Size() {
		return ErrFull
	}
	m.sources[tgid] = s
	return nil
}

func (m *fakeMemory) Delete(tgid uint32) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.sources, tgid)
	return nil
}

func (m *fakeMemory) of(pid int) Source {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.sources[uint32(pid)]
}

// sleeper is a program that publishes, and sleeps until its input ends.
func sleeper(t *testing.T) *exec.Cmd {
	t.Helper()
	dir := t.TempDir()
	main := filepath.Join(dir, "main.c")
	require.NoError(t, os.WriteFile(main, []byte("#include <unistd.h>\nvoid publish(void *);"+
		"int main(void) { char c; publish(0); return read(0, &c, 1); }"), 0o644))
	program := filepath.Join(dir, "sleeper")
	out, err := exec.Command("gcc", "-o", program, main, "../../../test/gadgets/spans/testdata/publisher.c",
		"-Wl,--export-dynamic-symbol="+Variable).CombinedOutput()
	require.NoError(t, err, string(out))
	cmd := exec.Command(program)
	_, err = cmd.StdinPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return cmd
}

// other is a procfs that is not this PID namespace's: there are no events of it, and
// processes are found by looking again and again.
func other(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	entries, err := os.ReadDir("/proc")
	require.NoError(t, err)
	for _, e := range entries {
		if _, err := strconv.Atoi(e.Name()); err == nil {
			require.NoError(t, os.Symlink("/proc/"+e.Name(), filepath.Join(dir, e.Name())))
		}
	}
	return dir
}

func TestProcessesAreFoundAndForgottenWithoutEvents(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("reading the mappings of other processes needs root; the uid is not 0")
	}
	first := sleeper(t)
	procfs := other(t)
	m := &fakeMemory{sources: map[uint32]Source{}}
	var mu sync.Mutex
	var warnings []string
	f := NewFollower(Config{ProcFS: procfs, Processes: procmaps.NewCache(procmaps.Config{ProcFS: procfs}), Table: m,
		Warn: func(text string) {
			mu.Lock()
			defer mu.Unlock()
			warnings = append(warnings, text)
		}})
	require.NoError(t, f.Start(context.Background()))
	defer f.Stop()
	require.EqualValues(t, 1, m.of(first.Process.Pid).Access, "at once")
	require.NotZero(t, m.of(first.Process.Pid).StartStack)
	mu.Lock()
	require.Contains(t, strings.Join(warnings, "\n"), "found up to 16s late: no process events")
	mu.Unlock()

	second := sleeper(t)
	require.NoError(t, os.Symlink("/proc/"+strconv.Itoa(second.Process.Pid), filepath.Join(procfs, strconv.Itoa(second.Process.Pid))))
	require.Eventually(t, func() bool { return m.of(second.Process.Pid).Access == 1 }, 30*time.Second, 10*time.Millisecond)

	require.NoError(t, first.Process.Kill())
	_ = first.Wait()
	require.NoError(t, os.Remove(filepath.Join(procfs, strconv.Itoa(first.Process.Pid))))
	require.Eventually(t, func() bool { return m.of(first.Process.Pid) == Source{} }, 30*time.Second, 10*time.Millisecond)
}

// A tenant that has cost too much is read later, with a scan.
func TestATenantThatHasCostTooMuchIsReadLater(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("reading the mappings of other processes needs root; the uid is not 0")
	}
	pid := uint32(sleeper(t).Process.Pid)
	m := &fakeMemory{sources: map[uint32]Source{}}
	f := NewFollower(Config{Processes: procmaps.NewCache(procmaps.Config{}), Table: m})
	tenant := f.cfg.Processes.Tenant(pid)
	f.spent.Take(tenant, time.Minute, time.Now())
	f.look(pid)
	require.Empty(t, m.sources)
	require.True(t, f.later[pid])
	f.spent.Clear()
	f.known[pid] = &process{startStack: startStack("/proc", pid)} // it was read before
	require.NoError(t, f.scan(false))
	require.NotZero(t, m.of(int(pid)).Access)
	require.Empty(t, f.later)
	require.Positive(t, f.spent.Len())
}

// fakeProcesses are processes of tenants.
type fakeProcesses struct {
	Processes
	tenants map[uint32]procmaps.Tenant
}

func (p fakeProcesses) Tenant(pid uint32) procmaps.Tenant { return p.tenants[pid] }

// A tenant whose processes fill the table leaves room to others: the last three quarters.
func TestATenantLeavesReportsToOthers(t *testing.T) {
	tenants := map[uint32]procmaps.Tenant{100: 1, 101: 2}
	var lines []string
	say := func(text string) { lines = append(lines, text) }
	f := NewFollower(Config{Processes: fakeProcesses{tenants: tenants}, Info: say, Warn: say})
	for n := range 10 * maxReported { // one library under many names
		f.report(100, f.cfg.Info, fmt.Sprint("library ", n), "hostile")
	}
	require.Len(t, lines, maxReported*3/4)
	f.report(101, f.cfg.Warn, "library", "honest")
	f.report(101, f.cfg.Warn, "library", "honest")
	require.Equal(t, []string{"honest"}, lines[maxReported*3/4:])

	for pid := range uint32(10 * maxReported) {
		f.warnOf("no memory", fmt.Sprintf("spans of process %d are not recorded: no memory", pid))
	}
	f.warn("processes cannot be listed")
	require.Equal(t, []string{"spans of process 0 are not recorded: no memory", "processes cannot be listed"}, lines[maxReported*3/4+1:])
}

func TestATenantLeavesSourcesToOthers(t *testing.T) {
	const size, hostile, honest = 16, 1, 2
	m := &fakeMemory{sources: map[uint32]Source{}, size: size}
	tenants := map[uint32]procmaps.Tenant{100: hostile, 101: hostile}
	self := uint32(os.Getpid())
	tenants[self] = honest
	var warnings []string
	f := NewFollower(Config{Table: m, Processes: fakeProcesses{tenants: tenants}, Warn: func(text string) { warnings = append(warnings, text) }})
	fill := func() {
		for pid := uint32(1000); len(m.sources) < size; pid++ { // by forks: only the programs know of them
			tenants[pid] = hostile
			m.sources[pid] = Source{Access: 1}
		}
	}
	source := Source{Access: 1, StartStack: startStack("/proc", self)}
	have := func(who procmaps.Tenant) (n int) {
		for pid := range m.sources {
			if tenants[pid] == who {
				n++
			}
		}
		return n
	}

	m.sources[100], f.known[100] = source, &process{source: source}
	fill()
	f.known[101] = &process{}
	f.put(101, f.known[101], Source{Access: 1}, "a library")
	require.True(t, f.later[101], "it is read again")
	require.Equal(t, size, have(hostile), "its tenant has more than a quarter")
	require.Equal(t, []string{"more than 16 processes publish spans: those of some are not recorded"}, warnings)

	f.known[self] = &process{}
	f.put(self, f.known[self], source, "a library")
	require.Equal(t, source, f.known[self].source)
	require.False(t, f.later[self])
	require.Equal(t, size/4, have(hostile))
	require.Equal(t, m.sources[100], f.known[100].source, "what is known of a process is what the table has")

	// As often as it is filled, as long as that is cheap.
	fill()
	f.put(self, f.known[self], source, "a library")
	require.Equal(t, source, m.of(int(self)))
	delete(m.sources, self)
	fill()
	f.room.spent.Take(time.Minute, time.Now())
	f.put(self, f.known[self], source, "a library")
	require.True(t, f.later[self])
	require.Equal(t, size, have(hostile))
}

// The mappings that a process shows are what it likes them to be.
func TestFilesThatAreNoELFDefineNothing(t *testing.T) {
	for name, content := range map[string]string{"empty": "", "text": "#!/bin/sh\n", "ELF": "\x7fELF\x02\x01\x01", "zeroes": string(make([]byte, 4096))} {
		path := filepath.Join(t.TempDir(), "file")
		require.NoError(t, os.WriteFile(path, []byte(content), 0o644))
		f, err := procmaps.NewFile(os.Open(path))
		require.NoError(t, err)
		parsed := parse(f)
		require.Nil(t, parsed.module, name)
		require.NoError(t, parsed.err, name)
		f.Close()
	}
}

func TestStartStackIsThatOfTheAddressSpace(t *testing.T) {
	require.NotZero(t, startStack("/proc", uint32(os.Getpid())))
	require.Zero(t, startStack("/proc", 1<<30))
	dir := t.TempDir()
	for i, stat := range []string{"", "5 (a) b", "5 (a) S 1 2", "5 (x) y) " + strings.Repeat("7 ", 30)} {
		require.NoError(t, os.MkdirAll(filepath.Join(dir, "5"), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(dir, "5", "stat"), []byte(stat), 0o644))
		require.Equal(t, map[bool]uint64{true: 7}[i == 3], startStack(dir, 5), stat)
	}
}

func TestMuslIsKnownByItsLinker(t *testing.T) {
	require.True(t, isMusl(procmaps.Mapping{Path: "/lib/ld-musl-x86_64.so.1"}))
	require.False(t, isMusl(procmaps.Mapping{Path: "/lib64/ld-linux-x86-64.so.2"}))
	require.False(t, isMusl(procmaps.Mapping{Path: "/tmp/ld-musl-x/libc.so.6"}))
}

// A container's share is a part of what the programs take for the size of the table.
func TestRowsAreThoseOfThePrograms(t *testing.T) {
	header, err := os.ReadFile("../../../bpf/process/span.h")
	require.NoError(t, err)
	require.Contains(t, string(header), fmt.Sprintf("#define MAX_SPAN_ROWS %d\n", maxRows))
}
