// SPDX-License-Identifier: Apache-2.0

package unwinder

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/rlimit"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/gpu-gadgets/gpu-gadgets/internal/elf/unwind"
	"github.com/gpu-gadgets/gpu-gadgets/internal/process/procmaps"
)

// newUnwinder has maps of its own, with room for some pages.
func newUnwinder(t *testing.T, pages uint32) *Unwinder {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skipf("needs root for maps of eBPF; runs as user %d", os.Geteuid())
	}
	require.NoError(t, rlimit.RemoveMemlock())
	hash := func(name string, value uintptr, entries uint32) *ebpf.Map {
		m, err := ebpf.NewMap(&ebpf.MapSpec{Name: name, Type: ebpf.Hash, KeySize: uint32(unsafe.Sizeof(Key{})),
			ValueSize: uint32(value), MaxEntries: entries, Flags: unix.BPF_F_NO_PREALLOC})
		require.NoError(t, err)
		t.Cleanup(func() { m.Close() })
		return m
	}
	ring, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.RingBuf, MaxEntries: RingBytes})
	require.NoError(t, err)
	t.Cleanup(func() { ring.Close() })
	u, err := New(Config{Pages: hash("pages", unsafe.Sizeof(Page{}), pages), Asked: hash("asked", 4, AskedPages), Misses: ring})
	require.NoError(t, err)
	t.Cleanup(u.files.close)
	return u
}

// missOf is a walk of a process that has met an address of a file of its.
func missOf(t *testing.T, pid uint32, part string) (Miss, procmaps.Mapping) {
	t.Helper()
	s, err := procmaps.NewCache(procmaps.Config{}).Snapshot(pid)
	require.NoError(t, err)
	for _, m := range s.Mappings {
		if !strings.Contains(m.Path, part) {
			continue
		}
		var st unix.Stat_t
		require.NoError(t, unix.Stat(m.Path, &st))
		at := m.Start + 0x1234
		return Miss{Start: m.Start, Address: at, TGID: pid, Key: Key{Inode: st.Ino, Bytes: uint64(st.Size),
			Device: unix.Major(st.Dev)<<20 | unix.Minor(st.Dev), Changed: changed(&st), Page: uint32(m.FileOffset(at) >> pageBits)}}, m
	}
	require.Fail(t, "nothing is mapped of "+part)
	return Miss{}, procmaps.Mapping{}
}

// libcCode is the line of libc's code in a process's maps; the loader maps other parts before it.
var libcCode = regexp.MustCompile(`r-xp .*/libc\.so\.6`)

// sleeper is a process with libc.
func sleeper(t *testing.T, program string) uint32 {
	t.Helper()
	return started(t, exec.Command(program, "60"))
}

// otherTenant is one of another tenant: in a mount namespace of its own, and without a cgroup of its own.
func otherTenant(t *testing.T) uint32 {
	t.Helper()
	cmd := exec.Command("sleep", "60")
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
	pid := started(t, cmd)
	if procmaps.TenantOf("/proc", pid) == procmaps.TenantOf("/proc", uint32(os.Getpid())) {
		t.Skip("this process is in a cgroup, and so is what it starts: one tenant")
	}
	return pid
}

func started(t *testing.T, cmd *exec.Cmd) uint32 {
	t.Helper()
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	pid := uint32(cmd.Process.Pid)
	require.Eventually(t, func() bool {
		text, err := os.ReadFile("/proc/" + strconv.Itoa(cmd.Process.Pid) + "/maps")
		return err == nil && libcCode.Match(text)
	}, 10*time.Second, time.Millisecond)
	return pid
}

func TestAMissLoadsItsPage(t *testing.T) {
	u := newUnwinder(t, 1000)
	miss, m := missOf(t, sleeper(t, "sleep"), "/libc.so.6")
	require.NoError(t, u.cfg.Asked.Put(miss.Key, uint32(1)))
	u.handle([]Miss{miss})

	var p Page
	require.NoError(t, u.cfg.Pages.Lookup(miss.Key, &p))
	file, err := os.Open(m.Path)
	require.NoError(t, err)
	defer file.Close()
	f, err := unwind.Open(file, int64(miss.Key.Bytes))
	require.NoError(t, err)
	begin := uint64(miss.Key.Page) << pageBits
	rows, err := f.Rows(begin, begin+pageBytes)
	require.NoError(t, err)
	want := encode(rows, begin)[0]
	want.Used = p.Used
	assert.Equal(t, want, p)
	assert.NotZero(t, p.Used)
	var one uint32
	assert.ErrorIs(t, u.cfg.Asked.Lookup(miss.Key, &one), ebpf.ErrKeyNotExist, "walks may ask again")
	assert.EqualValues(t, 1, u.Stats().Misses)
}

// A walk identifies the file that it met by the kernel's numbers; the mapping may be of another
// one by the time that it is opened.
func TestAMappingOfAnotherFileByNowGivesNoRules(t *testing.T) {
	u := newUnwinder(t, 1000)
	// On a file system that shows what the kernel has, which overlayfs does not.
	dir, err := os.MkdirTemp("/dev/shm", "unwinder-")
	require.NoError(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	program := filepath.Join(dir, "program")
	b, err := os.ReadFile("/bin/sleep")
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(program, b, 0o755))
	miss, _ := missOf(t, sleeper(t, program), program)
	for name, change := range map[string]func(*Miss){
		"inode":   func(m *Miss) { m.Key.Inode++ },
		"size":    func(m *Miss) { m.Key.Bytes++ },
		"device":  func(m *Miss) { m.Key.Device++ },
		"changed": func(m *Miss) { m.Key.Changed++ },
		"mapping": func(m *Miss) { m.Start-- },
		"process": func(m *Miss) { m.TGID = 1 << 30 },
	} {
		other := miss
		change(&other)
		require.NoError(t, u.cfg.Asked.Put(other.Key, uint32(1)))
		u.handle([]Miss{other})
		assert.False(t, u.has(other.Key), name)
		var one uint32
		assert.NoError(t, u.cfg.Asked.Lookup(other.Key, &one), "%s: not asked for again at once", name)
		u.askAgain(time.Now().Add(2 * retryAfter))
		assert.ErrorIs(t, u.cfg.Asked.Lookup(other.Key, &one), ebpf.ErrKeyNotExist, name)
	}
	assert.EqualValues(t, 6, int(u.Stats().Failed))
}

func TestPagesNotUsedForLongestMakeRoom(t *testing.T) {
	u := newUnwinder(t, 64)
	pid := sleeper(t, "sleep")
	miss, m := missOf(t, pid, "/libc.so.6")
	first := miss.Key
	for i := range uint32(500) {
		miss.Key.Page = uint32(m.Offset>>pageBits) + i
		u.handle([]Miss{miss})
		require.True(t, u.has(miss.Key), "page %d", i)
		require.LessOrEqual(t, u.Stats().Pages, 64)
		// A walk uses the first one all the time.
		var p Page
		if u.cfg.Pages.Lookup(first, &p) == nil {
			p.Used = 1 << 31
			require.NoError(t, u.cfg.Pages.Put(first, &p))
		}
	}
	assert.True(t, u.has(first))
	assert.NotZero(t, u.Stats().Evicted)
	n := 0
	var key Key
	var p Page
	for it := u.cfg.Pages.Iterate(); it.Next(&key, &p); {
		n++
	}
	assert.Equal(t, u.Stats().Pages, n)
}

// The pages of a tenant's files do not take the place of another one's.
func TestATenantMakesRoomByItsOwnPages(t *testing.T) {
	u := newUnwinder(t, 64)
	load := func(pid uint32, n int) (keys []Key) {
		miss, m := missOf(t, pid, "/libc.so.6")
		for i := range uint32(n) {
			miss.Key.Page = uint32(m.Offset>>pageBits) + i
			if pid%2 == 1 {
				miss.Key.Page += 100
			}
			u.handle([]Miss{miss})
			require.True(t, u.has(miss.Key))
			keys = append(keys, miss.Key)
		}
		return keys
	}
	own := sleeper(t, "sleep")
	other := otherTenant(t)
	for other%2 == own%2 { // so that they have different pages of the same file
		other = otherTenant(t)
	}
	kept := load(own, 64/5)
	load(other, 100)
	require.LessOrEqual(t, u.Stats().Pages, 64)
	require.NotZero(t, u.Stats().Evicted)
	for _, key := range kept {
		require.True(t, u.has(key))
	}
	require.Len(t, u.owners, u.Stats().Pages)
}

// A tenant whose files take long is served less often; others are not.
func TestATenantThatHasCostTooMuchDelaysNoOther(t *testing.T) {
	u := newUnwinder(t, 1000)
	own, other := sleeper(t, "sleep"), otherTenant(t)
	hostile, m := missOf(t, other, "/libc.so.6")
	u.tenants.Take(u.cfg.Processes.Tenant(other), time.Minute, time.Now())
	var batch []Miss
	for i := range uint32(maxWaiting + 10) {
		hostile.Key.Page = uint32(m.Offset>>pageBits) + 100 + i
		require.NoError(t, u.cfg.Asked.Put(hostile.Key, uint32(1)))
		batch = append(batch, hostile)
	}
	honest, _ := missOf(t, own, "/libc.so.6")
	u.handle(append(batch, honest))
	require.True(t, u.has(honest.Key))
	for _, miss := range batch {
		require.False(t, u.has(miss.Key))
	}

	asked := func() (n int) {
		for _, miss := range batch {
			var one uint32
			if u.cfg.Asked.Lookup(miss.Key, &one) == nil {
				n++
			}
		}
		return n
	}
	require.Equal(t, maxWaiting, asked(), "the rest leaves room")
	u.askAgain(time.Now().Add(2 * retryAfter))
	require.Zero(t, asked())
	require.Empty(t, u.waiting)
	require.Empty(t, u.again)
}

func TestAFileThatIsRewrittenInPlaceIsReadAgain(t *testing.T) {
	u := newUnwinder(t, 1000)
	program := filepath.Join(t.TempDir(), "program")
	b, err := os.ReadFile("/bin/sleep")
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(program, b, 0o755))
	miss, _ := missOf(t, sleeper(t, program), program)
	u.handle([]Miss{miss})
	require.True(t, u.has(miss.Key))

	require.NoError(t, os.Chmod(program, 0o700)) // changes the ctime, as a write does
	stale := miss
	stale.Key.Page++
	u.handle([]Miss{stale})
	assert.False(t, u.has(stale.Key), "rules of what the file is now, as what it was before")
	next, _ := missOf(t, miss.TGID, program)
	require.NotEqual(t, miss.Key, next.Key)
	u.handle([]Miss{next})
	assert.True(t, u.has(next.Key))
}

// TestTheTimeForRulesIsBounded: first use of large libraries is not slowed down, work without end is.
func TestTheTimeForRulesIsBounded(t *testing.T) {
	a := newTenantsAllowances()
	now := time.Now()
	a.Take(1, 1500*time.Millisecond, now)
	require.Zero(t, a.Pause(1, now))
	now = now.Add(2 * time.Second)
	worked, began := time.Duration(0), now
	for range 1000 {
		a.Take(1, 100*time.Millisecond, now)
		worked += 100 * time.Millisecond
		now = now.Add(max(100*time.Millisecond, a.Pause(1, now)))
	}
	require.Zero(t, a.Pause(2, now), "another tenant")
	require.InDelta(t, 0.05, float64(worked)/float64(now.Sub(began)), 0.01)
	now = now.Add(time.Minute)
	a.Take(1, time.Second, now)
	require.Zero(t, a.Pause(1, now), "what was waited is paid back")
}

// What else is on the stack of a miss is loaded with it.
func TestTheRestOfTheStackIsLoadedAtOnce(t *testing.T) {
	u := newUnwinder(t, 10000)
	var fs unix.Statfs_t
	require.NoError(t, unix.Statfs("/bin/sleep", &fs))
	if uint32(fs.Type) == unix.OVERLAYFS_SUPER_MAGIC {
		t.Skip("/bin is on overlayfs: which file is mapped is known from a miss only")
	}
	pid := sleeper(t, "sleep")
	var sp uint64
	require.Eventually(t, func() bool {
		text, err := os.ReadFile("/proc/" + strconv.Itoa(int(pid)) + "/syscall")
		fields := strings.Fields(string(text))
		if err != nil || len(fields) < 9 {
			return false // it runs
		}
		_, err = fmt.Sscan(fields[len(fields)-2], &sp)
		return err == nil && sp != 0
	}, 10*time.Second, time.Millisecond)
	miss, _ := missOf(t, pid, "/libc.so.6")
	miss.SP = sp
	u.handle([]Miss{miss})
	assert.Greater(t, u.Stats().Pages, 3)
	of := map[uint64]bool{}
	var key Key
	var p Page
	for it := u.cfg.Pages.Iterate(); it.Next(&key, &p); {
		of[key.Inode] = true
	}
	assert.GreaterOrEqual(t, len(of), 2, "libc and the program that called it")
}
