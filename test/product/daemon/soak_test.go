// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/inspektor-gadget/inspektor-gadget/pkg/datasource"
	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/test/support/subject/usage"
)

const (
	// soakVariable names the duration of the soak test, e.g. 30m.
	soakVariable = "SOAK"
	soakShort    = 20 * time.Second
	// settled is the time after which memory is compared: by then it contains the rows
	// of a minute and Go's heap has grown to its size.
	settled = 10 * time.Minute
	kib     = 1 << 10
)

// TestSoak: processes start and end, one each second, and so do clients, while an
// instance runs. Each process is counted, the daemon's memory does not grow, and no link,
// map, program or pin is left.
func TestSoak(t *testing.T) {
	length := soakShort
	if text := os.Getenv(soakVariable); text != "" {
		var err error
		length, err = time.ParseDuration(text)
		require.NoError(t, err, soakVariable)
	}
	n := newNode(t)
	n.start()
	// Other programs on this machine have their own libraries, and so links.
	require.NoError(t, n.create("cuda_alloc", map[string]string{"operator.attach.pid": strconv.Itoa(os.Getpid())}))
	stays := startSteps(t)
	n.waitAttached(stays.PID())
	before := n.settledObjects()
	require.NotZero(t, before["bpf-map"], before)

	s := &soak{n: n, want: map[uint32]uint64{}, got: map[seen]uint64{}}
	ctx, stop := context.WithTimeout(t.Context(), length)
	defer stop()
	var all sync.WaitGroup
	turns := make(chan bool)
	for range 3 { // on a busy machine one process takes more than a second
		all.Go(func() {
			for range turns {
				s.process(t)
			}
		})
	}
	all.Go(func() {
		for ctx.Err() == nil { // one client after the other
			within, leave := context.WithTimeout(ctx, 5*time.Second)
			s.look(within, func() bool { return false })
			leave()
			time.Sleep(3 * time.Second)
		}
	})
	memory := s.pace(ctx, turns)
	all.Wait()

	// The last process to end is kept for a minute.
	within, leave := context.WithTimeout(t.Context(), waitLimit)
	defer leave()
	s.look(within, func() bool { return s.missing() == "" })
	require.Empty(t, s.missing(), "of %d processes", len(s.want))
	n.waitObjects("of processes that have ended", before)
	t.Logf("%v: %d processes, %d clients; %v", length, len(s.want), s.clients, before)
	if length >= settled {
		quarter := len(memory) / 4
		early, late := median(memory[quarter:2*quarter]), median(memory[3*quarter:])
		t.Logf("memory: %d KiB in the second quarter, %d KiB in the last", early, late)
		require.InEpsilon(t, early, late, 0.10, "memory of the daemon, KiB")
	}
	n.remove()
	n.waitObjects("of the instance", map[string]int{"pins": before["pins"]})
	n.stop()
}

// soak has the processes' allocations, and what clients saw of them.
type soak struct {
	n *node

	mu      sync.Mutex
	want    map[uint32]uint64 // allocated bytes by pid
	got     map[seen]uint64
	clients int
}

// seen is a process of a table. Pids are used again, its id is not.
type seen struct {
	pid     uint32
	process uint64
}

// pace gives a turn each second, and returns the daemon's memory at each.
func (s *soak) pace(ctx context.Context, turns chan<- bool) (memory []int) {
	defer close(turns)
	every := time.NewTicker(time.Second)
	defer every.Stop()
	for {
		select {
		case <-ctx.Done():
			return memory
		case <-every.C:
			memory = append(memory, s.n.memoryKiB())
		}
		select {
		case turns <- true:
		default: // all are at it
		}
	}
}

// process is one from its start to its end.
func (s *soak) process(t *testing.T) {
	w := startSteps(t)
	s.n.waitAttached(w.PID())
	w.Do("alloc weights 2 %d", 64*kib)
	w.Do("free weights 1")
	w.Do("alloc kv_cache 1 %d", 4*kib)
	truth := w.Truth().AllocBytes
	s.mu.Lock()
	s.want[uint32(w.PID())] += truth
	s.mu.Unlock()
	w.End()
}

// look reads tables as a client, until there are enough or the context ends.
func (s *soak) look(ctx context.Context, enough func() bool) {
	s.mu.Lock()
	s.clients++
	s.mu.Unlock()
	s.n.tables(ctx, "allocs", func(ds datasource.DataSource, rows datasource.PacketArray) bool {
		id, pid, alloc := ds.GetField("process"), ds.GetField("proc.pid"), ds.GetField("alloc_bytes")
		now := map[seen]uint64{}
		for i := range rows.Len() {
			var key seen
			key.process, _ = id.Uint64(rows.Get(i))
			key.pid, _ = pid.Uint32(rows.Get(i))
			bytes, _ := alloc.Uint64(rows.Get(i))
			now[key] += bytes
		}
		s.mu.Lock()
		for key, bytes := range now {
			s.got[key] = max(s.got[key], bytes)
		}
		s.mu.Unlock()
		return !enough()
	})
}

// missing returns the processes that were not seen completely.
func (s *soak) missing() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	got := map[uint32]uint64{}
	for key, bytes := range s.got {
		got[key.pid] += bytes
	}
	var text []string
	for pid, bytes := range s.want {
		if got[pid] != bytes {
			text = append(text, fmt.Sprintf("%d: %d of %d bytes", pid, got[pid], bytes))
		}
	}
	return strings.Join(text, "; ")
}

// objects counts the daemon's open eBPF objects, by kind, and its pins.
func (n *node) objects() map[string]int {
	n.t.Helper()
	counts := map[string]int{}
	dir := fmt.Sprintf("/proc/%d/fd", n.daemon.cmd.Process.Pid)
	files, err := os.ReadDir(dir)
	require.NoError(n.t, err)
	for _, file := range files {
		target, err := os.Readlink(filepath.Join(dir, file.Name()))
		if kind, ok := strings.CutPrefix(target, "anon_inode:"); err == nil && ok {
			if kind = strings.Trim(kind, "[]"); strings.HasPrefix(kind, "bpf") || kind == "perf_event" {
				counts[kind]++
			}
		}
	}
	pins, err := filepath.Glob("/sys/fs/bpf/*")
	require.NoError(n.t, err)
	counts["pins"] = len(pins)
	return counts
}

// settledObjects returns those that exist for a second, because the daemon's tests of
// kernel features are short-lived.
func (n *node) settledObjects() map[string]int {
	n.t.Helper()
	was, since := n.objects(), time.Now()
	for deadline := time.Now().Add(waitLimit); time.Since(since) < time.Second; time.Sleep(50 * time.Millisecond) {
		require.True(n.t, time.Now().Before(deadline), "it does not come to rest: %v", was)
		if now := n.objects(); fmt.Sprint(now) != fmt.Sprint(was) {
			was, since = now, time.Now()
		}
	}
	return was
}

// waitObjects waits until there are as many as there were.
func (n *node) waitObjects(of string, before map[string]int) {
	n.t.Helper()
	var after map[string]int
	for deadline := time.Now().Add(waitLimit); fmt.Sprint(after) != fmt.Sprint(before); time.Sleep(100 * time.Millisecond) {
		if time.Now().After(deadline) {
			n.daemon.dump()
			require.Fail(n.t, "objects are left", "%s: there were %v, there are %v", of, before, after)
		}
		after = n.objects()
	}
}

// memoryKiB returns the daemon's anonymous memory: pages of its file may be evicted at
// any time.
func (n *node) memoryKiB() int {
	n.t.Helper()
	memory, err := usage.Memory(n.daemon.cmd.Process.Pid, "RssAnon")
	require.NoError(n.t, err)
	return int(memory >> 10)
}

func median(all []int) int {
	sorted := slices.Sorted(slices.Values(all))
	return sorted[len(sorted)/2]
}
