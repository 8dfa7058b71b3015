// SPDX-License-Identifier: Apache-2.0

package nvml

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/gpu-gadgets/gpu-gadgets/internal/process/procmaps"
)

// amdClient is the fdinfo of an open file of a GPU.
func amdClient(id int, vram string) string {
	return fmt.Sprintf("pos:\t0\nflags:\t02100002\nmnt_id:\t26\ndrm-driver:\tamdgpu\ndrm-client-id:\t%d\n"+
		"drm-pdev:\t0000:c1:00.0\npasid:\t32771\ndrm-total-vram:\t999999 KiB\ndrm-memory-vram:\t%s\n"+
		"drm-memory-gtt: \t4096 KiB\ndrm-engine-gfx:\t5 ns\n", id, vram)
}

// A process that draws has files of the GPU only; one that computes is counted by KFD.
func TestProcessesThatKFDDoesNotCountAreReadFromTheirFiles(t *testing.T) {
	files := map[string]string{"class/drm/renderD128/device/uevent": "DRIVER=amdgpu\nPCI_SLOT_NAME=0000:c1:00.0\n"}
	files["class/drm/renderD129/device/uevent"] = "DRIVER=amdgpu\nPCI_SLOT_NAME=0000:c2:00.0\n"
	for name, content := range amdFiles {
		files[name] = content
	}
	proc := t.TempDir()
	open := func(pid, fd int, target, info string) {
		for dir, content := range map[string]string{"fd": "", "fdinfo": info} {
			path := filepath.Join(proc, fmt.Sprint(pid), dir, fmt.Sprint(fd))
			require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
			if content == "" {
				require.NoError(t, os.Symlink(target, path))
			} else {
				require.NoError(t, os.WriteFile(path, []byte(content), 0o644))
			}
		}
	}
	open(100, 3, "/dev/dri/renderD128", amdClient(7, "2048 KiB"))
	open(100, 4, "/dev/dri/renderD128", amdClient(7, "2048 KiB")) // dup()
	open(100, 5, "/dev/dri/card0", amdClient(8, "1 MiB"))
	open(101, 3, "/dev/dri/renderD128", amdClient(7, "2048 KiB"))     // inherited
	open(102, 3, "/dev/null", amdClient(9, "1 MiB"))                  // no GPU
	open(4711, 9, "/dev/dri/renderD128", amdClient(10, "999999 KiB")) // KFD counts it
	open(816, 3, "/dev/dri/renderD128", amdClient(12, "2048 MiB"))    // draws, and has listed the devices of KFD
	// Computes on the first, and has page tables on the second.
	open(815, 3, "/dev/dri/renderD129", strings.ReplaceAll(amdClient(13, "2 MiB"), "c1", "c2"))
	open(103, 3, "/dev/dri/renderD129", strings.ReplaceAll(amdClient(11, "1 MiB"), "amdgpu", "i915"))
	open(104, 3, "/dev/dri/renderD128", "drm-driver:\tamdgpu\n")
	library, err := OpenAMD(sysfs(t, files), proc)
	require.NoError(t, err)
	got := map[uint32]int64{}
	for _, p := range library.Processes() {
		if p.Device.Index == 0 {
			got[p.PID] += p.Bytes
		}
	}
	require.Equal(t, map[uint32]int64{100: 3 << 20, 4711: 3 << 30, 815: 512 << 20, 816: 2 << 30}, got)
	counts := map[string]float64{}
	for _, p := range library.Read().Points {
		if p.Metric == "gpu.processes" {
			counts[fmt.Sprint(p.Labels[0].Value.AsString(), " ", p.Device.Index)] = p.Value
		}
	}
	require.Equal(t, map[string]float64{"compute 0": 2, "graphics 0": 2, "compute 1": 1, "graphics 1": 0}, counts)
}

// A container with thousands of files of GPUs leaves room to another one's.
func TestATenantLeavesFilesToOthers(t *testing.T) {
	proc := t.TempDir()
	open := func(pid, count int, tenant string) {
		dir := filepath.Join(proc, fmt.Sprint(pid), "fd")
		require.NoError(t, os.MkdirAll(dir, 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(proc, fmt.Sprint(pid), "cgroup"), []byte("0::/"+tenant+"\n"), 0o644))
		for fd := range count {
			require.NoError(t, os.Symlink("/dev/dri/renderD128", filepath.Join(dir, fmt.Sprint(fd))))
		}
	}
	open(10, maxFDs, "hostile")
	open(11, 10, "hostile")
	open(12, 2, "honest")
	c := newClients(proc)
	its := func() map[uint32]int {
		count := map[uint32]int{}
		for _, f := range c.list() {
			count[f.pid]++
		}
		return count
	}
	require.Equal(t, map[uint32]int{10: maxClients / 4, 12: 2}, its())

	// The same for one whose processes have many files of any kind.
	c.spent.Take(procmaps.TenantOf(proc, 10), fdsBurst, c.scanned)
	c.scanned = time.Time{}
	require.Equal(t, map[uint32]int{12: 2}, its())
}

// A descriptor of a GPU that was listed is another file when it is read: one whose fdinfo waits for a lock. A pipe without
// a writer blocks like it.
func TestADescriptorThatHangsDoesNotBlock(t *testing.T) {
	proc := t.TempDir()
	for pid, name := range map[string]string{"10": "hostile", "11": "honest"} {
		for _, dir := range []string{"fd", "fdinfo"} {
			require.NoError(t, os.MkdirAll(filepath.Join(proc, pid, dir), 0o755))
		}
		require.NoError(t, os.WriteFile(filepath.Join(proc, pid, "cgroup"), []byte("0::/"+name+"\n"), 0o644))
		require.NoError(t, os.Symlink("/dev/dri/renderD128", filepath.Join(proc, pid, "fd", "3")))
	}
	require.NoError(t, os.WriteFile(filepath.Join(proc, "11", "fdinfo", "3"), []byte(amdClient(7, "2048 KiB")), 0o644))
	pipe := filepath.Join(proc, "10", "fdinfo", "3")
	require.NoError(t, unix.Mkfifo(pipe, 0o600))
	t.Cleanup(func() { // ends the read
		f, err := os.OpenFile(pipe, os.O_WRONLY, 0)
		require.NoError(t, err)
		f.Close()
	})
	c := newClients(proc)
	began := time.Now()
	const often = 40 // so that a busy machine makes no difference
	for range often {
		require.Equal(t, map[string]map[uint32]int64{"0000:c1:00.0": {11: 2 << 20}}, c.memory())
	}
	require.Less(t, time.Since(began), often*100*time.Millisecond, "it is not waited for again")
}

func TestSizesOfFDInfo(t *testing.T) {
	for text, want := range map[string]int64{
		"0": 0, "4096": 4096, "5 KiB": 5 << 10, "5 MiB": 5 << 20, "9223372036854775807": math.MaxInt64,
		"": -1, "-1": -1, "5 GiB": -1, "9223372036854775807 KiB": -1, "18446744073709551616": -1, "x KiB": -1,
	} {
		n, ok := drmBytes(text)
		require.Equal(t, want >= 0, ok, text)
		if ok {
			require.Equal(t, want, n, text)
		}
	}
}

func FuzzParseClient(f *testing.F) {
	f.Add(amdClient(1, "12 KiB"))
	f.Add("drm-driver:\tamdgpu\ndrm-pdev: a\ndrm-resident-vram: 9223372036854775807 MiB")
	f.Add(":\n::")
	f.Fuzz(func(t *testing.T, text string) {
		if c, ok := parseClient(text); ok && (c.vram < 0 || c.pdev == "") {
			t.Fatalf("%q: %+v", text, c)
		}
	})
}
