// SPDX-License-Identifier: Apache-2.0

package timeline

import (
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/gpu-gadgets/gpu-gadgets/internal/timeline/weave"
)

// fakeProcess adds one to procfs, without pages.
func fakeProcess(t *testing.T, procfs string, pid uint32) (thread weave.Thread, dir string) {
	dir = filepath.Join(procfs, strconv.Itoa(int(pid)))
	require.NoError(t, os.Mkdir(dir, 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "status"), []byte("VmRSS:\t8 kB\n"), 0o644))
	return weave.Thread{PID: pid, Process: uint64(pid)}, dir
}

// inCgroup makes a process of another container.
func inCgroup(t *testing.T, dir, name string) {
	require.NoError(t, os.WriteFile(filepath.Join(dir, "cgroup"), []byte("0::/"+name+"\n"), 0o644))
}

// A process that hangs with the lock that its pages are counted under delays neither others nor the end of a run.
func TestPagesOfAProcessThatHangs(t *testing.T) {
	procfs := t.TempDir()
	w := newWatched(procfs)
	for pid := range uint32(40) {
		thread, dir := fakeProcess(t, procfs, pid+1)
		inCgroup(t, dir, "hangs")
		w.see(&thread)
		pipe := filepath.Join(dir, "numa_maps")
		require.NoError(t, unix.Mkfifo(pipe, 0o600))
	}
	late := filepath.Join(procfs, "1", "numa_maps")
	honest, dir := fakeProcess(t, procfs, 50)
	inCgroup(t, dir, "honest")
	w.see(&honest)
	const line = "7f12 default anon=3 N0=2 N1=1 kernelpagesize_kB=4\n"
	require.NoError(t, os.WriteFile(filepath.Join(dir, "numa_maps"), []byte(line), 0o644))

	m := &memory{procfs: procfs, sysfs: t.TempDir(), pages: newPages()}
	began := time.Now()
	const often = 40 // so that a busy machine makes no difference
	var read *reading
	for range often {
		m.turns = 0
		read = m.look(w.list())
	}
	require.Less(t, time.Since(began), often*200*time.Millisecond, "they are not waited for again")
	require.Len(t, read.processes, 41)
	require.Equal(t, map[string]uint64{"0": 8192, "1": 4096}, read.processes[40].nodes)
	require.Nil(t, read.processes[0].nodes)

	// What comes late is not lost.
	f, err := os.OpenFile(late, os.O_WRONLY, 0)
	require.NoError(t, err)
	_, err = f.WriteString(line)
	require.NoError(t, err)
	require.NoError(t, f.Close())
	m.turns = 1
	require.Eventually(t, func() bool {
		m.turns = 1
		return len(m.look(w.list()).processes[0].nodes) == 2
	}, 10*time.Second, time.Millisecond)
	require.Nil(t, m.look(w.list()).processes[0].nodes, "it is taken once")

	require.NoError(t, os.RemoveAll(filepath.Join(procfs, "50")))
	require.Equal(t, []uint64{50}, m.look(w.list()).gone)
	require.NotContains(t, m.pages.counted, uint64(50))
}

func TestPagesOfATenantAreBounded(t *testing.T) {
	p := newPages()
	now := time.Now()
	hostile, honest := process{tenant: 1}, process{tenant: 2}
	require.True(t, p.begin(hostile, now))
	p.end(hostile, nil, pagesBurst+time.Second, now)
	require.False(t, p.begin(hostile, now))
	require.True(t, p.begin(honest, now))
	require.False(t, p.begin(hostile, now.Add(pagesShare*time.Second-1)))
	require.True(t, p.begin(hostile, now.Add(pagesShare*time.Second)))
}

func TestATenantLeavesProcessesToOthers(t *testing.T) {
	procfs := t.TempDir()
	w := newWatched(procfs)
	see := func(first, count uint32, tenant string) {
		for pid := first; pid < first+count; pid++ {
			thread, dir := fakeProcess(t, procfs, pid)
			inCgroup(t, dir, tenant)
			w.see(&thread)
			w.see(&thread)
		}
	}
	see(1, 600, "hostile")
	require.Len(t, w.known, maxProcesses*3/4)
	require.Len(t, w.refused, maxProcesses, "what is read again for those without room is bounded")
	require.Len(t, w.list(), maxProcesses*3/4)
	see(1000, 10, "honest")
	require.Len(t, w.known, maxProcesses*3/4+10)

	w.forget(1)
	see(2000, 1, "hostile")
	require.Len(t, w.known, maxProcesses*3/4+9, "the last quarter is for those with less than one")
}
