// SPDX-License-Identifier: Apache-2.0

package nvml

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// sysfs is one with these files.
func sysfs(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for name, content := range files {
		path := filepath.Join(root, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(content), 0o644))
	}
	return root
}

// amdFiles: node 0 is a CPU; a process on both GPUs, one on the first, one that has just ended.
var amdFiles = map[string]string{
	"class/kfd/kfd/topology/nodes/0/gpu_id":           "0\n",
	"class/kfd/kfd/topology/nodes/0/properties":       "cpu_cores_count 64\ndrm_render_minor 0\n",
	"class/kfd/kfd/topology/nodes/1/gpu_id":           "12345\n",
	"class/kfd/kfd/topology/nodes/1/properties":       "simd_count 1216\ndrm_render_minor 128\nunique_id 18446744073709551615\n",
	"class/kfd/kfd/topology/nodes/2/gpu_id":           "54321\n",
	"class/kfd/kfd/topology/nodes/2/properties":       "simd_count 1216\ndrm_render_minor 129\n",
	"class/drm/renderD128/device/unique_id":           "8d9a6ff3b1c2e4f5\n",
	"class/drm/renderD128/device/product_name":        "AMD Instinct MI300X\n",
	"class/drm/renderD128/device/gpu_busy_percent":    "87\n",
	"class/drm/renderD128/device/mem_info_vram_total": "206141652992\n",
	"class/drm/renderD128/device/mem_info_vram_used":  "51535413248\n",
	"class/kfd/kfd/proc/4711/vram_12345":              "3221225472\n",
	"class/kfd/kfd/proc/4711/vram_54321":              "1073741824\n",
	"class/kfd/kfd/proc/4711/sdma_12345":              "7\n",
	"class/kfd/kfd/proc/815/vram_12345":               "536870912\n",
	"class/kfd/kfd/proc/815/vram_54321":               "0\n", // KFD has a file for each GPU that a process may use
	"class/kfd/kfd/proc/816/vram_12345":               "0\n", // has only listed the devices
	"class/kfd/kfd/proc/816/vram_54321":               "0\n",
	"class/kfd/kfd/proc/9/vram_12345":                 "",
	"class/kfd/kfd/proc/9/vram_777":                   "1\n", // of no GPU that is here
	"class/kfd/kfd/proc/x/vram_12345":                 "1\n",
}

func TestAMDsGPUsAreReadFromSysfs(t *testing.T) {
	library, err := OpenAMD(sysfs(t, amdFiles), t.TempDir())
	require.NoError(t, err)
	defer library.Close()
	first := Device{UUID: "8d9a6ff3b1c2e4f5", Name: "AMD Instinct MI300X", Vendor: "AMD"}
	second := Device{UUID: "kfd-54321", Index: 1, Vendor: "AMD"}
	r := library.Read()
	require.ElementsMatch(t, []ProcessMemory{{first, 4711, 3 << 30}, {second, 4711, 1 << 30}, {first, 815, 512 << 20}}, r.Processes)
	require.ElementsMatch(t, r.Processes, library.Processes())
	got := map[Device]map[string]float64{first: {}, second: {}}
	for _, p := range r.Points {
		require.Contains(t, metricNames(), p.Metric, "docs/reference/metrics.md knows it")
		name := p.Metric
		for _, label := range p.Labels {
			if label.Key == "type" {
				name += " " + label.Value.AsString()
			}
		}
		got[p.Device][name] = p.Value
	}
	require.Equal(t, map[Device]map[string]float64{
		first: {"hw.gpu.utilization": 0.87, "hw.gpu.memory.limit": 206141652992, "hw.gpu.memory.usage": 51535413248,
			"hw.gpu.memory.utilization": 0.25, "gpu.processes compute": 2, "gpu.processes graphics": 0},
		second: {"gpu.processes compute": 1, "gpu.processes graphics": 0}, // values that are missing are no zeroes
	}, got)
	labels := first.labels()
	require.Equal(t, "AMD", labels[len(labels)-1].Value.AsString())
	require.Equal(t, "hw.vendor", string(labels[len(labels)-1].Key))
}

// The rows of hip_alloc explain what KFD counts.
func TestAMDsMemoryIsReconciled(t *testing.T) {
	library, err := OpenAMD(sysfs(t, amdFiles), t.TempDir())
	require.NoError(t, err)
	tr := tracker{processes: map[uint64]*history{}, born: func(uint32) bool { return false }}
	rows := map[uint32]held{}
	p := ProcFS("").Process(4711)
	addHeld(rows, p, "device", 3<<30)
	addHeld(rows, p, "host", 1<<30)
	parts := tr.update(library.Processes(), rows, ProcFS("").Process)
	require.Len(t, parts, 2)
	for _, b := range parts {
		if b.Process.PID == 4711 {
			require.EqualValues(t, 4<<30, b.Used)
			require.EqualValues(t, 3<<30, b.Stacks)
		}
		require.Equal(t, b.Used, b.Stacks+b.Context+b.BeforeAttach+b.Unexplained)
	}
}

func TestMachinesWithoutAMD(t *testing.T) {
	for name, files := range map[string]map[string]string{
		"nothing":      nil,
		"CPUs only":    {"class/kfd/kfd/topology/nodes/0/gpu_id": "0\n"},
		"an odd file":  {"class/kfd/kfd/topology/nodes/0/gpu_id": ""},
		"no topology":  {"class/kfd/kfd/proc/1/vram_1": "5\n"},
		"only the DRM": {"class/drm/renderD128/device/mem_info_vram_used": "5\n"},
	} {
		_, err := OpenAMD(sysfs(t, files), t.TempDir())
		require.ErrorIs(t, err, ErrNoAMD, name)
	}
	_, err := OpenAll("/nonexistent/libnvidia-ml.so", t.TempDir(), t.TempDir(), t.TempDir())
	require.ErrorIs(t, err, ErrNoAMD)
	library, err := OpenAll("/nonexistent/libnvidia-ml.so", t.TempDir(), sysfs(t, amdFiles), t.TempDir())
	require.NoError(t, err)
	require.Len(t, library.Processes(), 3)
	library, err = OpenAll("amd", t.TempDir(), sysfs(t, amdFiles), t.TempDir())
	require.NoError(t, err)
	require.IsType(t, &AMD{}, library, "without NVIDIA's, even if there are some")
	_, err = OpenAll("nvidia", t.TempDir(), sysfs(t, amdFiles), t.TempDir())
	require.Error(t, err, "without AMD's")
	both := union{library, library}
	require.Len(t, both.Processes(), 6)
	require.Len(t, both.Read().Processes, 6)
}
