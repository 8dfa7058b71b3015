// SPDX-License-Identifier: Apache-2.0

package k8s

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const (
	// soakVariable names the duration of the soak test, e.g. 30m.
	soakVariable = "SOAK"
	// settled is the time after which memory is compared.
	settled = 10 * time.Minute
	// shortLived is one process that allocates twice, frees once, and ends.
	shortLived = `
import ctypes
cuda = ctypes.CDLL("libcuda.so.1")
context, p = ctypes.c_void_p(), ctypes.c_uint64()
cuda.cuInit(0); cuda.cuCtxCreate_v2(ctypes.byref(context), 0, 0)
def take(n): assert cuda.cuMemAlloc_v2(ctypes.byref(p), ctypes.c_size_t(n)) == 0
take(1 << 20); cuda.cuMemFree_v2(p); take(1 << 16)
`
	shortLivedBytes = 1<<20 + 1<<16
	// parent forks such a process each second until it is terminated, and prints
	// their number.
	parent = `
import signal, subprocess, sys, time
end = []
signal.signal(signal.SIGTERM, lambda *_: end.append(1))
n, at = 0, time.monotonic()
while not end:
    assert subprocess.run([sys.executable, "-c", sys.argv[1]]).returncode == 0
    n += 1
    at = max(at + 1, time.monotonic())
    time.sleep(max(0, at - time.monotonic()))
print("processes", n, flush=True)
time.sleep(600)
`
)

// bpfObjects counts the kernel's eBPF objects.
func (c *cluster) bpfObjects(t *testing.T) map[string]int {
	t.Helper()
	counts := map[string]int{}
	for what, command := range map[string]string{
		"programs": "bpftool prog list | grep -c '^[0-9]'", "maps": "bpftool map list | grep -c '^[0-9]'",
		"links": "bpftool link list | grep -c '^[0-9]'", "pins": "find /sys/fs/bpf -type f | wc -l",
		// Uprobes have no link before Linux 5.15, and perf events no list.
		"events": "ls -l /proc/$(pgrep -o gadgettracerman)/fd 2>/dev/null | grep -c perf_event",
	} {
		n, err := strconv.Atoi(strings.TrimSpace(c.onNode(t, command+" || true")))
		require.NoError(t, err)
		counts[what] = n
	}
	return counts
}

// daemonKiB returns the daemon's anonymous resident memory: pages of its binary may be
// evicted at any time.
func (c *cluster) daemonKiB(t *testing.T) int {
	t.Helper()
	n, err := strconv.Atoi(strings.TrimSpace(c.onNode(t,
		"awk '/^RssAnon/ { print $2 }' /proc/$(pgrep -o gadgettracerman)/status")))
	require.NoError(t, err)
	return n
}

// soak: processes start and end each second, and pods as fast as the node can, while
// cuda_alloc runs. No process is missed, and nothing is left behind.
func soak(t *testing.T, c *cluster) {
	length := 2 * time.Minute
	if text := os.Getenv(soakVariable); text != "" {
		var err error
		length, err = time.ParseDuration(text)
		require.NoError(t, err, soakVariable)
	}
	startPyroscope(t) // otherwise unsent data waits in the daemon's memory
	before := c.bpfObjects(t)
	c.do(t, "kubectl create namespace soak")
	run := func(name, script, argument string) string {
		return fmt.Sprintf(`kubectl run -n soak %s --restart=Never --image=%s/gpu-gadgets/inference:v1 --command -- python3 -c '%s' '%s'`,
			name, registry, script, argument)
	}
	instance := strings.Replace(c.step("record"), "gpu-memory", "soak", 1)
	c.do(t, strings.Replace(instance, "-A", "-n soak", 1))
	g := c.gadget(t, c.admin, "kubectl gadget attach soak -o json")
	g.wait("it records", func() bool { return g.tables > 0 })
	c.do(t, run("parent", parent, shortLived))

	began, pods := time.Now(), 0
	var early, late []int // of the second quarter, and of the last
	for time.Since(began) < length {
		name := fmt.Sprintf("child-%d", pods)
		c.do(t, run(name, shortLived, ""))
		c.do(t, "kubectl wait -n soak --for=jsonpath='{.status.phase}'=Succeeded --timeout=5m pod/"+name)
		c.do(t, "kubectl delete pod -n soak --wait=false "+name)
		pods++
		switch memory := c.daemonKiB(t); time.Since(began) / (length / 4) {
		case 1:
			early = append(early, memory)
		case 3:
			late = append(late, memory)
		}
	}
	c.do(t, "kubectl exec -n soak parent -- python3 -c 'import os; os.kill(1, 15)'")
	var processes int
	c.wait("the number of processes", func() error {
		out, err := c.try(c.admin, "kubectl logs -n soak parent")
		if err == nil {
			_, err = fmt.Sscanf(out, "processes %d", &processes)
		}
		return err
	})
	t.Logf("%v: %d processes in one pod, %d pods; the daemon's memory: %d KiB in the second quarter, %d KiB in the last, in the middle of %d and %d readings",
		length, processes, pods, median(early), median(late), len(early), len(late))
	if !g.until(waitLimit, func() bool { return g.allocated() == uint64(processes+pods)*shortLivedBytes }) {
		g.mu.Lock()
		sizes := map[uint64]int{}
		for _, bytes := range g.most {
			sizes[bytes]++
		}
		t.Errorf("of %d processes with %d bytes each, these were seen, by their bytes: %v; drops: %v",
			processes+pods, uint64(shortLivedBytes), sizes, g.drops)
		g.mu.Unlock()
	}
	// One reading is anywhere between two collections of garbage, which are far apart.
	if length >= settled {
		assert.InEpsilon(t, median(early), median(late), 0.10, "the daemon's memory, in KiB")
	}

	g.stop()
	c.do(t, "kubectl gadget delete soak && kubectl delete namespace soak --wait=false")
	t.Logf("before: %v", before)
	c.wait("what is left behind", func() error {
		if after := c.bpfObjects(t); fmt.Sprint(after) != fmt.Sprint(before) {
			return fmt.Errorf("%v before, %v after", before, after)
		}
		return nil
	})
	c.requireNoRestart(t)
}

// median of readings; 0 when there are none.
func median(readings []int) int {
	slices.Sort(readings)
	if len(readings) == 0 {
		return 0
	}
	return readings[len(readings)/2]
}

// allocated adds up the allocations of all processes; the gadget is locked meanwhile.
func (g *gadget) allocated() (sum uint64) {
	for _, bytes := range g.most {
		sum += bytes
	}
	return sum
}
