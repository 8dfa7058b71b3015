// SPDX-License-Identifier: Apache-2.0

package pipelines

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/inspektor-gadget/inspektor-gadget/pkg/gpu-ebpf-bridge/nvml"
	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/test/support/bridge"
	"github.com/gpu-gadgets/gpu-gadgets/test/support/loopback"
	"github.com/gpu-gadgets/gpu-gadgets/test/support/subject/tables"
)

// device is a GPU on which a process has so many bytes.
func device(pid int, used uint64) bridge.GPUs {
	return bridge.GPUs{
		All:       []nvml.DeviceSnapshot{{MemTotal: 80 << 30, MemUsed: used}},
		Processes: []nvml.ProcessSample{{Pid: uint32(pid), TimestampNs: 1, UsedGpuMemory: used}},
	}
}

// beside runs a shell command with the bridge's pinned maps at the place where it pins them.
func beside(t *testing.T, pins, text string) *bufio.Scanner {
	t.Helper()
	return alone(t, fmt.Sprintf("mount --bind %s /sys/fs/bpf; %s", pins, text))
}

// alone runs a shell command with mounts of its own, an empty store of images, and its own
// process instead of process 1, whose namespaces a virtual machine may not let us read.
func alone(t *testing.T, text string) *bufio.Scanner {
	t.Helper()
	cmd := exec.Command("unshare", "--mount", "sh", "-ec",
		"mount --bind /proc/$$ /proc/1; mkdir -p /var/lib/ig; mount -t tmpfs none /var/lib/ig; "+text)
	cmd.Dir, cmd.Stderr = "../../..", os.Stderr
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	deadline := time.AfterFunc(waitLimit, func() { _ = cmd.Process.Kill() })
	t.Cleanup(func() {
		deadline.Stop()
		_ = cmd.Process.Signal(syscall.SIGINT)
		_ = cmd.Wait()
	})
	lines := bufio.NewScanner(tables.Reader(out))
	lines.Buffer(nil, 1<<20)
	return lines
}

// upstream builds Inspektor Gadget's own gadget from the source in its module, since
// there is no registry here.
func upstream(t *testing.T, gadget string) (image string) {
	t.Helper()
	module, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/inspektor-gadget/inspektor-gadget").Output()
	require.NoError(t, err)
	dir := t.TempDir()
	require.NoError(t, os.CopyFS(filepath.Join(dir, gadget), os.DirFS(filepath.Join(strings.TrimSpace(string(module)), "gadgets", gadget))))
	list := fmt.Sprintf("gadgets:\n  - {name: %s, dir: %[1]s, cflags: [-mcpu=v3]}\n", gadget)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "build.yaml"), []byte(list), 0o600))
	out, err := exec.Command("go", "run", "../../../cmd/gadget-images", "-f", filepath.Join(dir, "build.yaml"),
		"-o", dir, "-objects", filepath.Join(dir, "objects")).CombinedOutput()
	require.NoError(t, err, "%s", out)
	return filepath.Join(dir, gadget+".tar")
}

// The bridge's gadget shows the driver's count for a process.
func TestDriver(t *testing.T) {
	self := os.Getpid()
	pins, _ := bridge.Start(t, device(self, 64*mib))
	lines := beside(t, pins, "bin/ig-gpu image import "+upstream(t, "gpu_top_per_pid")+
		" >/dev/null; UPSTREAM=ghcr.io/gpu-gadgets/ UPSTREAM_TAG=latest exec examples/pipelines/driver.sh --verify-image=false --host -o json")
	type row struct {
		Proc struct {
			PID int `json:"pid"`
		} `json:"proc"`
		Used uint64 `json:"mem_used_raw"`
	}
	for lines.Scan() {
		var rows []row
		if json.Unmarshal(lines.Bytes(), &rows) != nil || len(rows) == 0 {
			continue
		}
		var got []int
		for _, r := range rows {
			require.Equal(t, uint64(64*mib), r.Used)
			got = append(got, r.Proc.PID)
		}
		require.Equal(t, []int{self}, got)
		return
	}
	require.Fail(t, "it ended without rows of the processes")
}

// Without NVML, cuda_alloc uses the bridge to show which part of the driver's count its
// stacks explain.
func TestDriverMemoryByTheBridge(t *testing.T) {
	explainedByTheBridge(t, func(pins, run string) *bufio.Scanner { return beside(t, pins, "exec "+run) })
}

// In a container, as the chart starts it: the host's file system is at HOST_ROOT, and the
// file system of eBPF at /sys/fs/bpf is the container's own, without pins.
func TestDriverMemoryByTheBridgeOfTheHost(t *testing.T) {
	host := t.TempDir()
	explainedByTheBridge(t, func(pins, run string) *bufio.Scanner {
		return alone(t, fmt.Sprintf("mount --rbind / %[1]s; mount --bind %[2]s %[1]s/sys/fs/bpf; mount -t bpf none /sys/fs/bpf; HOST_ROOT=%[1]s exec %[3]s",
			host, pins, run))
	})
}

// explainedByTheBridge runs cuda_alloc where start does, with the bridge's maps pinned in pins.
func explainedByTheBridge(t *testing.T, start func(pins, run string) *bufio.Scanner) {
	t.Helper()
	address := loopback.FreeAddress(t)
	w := startWorkload(t)
	pid := w.PID()
	pins, _ := bridge.Start(t, device(pid, 64*mib))
	lines := start(pins, fmt.Sprintf("bin/ig-gpu run cuda_alloc --host --pid %d -o json --metrics-listen %s", pid, address))
	for lines.Scan() && !strings.Contains(lines.Text(), `"status":"attached"`) {
	}
	go func() {
		for lines.Scan() {
		}
	}()
	allocate(t, w)
	const stacks = 34*mib + 4*kib
	of := func(metric string, labels ...string) int64 {
		sum, _ := loopback.Sum(t, address, metric, append(labels, fmt.Sprintf(`process_pid="%d"`, pid))...)
		return int64(sum)
	}
	p := &pipeline{t: t}
	p.eventually(fmt.Sprint(64*mib, stacks, 64*mib-stacks), func() any {
		return fmt.Sprint(of("gpu_process_memory_usage_bytes"), of("gpu_process_memory_parts_bytes", `part="stacks"`),
			of("gpu_process_memory_parts_bytes")-of("gpu_process_memory_parts_bytes", `part="stacks"`))
	})
}
