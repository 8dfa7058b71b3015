// SPDX-License-Identifier: Apache-2.0

package verb

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// process puts one with these libraries mapped into a procfs.
func process(t *testing.T, procfs, pid string, libraries ...string) {
	t.Helper()
	text := ""
	for _, library := range libraries {
		text += "7f0000000000-7f0000001000 r-xp 00000000 08:01 7 /opt/" + library + "\n"
	}
	require.NoError(t, os.MkdirAll(filepath.Join(procfs, pid), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(procfs, pid, "maps"), []byte(text), 0o644))
}

func TestGadgetsAreOfTheVendorOfTheProcesses(t *testing.T) {
	procfs := t.TempDir()
	process(t, procfs, "1", "libcuda.so.1")
	process(t, procfs, "2", "libamdhip64.so.6")
	process(t, procfs, "3", "libc.so.6")
	process(t, procfs, "4", "libcuda.so.1", "libamdhip64.so.6")
	for _, c := range []struct {
		pids []uint32
		want vendor
	}{{nil, nvidia}, {[]uint32{1, 3, 9}, nvidia}, {[]uint32{2}, amd}, {[]uint32{4}, nvidia}} {
		got, err := vendorOf(procfs, c.pids)
		require.NoError(t, err)
		require.Equal(t, c.want, got, "%v", c.pids)
	}
	alone := t.TempDir()
	process(t, alone, "7", "libamdhip64.so.7")
	got, err := vendorOf(alone, nil)
	require.NoError(t, err)
	require.Equal(t, amd, got, "all processes of the machine that use GPUs")
	_, err = vendorOf(procfs, []uint32{2, 1})
	require.ErrorContains(t, err, "process 2 uses AMD's HIP and 1 does not")
	require.Equal(t, []string{"hip_alloc", "hip_kernel", "py_stack"},
		[]string{amd.gadget("cuda_alloc"), amd.gadget("cuda_kernel"), amd.gadget("py_stack")})
}

// check names the libraries and gadgets of the vendor: those of the other are not missing.
func TestCheckKnowsTheVendor(t *testing.T) {
	procfs := t.TempDir()
	process(t, procfs, "1", "libcuda.so.550.54.14", "python3.11")
	process(t, procfs, "2", "libamdhip64.so.6.4.43484", "librccl.so.1.0", "python3.11")
	names := func(all []finding) (out []string) {
		for _, f := range all {
			out = append(out, f.Name+" "+f.Status)
		}
		return out
	}
	cuda, findings := checkProcess(procfs, 1)
	require.Equal(t, []string{"process ok", "CUDA driver ok", "CUDA runtime reduced", "NCCL reduced", "PyTorch reduced", "Python ok"}, names(findings))
	hip, findings := checkProcess(procfs, 2)
	require.Equal(t, []string{"process ok", "HIP ok", "RCCL ok", "PyTorch reduced", "Python ok"}, names(findings))
	require.Equal(t, "6.4.43484, /opt/libamdhip64.so.6.4.43484", findings[1].Detail)
	process(t, procfs, "3", "libamdhip64.so.6", "libtorch_hip.so", "libc10_hip.so", "python3.11")
	_, findings = checkProcess(procfs, 3)
	require.Equal(t, []string{"process ok", "HIP ok", "RCCL reduced", "PyTorch ok", "Python ok"}, names(findings))

	require.Equal(t, []string{"cuda_alloc ok", "cuda_kernel ok", "nccl_trace reduced", "py_stack ok"}, names(gadgetsOf(nil, [][]string{cuda})))
	require.Equal(t, []string{"hip_alloc ok", "hip_kernel ok", "nccl_trace ok", "py_stack ok"}, names(gadgetsOf(nil, [][]string{hip})))
	require.Len(t, gadgetsOf(nil, nil), 6)
}

// A launcher, such as torchrun, maps no library of GPUs: its workers do, and the gadgets trace them with it.
func TestALauncherIsLookedUpWithItsDescendants(t *testing.T) {
	procfs := t.TempDir()
	process(t, procfs, "10", "python3.11")
	process(t, procfs, "11", "bash")
	process(t, procfs, "12", "libamdhip64.so.6", "librccl.so.1.0")
	process(t, procfs, "13", "libamdhip64.so.6")
	for pid, parent := range map[string]string{"10": "1", "11": "10", "12": "11", "13": "1"} {
		require.NoError(t, os.WriteFile(filepath.Join(procfs, pid, "stat"), []byte(pid+" (python3) S "+parent+" 1 1 0 -1 0 0 0"), 0o644))
	}
	got, err := vendorOf(procfs, []uint32{10})
	require.NoError(t, err)
	require.Equal(t, amd, got)

	seen := &recorder{}
	f, err := observe(t.Context(), Config{Engine: seen, ProcFS: procfs}, []uint32{10}, time.Second)
	require.NoError(t, err)
	require.Equal(t, []uint32{12}, f.users)
	require.True(t, f.hasPython)
	var gadgets []string
	for _, run := range seen.runs {
		gadgets = append(gadgets, run.Gadget)
	}
	require.ElementsMatch(t, []string{"hip_alloc", "hip_kernel", "nccl_trace"}, gadgets)
	text := explained(t, f)
	require.Contains(t, text, "Descendants that use the GPU: 12.\n")
	require.NotContains(t, text, "had not loaded")
}
