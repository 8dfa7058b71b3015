// SPDX-License-Identifier: Apache-2.0

package frozen

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// simulated is a procfs whose processes do not run.
type simulated struct {
	t      *testing.T
	procfs string
}

func (s simulated) path(pid int, name string) string {
	path := filepath.Join(s.procfs, fmt.Sprint(pid), name)
	require.NoError(s.t, os.MkdirAll(filepath.Dir(path), 0o755))
	return path
}

func (s simulated) process(pid int, tenant, maps string, call int) {
	task := filepath.Join("task", fmt.Sprint(pid))
	for name, text := range map[string]string{
		"stat":                             fmt.Sprintf("%d (python3) S 1 7 7 0 -1 0 0 0 0 0 5 5 0 0 20 0 1 0 100 1 2 3\n", pid),
		"status":                           "PPid:\t1\nSigPnd:\t0\nShdPnd:\t0\n",
		"cgroup":                           "0::/" + tenant + "\n",
		filepath.Join(task, "schedstat"):   "1 2 3\n",
		filepath.Join(task, "syscall"):     fmt.Sprintf("%d 0x3 0x0 0x0 0x0 0x0 0x0 0x0 0x0\n", call),
		filepath.Join("fd", "placeholder"): "",
	} {
		require.NoError(s.t, os.WriteFile(s.path(pid, name), []byte(text), 0o600))
	}
	if maps == "" {
		return
	}
	require.NoError(s.t, os.Link(maps, s.path(pid, "maps")))
}

// circle are two processes of which each waits for a pipe that the other one has, too.
func (s simulated) circle(pid int, tenant string) {
	for n := range 2 {
		s.process(pid+n, tenant, "", unix.SYS_READ)
		require.NoError(s.t, os.Symlink(fmt.Sprintf("pipe:[%d]", pid), s.path(pid+n, "fd/3")))
	}
}

// One tenant's processes have so many mappings that reading them takes seconds. The others' are known; so is of that
// tenant what was read before.
func TestATenantThatCostsTooMuchTakesNothingFromOthers(t *testing.T) {
	s := simulated{t, t.TempDir()}
	s.circle(10, "hostile")
	s.circle(20, "honest")
	still := Standstill{ProcFS: s.procfs, After: time.Minute}
	now := time.Now()
	look := func(minutes int, pids ...uint32) map[uint32]Still {
		all := map[uint32]Still{}
		for _, p := range still.Look(now.Add(time.Duration(minutes)*time.Minute), pids) {
			all[p.PID] = p
		}
		return all
	}
	require.Empty(t, look(0, 10, 20))
	look(2, 10, 20)        // who else has the pipes
	look(3, 10, 20)        // these are followed
	all := look(5, 10, 20) // and do not run
	require.Equal(t, []uint32{10, 11}, all[10].Circle)
	require.Equal(t, []uint32{20, 21}, all[20].Circle)

	maps := filepath.Join(s.procfs, "maps")
	require.NoError(t, os.WriteFile(maps, bytes.Repeat([]byte("0-1 rw-p 0 0:0 0\n"), 100_000), 0o600))
	const often = 60
	pids := []uint32{10, 20}
	for pid := 100; pid < 100+often; pid++ {
		s.process(pid, "hostile", maps, unix.SYS_FUTEX)
		pids = append(pids, uint32(pid))
	}
	require.Len(t, look(6, pids...), 2)
	before := 0
	for minute := 10; minute < 20; minute++ {
		all = look(minute, pids...)
		require.Len(t, all, len(pids))
		require.Equal(t, []uint32{10, 11}, all[10].Circle)
		require.Equal(t, []uint32{20, 21}, all[20].Circle)
		unknown := 0
		for pid := 100; pid < 100+often; pid++ {
			if all[uint32(pid)].WaitsFor == "unknown" {
				unknown++
			}
			require.Nil(t, all[uint32(pid)].Circle)
		}
		require.Greater(t, unknown, often/4, "minute %d", minute)
		require.True(t, before == 0 || unknown == before, "minute %d: no further ones are read", minute)
		before = unknown
	}
	delete(still.known, 20)
	look(21, pids...)
	look(23, pids...)
	look(24, pids...)
	all = look(26, pids...)
	require.Equal(t, []any{"pipe", []uint32{20, 21}}, []any{all[20].WaitsFor, all[20].Circle}, "the honest ones are read")
}

// More processes of one tenant than are read, each of which waits for others, leave the others' in circles.
func TestProcessesThatAreFollowedAreBounded(t *testing.T) {
	s := simulated{t, t.TempDir()}
	const more = 10
	var pids []uint32
	for pid := 1000; pid < 1000+maxRead+more; pid++ {
		s.process(pid, "hostile", "", unix.SYS_READ)
		require.NoError(t, os.Symlink("pipe:[1]", s.path(pid, "fd/3")))
		pids = append(pids, uint32(pid))
	}
	for pid := 5000; pid < 5000+2*maxOthers; pid++ {
		s.process(pid, "hostile", "", unix.SYS_READ)
		require.NoError(t, os.Symlink("pipe:[1]", s.path(pid, "fd/3")))
	}
	s.circle(20, "honest")
	still := Standstill{ProcFS: s.procfs, After: time.Minute}
	now := time.Now()
	var all []Still
	for minute := range 4 {
		all = still.Look(now.Add(time.Duration(2*minute)*time.Minute), append(pids, 20))
	}
	require.Len(t, all, len(pids)+1)
	unknown := 0
	for _, p := range all {
		if p.WaitsFor == "unknown" {
			unknown++
		}
		if p.PID == 20 {
			require.Equal(t, []uint32{20, 21}, p.Circle)
		}
	}
	require.Equal(t, more, unknown)
	require.True(t, still.others[21])
	require.LessOrEqual(t, len(still.others), maxOthers*3/4+1)
}
