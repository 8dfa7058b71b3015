// SPDX-License-Identifier: Apache-2.0

package symbols

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/internal/process/procmaps"
	"github.com/gpu-gadgets/gpu-gadgets/internal/stack"
)

// run are processes with one library, each at an address of its own and on a device of its
// own, as containers of an image have it. They are there for a moment.
type run struct {
	library string
	there   map[uint32]bool
	device  uint64 // 0: of its own for each
	opened  int
}

func (p *run) mapping(pid uint32) procmaps.Mapping {
	start := 0x7f0000000000 + uint64(pid)<<24
	return procmaps.Mapping{Start: start, End: start + 1<<23, Device: cmp.Or(p.device, uint64(pid)), Inode: 7, Path: p.library}
}

func (p *run) Find(pid uint32, _ uint64) (procmaps.Mapping, bool) { return p.mapping(pid), true }

func (p *run) FindSince(pid uint32, _ uint64, _ time.Time) (procmaps.Mapping, bool, bool) {
	return p.mapping(pid), true, true
}

func (p *run) Open(pid uint32, _ procmaps.Mapping) (*procmaps.File, error) {
	if !p.there[pid] {
		return nil, errors.New("gone")
	}
	p.opened++
	return procmaps.NewFile(os.Open(p.library))
}

func (p *run) Identities(pid uint32, all []procmaps.Mapping) []string {
	out := make([]string, len(all))
	for i := range all {
		if f, err := procmaps.NewFile(os.Open(p.library)); p.there[pid] && err == nil {
			out[i] = f.Identity()
			f.Close()
		}
	}
	return out
}

// Tenant is one for each ten processes.
func (*run) Tenant(pid uint32) procmaps.Tenant { return procmaps.Tenant(pid / 10) }

func (*run) Around(uint32, uint64) []procmaps.Mapping { return nil }

func (*run) OpenIn(uint32, string) (*procmaps.File, error) { return nil, errors.New("no such file") }

func (p *run) Snapshot(pid uint32) (*procmaps.Snapshot, error) {
	return &procmaps.Snapshot{Process: procmaps.Process{PID: pid}, Mappings: []procmaps.Mapping{p.mapping(pid)}}, nil
}

// start is a process whose files are read while it runs, and which has ended then.
func (p *run) start(t *testing.T, r *Resolver, pid uint32) {
	p.there[pid] = true
	s, err := p.Snapshot(pid)
	require.NoError(t, err)
	r.Learn(s)
	learned(t, r)
	p.there[pid] = false
}

// learned waits until no file is left to read.
func learned(t *testing.T, r *Resolver) {
	t.Helper()
	require.Eventually(t, func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		require.LessOrEqual(t, len(r.files.queue), learning)
		return !r.files.working
	}, 10*time.Second, time.Millisecond)
}

// TestProcessesThatAreGoneHaveNames: of programs that run for a moment, over and over, each
// process is gone when its rows are read.
func TestProcessesThatAreGoneHaveNames(t *testing.T) {
	libc, err := filepath.EvalSymlinks("/lib/x86_64-linux-gnu/libc.so.6")
	if err != nil {
		t.Skipf("another libc: %v", err)
	}
	file, err := procmaps.NewFile(os.Open(libc))
	require.NoError(t, err)
	defer file.Close()
	getenv := functionOf(t, file, "getenv")
	p := &run{library: libc, there: map[uint32]bool{}}
	r := NewResolver(p)
	frame := func(pid uint32) stack.Frame {
		return r.Frame(uint64(pid), pid, p.mapping(pid).Start+getenv.offset, true)
	}

	// No file was read: the place in the file, not the address that it had.
	require.Equal(t, stack.Frame{Kind: stack.KindNative, Function: fmt.Sprintf("%#x", getenv.offset), File: libc}, frame(1))
	// It was read, and is the first one of which a name is needed.
	p.start(t, r, 2)
	require.Equal(t, stack.Frame{Kind: stack.KindNative, Function: fmt.Sprintf("%#x", getenv.linked), File: libc,
		BuildID: getenv.buildID, Address: getenv.linked}, frame(2))
	for pid := uint32(3); pid < 6; pid++ {
		p.start(t, r, pid)
		require.Equal(t, stack.Frame{Kind: stack.KindNative, Function: "getenv", File: libc, BuildID: getenv.buildID}, frame(pid))
	}
}

// TestProcessesOfATenantDelayNoOther: not with how many of them wait to be read.
func TestProcessesOfATenantDelayNoOther(t *testing.T) {
	f := newFiles()
	const hostile, honest = 1, 2
	for range 2 * learning {
		f.add(pending{nil, hostile})
	}
	require.Len(t, f.queue, learning-learning/4)
	f.add(pending{nil, honest})
	f.add(pending{nil, honest})
	var served []procmaps.Tenant
	last := procmaps.Tenant(hostile)
	for range 5 {
		last = f.next(last).tenant
		served = append(served, last)
	}
	require.Equal(t, []procmaps.Tenant{honest, hostile, honest, hostile, hostile}, served)
}

// TestLearningEnds: files that cannot be opened, and those that are no library, are passed over; and a process
// too many is not waited for.
func TestLearningEnds(t *testing.T) {
	text := filepath.Join(t.TempDir(), "text")
	require.NoError(t, os.WriteFile(text, []byte(strings.Repeat("no library", 100)), 0o600))
	p := &run{library: text, there: map[uint32]bool{1: true}}
	r := NewResolver(p)
	for pid := range uint32(3 * learning) {
		s, err := p.Snapshot(pid)
		require.NoError(t, err)
		r.Learn(s)
	}
	learned(t, r)
	require.Equal(t, 1, r.files.byKey.Len())
	require.Equal(t, "0x10", r.Frame(1, 1, p.mapping(1).Start+0x10, true).Function)
}

// write replaces what is in a file, which stays the same inode: a new file gets that of one that was just removed, too.
func write(t *testing.T, file, from string) {
	t.Helper()
	b, err := os.ReadFile(from)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(file, b, 0o600))
}

// A library is built again, and has the inode that it had: each process has the names of what it has run, though both
// have ended.
func TestALibraryThatIsBuiltAgainHasNamesOfItsOwn(t *testing.T) {
	p := &run{library: filepath.Join(t.TempDir(), "libx.so"), there: map[uint32]bool{}, device: 1}
	write(t, p.library, code(t, "first", "second"))
	file, err := procmaps.NewFile(os.Open(p.library))
	require.NoError(t, err)
	defer file.Close()
	at := functionOf(t, file, "first").offset // and of the other build's
	r := NewResolver(p)
	frames := uint64(0)
	name := func(pid uint32) string {
		frames++
		return r.Frame(frames, pid, p.mapping(pid).Start+at, true).Function
	}
	p.start(t, r, 1)
	name(1) // whose table is read with the next one
	p.start(t, r, 2)
	require.Equal(t, "first", name(2))

	write(t, p.library, code(t, "third", "fourth"))
	p.start(t, r, 3)
	require.Equal(t, "third", name(3))
	require.Equal(t, "first", name(2))
}

// The mappings of a process are read over and over; its files are not.
func TestAFileIsLearnedOncePerProcess(t *testing.T) {
	p := &run{library: code(t, "first", "second"), there: map[uint32]bool{}, device: 1}
	r := NewResolver(p)
	for range 10 {
		p.start(t, r, 1)
	}
	require.Equal(t, 1, p.opened)
	p.start(t, r, 2)
	require.Equal(t, 1, p.opened, "another process has the same")

	p.library = code(t, "third", "fourth")
	r.learned.Take(p.Tenant(3), 2*learnBurst, time.Now())
	p.start(t, r, 3)
	require.Equal(t, 1, p.opened, "its tenant has cost too much")
	p.start(t, r, 30)
	require.Equal(t, 2, p.opened, "another tenant's")
	require.Positive(t, r.learned.Len())
}
