// SPDX-License-Identifier: Apache-2.0

package waits

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// simulated is a procfs whose processes map shared files, and have a thread that waits for a futex in each.
type simulated struct {
	t      *testing.T
	procfs string
}

func newSimulated(t *testing.T) simulated { return simulated{t, t.TempDir()} }

func (s simulated) process(pid int, tenant string, inodes ...int) {
	var maps strings.Builder
	for n, inode := range inodes {
		fmt.Fprintf(&maps, "%x-%x rw-s 00000000 00:01 %d /dev/shm/sem\n", (n+1)<<12, (n+2)<<12, inode)
		call := fmt.Sprintf("%d 0x%x 0x0 0x0 0x0 0x0 0x0 0x0 0x0\n", unix.SYS_FUTEX, (n+1)<<12+16)
		s.write(pid, filepath.Join("task", fmt.Sprint(pid+n), "syscall"), call)
	}
	s.write(pid, "maps", maps.String())
	s.write(pid, "status", "PPid:\t1\n")
	s.write(pid, "cgroup", "0::/"+tenant+"\n")
}

func (s simulated) write(pid int, name, text string) {
	path := filepath.Join(s.procfs, fmt.Sprint(pid), name)
	require.NoError(s.t, os.MkdirAll(filepath.Dir(path), 0o755))
	require.NoError(s.t, os.WriteFile(path, []byte(text), 0o600))
}

// However many threads wait for futexes in however many files, the mappings of each process are read once.
func TestMappingsAreReadOnceInALook(t *testing.T) {
	s := newSimulated(t)
	s.process(100, "a", 1, 2, 3, 4)
	s.process(200, "a", 4, 5)
	s.process(300, "b", 5)
	want := [][]uint32{nil, nil, nil, {200}, {300}}
	var have [][]uint32
	require.Eventually(t, func() bool {
		r := NewReader(s.procfs)
		threads := r.ReadAll(100)
		require.Len(t, threads, 4)
		require.Equal(t, 1, r.reads)
		r.ReadAll(200)
		require.Equal(t, 2, r.reads)
		have = nil
		for n := range 4 {
			have = append(have, append([]uint32(nil), r.Ends(100, threads[uint32(100+n)].For[0]).PIDs...))
		}
		have = append(have, r.Ends(200, Resource{Kind: Shared, ID: "shared:1:5"}).PIDs)
		require.Equal(t, 3, r.reads)
		require.Empty(t, r.Ends(100, Resource{Kind: Shared, ID: "shared:1"}).PIDs)
		return reflect.DeepEqual(want, have) // on a busy machine a read may be given up
	}, 20*time.Second, time.Millisecond, "%v", have)
}

// A tenant whose processes cost too much is not read to the end, and not in later looks until it has paid that back.
// Another one's processes are.
func TestWhatATenantCostsIsBounded(t *testing.T) {
	s := newSimulated(t)
	s.process(100, "hostile", 1)
	s.process(101, "hostile", 1)
	s.process(200, "honest", 2)
	s.process(201, "honest", 2)
	waitsOf := func(r *Reader, pid uint32) (resources int, edges []Edge) {
		all := r.ReadDeciding(pid)
		require.Len(t, all, 1)
		return len(all[pid].For), r.Edges([]Wait{all[pid]})
	}
	shared := func(pid, other uint32, inode int) []Edge {
		return []Edge{{pid, pid, "futex", Resource{Kind: Shared, ID: fmt.Sprintf("shared:1:%d", inode), Name: "/dev/shm/sem"}, []uint32{other}}}
	}
	r := NewReader(s.procfs)
	resources, edges := waitsOf(r, 100)
	require.Equal(t, 1, resources)
	require.Equal(t, shared(100, 101, 1), edges)
	require.False(t, r.IsCut(100))

	r.take(100, lookLimit)
	for look := range 2 {
		resources, edges = waitsOf(r, 101)
		require.Zero(t, resources)
		require.Equal(t, []Edge{{From: 101, TID: 101}}, edges, "look %d: anything may end the wait", look)
		require.False(t, r.Ends(100, Resource{Kind: Shared, ID: "shared:1:1"}).IsKnown())
		require.True(t, r.IsCut(100))
		resources, edges = waitsOf(r, 200)
		require.Equal(t, 1, resources)
		require.Equal(t, shared(200, 201, 2), edges)
		require.Equal(t, 5-2*look, r.reads, "look %d: none of the hostile processes in the second one", look)
		require.False(t, r.IsCut(200))
		r = r.Next()
	}
	r.began = r.began.Add(lookShare * lookLimit)
	_, edges = waitsOf(r, 101)
	require.Equal(t, shared(101, 100, 1), edges)
}

// A pipe costs as much however often a process has duplicated its ends.
func TestDuplicatedEndsAreOne(t *testing.T) {
	read, write, err := os.Pipe()
	require.NoError(t, err)
	defer read.Close()
	defer write.Close()
	for range 500 {
		fd, err := unix.Dup(int(read.Fd()))
		require.NoError(t, err)
		defer unix.Close(fd)
	}
	r := NewReader("/proc")
	own := uint32(os.Getpid())
	id := r.descriptor(own, uint64(read.Fd()), false).ID
	require.Equal(t, []end{{own, true, true}}, r.load().ends[id])
	for _, writes := range []bool{false, true} {
		require.Equal(t, Ends{PIDs: []uint32{}, IsOwn: true}, r.Ends(own, Resource{Kind: Pipe, ID: id, Writes: writes}))
	}
	write.Close()
	r = NewReader("/proc")
	require.False(t, r.Ends(own, Resource{Kind: Pipe, ID: id}).IsKnown(), "nothing has it open for writing")
}

// What threads of one process wait for is bounded; what is beyond, anything may end.
func TestWaitsOfAProcessAreBounded(t *testing.T) {
	s := newSimulated(t)
	inodes := make([]int, 2*maxEdges)
	for n := range inodes {
		inodes[n] = 1000 + n/2 // two threads for each
	}
	edges := func() []Edge {
		s.process(100, "a", inodes...)
		s.process(7000, "a", inodes...)
		s.write(100, "task/100/syscall", fmt.Sprintf("%d 0x0 0x0 0x0 0x0 0x0 0x0 0x0 0x0\n", unix.SYS_FUTEX)) // a lock
		r := NewReader(s.procfs)
		var threads []Wait
		for _, w := range r.ReadDeciding(100) {
			threads = append(threads, w)
		}
		require.Len(t, threads, len(inodes))
		all := r.Edges(threads)
		require.Equal(t, 2, r.reads)
		return all
	}
	all := edges()
	require.Len(t, all, maxEdges)
	for _, e := range all {
		require.Equal(t, []uint32{7000}, e.To)
	}

	for n := range inodes {
		inodes[n] = 1000 + n
	}
	all = edges()
	require.Len(t, all, maxEdges+1)
	require.Nil(t, all[maxEdges].To)

	for pid := 20000; pid < 20000+2*maxDescriptors; pid++ {
		s.write(pid, "status", "PPid:\t100\n")
	}
	children := NewReader(s.procfs).children(100, -1)
	require.Len(t, children, maxDescriptors)
	require.Empty(t, children[maxDescriptors-1].ID)
}

// If the limits are reached, it is the main thread that was read.
func TestTheMainThreadIsReadFirst(t *testing.T) {
	procfs := t.TempDir()
	for _, tid := range []string{"5", "7", "9"} { // ids begin again after the largest
		require.NoError(t, os.MkdirAll(filepath.Join(procfs, "7", "task", tid), 0o755))
	}
	require.Equal(t, []uint32{7, 5, 9}, NewReader(procfs).threads(7))
}
