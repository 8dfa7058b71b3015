// SPDX-License-Identifier: Apache-2.0

package verb

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/gpu-gadgets/gpu-gadgets/cmd/ig-gpu/internal/help"
	"github.com/gpu-gadgets/gpu-gadgets/cmd/ig-gpu/internal/targets"
	"github.com/gpu-gadgets/gpu-gadgets/cmd/internal/console"
	"github.com/gpu-gadgets/gpu-gadgets/cmd/internal/machine"
	"github.com/gpu-gadgets/gpu-gadgets/operators/send/nvml"
)

func fitMachine(t *testing.T) Machine {
	t.Helper()
	sys := t.TempDir()
	require.NoError(t, os.MkdirAll(filepath.Join(sys, "bus/event_source/devices/uprobe"), 0o755))
	btf := filepath.Join(sys, "btf")
	require.NoError(t, os.WriteFile(btf, nil, 0o600))
	return Machine{
		Release: "6.8", IsRoot: true, BTF: btf, Sys: sys, Capabilities: 1<<41 - 1,
		LoadSleepable: func() error { return nil }, HasMulti: func() bool { return true }, HasContainers: func() bool { return false },
		OpenNVML: func() (nvml.Library, error) { return nil, nvml.ErrAbsent },
	}
}

func TestCheckSaysWhatIsMissingAndHowToFixIt(t *testing.T) {
	fit := fitMachine(t)
	out, _, err := execute(t, Config{ProcFS: procfs(t), Machine: fit}, "check", "7", "-o", "json")
	require.NoError(t, err)
	status := map[string]finding{}
	for line := range strings.Lines(out) {
		var f finding
		require.NoError(t, json.Unmarshal([]byte(line), &f), line)
		status[f.Name] = f
	}
	require.Equal(t, found, status["cuda_alloc"].Status)
	require.Equal(t, reduced, status["nccl_trace"].Status, "NCCL is not mapped")
	require.Equal(t, "550.54.14, /usr/lib/libcuda.so.550.54.14", status["CUDA driver"].Detail)
	require.Equal(t, "3.11, /usr/bin/python3.11", status["Python"].Detail)

	unfit := fit
	unfit.IsRoot = false
	out, _, err = execute(t, Config{ProcFS: procfs(t), Machine: unfit}, "check")
	require.ErrorContains(t, err, "cuda_alloc, cuda_kernel, hip_alloc, hip_kernel, nccl_trace, py_stack will not work here")
	require.Contains(t, out, "run it with sudo")

	unfit = fit
	unfit.BTF += "-none"
	out, _, err = execute(t, Config{ProcFS: procfs(t), Machine: unfit}, "check")
	require.Error(t, err)
	require.Contains(t, out, "CONFIG_DEBUG_INFO_BTF=y")

	unfit = fit
	unfit.LoadSleepable = func() error { return machine.ErrLockedUp }
	unfit.HasMulti = func() bool { t.Fatal("a kernel that is locked up does not answer"); return false }
	out, _, err = execute(t, Config{ProcFS: procfs(t), Machine: unfit}, "check")
	require.ErrorContains(t, err, "cuda_alloc, cuda_kernel, hip_alloc, hip_kernel, nccl_trace, py_stack will not work here")
	require.Contains(t, out, "restart the machine")

	nested := procfs(t)
	require.NoError(t, os.MkdirAll(filepath.Join(nested, "1/ns/pid"), 0o755)) // of another inode than the first namespace has
	out, _, err = execute(t, Config{ProcFS: nested, Machine: fit}, "check")
	require.NoError(t, err)
	require.Contains(t, out, "start the container with --pid=host")

	out, _, err = execute(t, Config{ProcFS: procfs(t), Machine: fit}, "check", "4711", "7")
	require.EqualError(t, err, "check: process 4711: there is no such process")
	require.Contains(t, out, "there is no such process")
	require.NotContains(t, out, "of 2 processes", "it has nothing to load")
}

// The chart's pods have SYS_ADMIN and no BPF or PERFMON.
func TestCheckAcceptsWhatTheKernelDoes(t *testing.T) {
	node := fitMachine(t)
	node.Capabilities = 1<<unix.CAP_SYS_ADMIN | 1<<unix.CAP_SYS_PTRACE
	_, _, err := execute(t, Config{ProcFS: procfs(t), Machine: node}, "check")
	require.NoError(t, err)

	node.Capabilities = 1<<unix.CAP_BPF | 1<<unix.CAP_SYS_PTRACE
	out, _, err := execute(t, Config{ProcFS: procfs(t), Machine: node}, "check")
	require.Error(t, err)
	require.Contains(t, out, "root without CAP_PERFMON, CAP_SYS_ADMIN\n")

	old := fitMachine(t)
	old.LoadSleepable = func() error { return unix.EINVAL }
	out, _, err = execute(t, Config{ProcFS: procfs(t), Machine: old}, "check")
	require.EqualError(t, err, "check: py_stack will not work here: the findings above say why")
	require.Contains(t, out, "cuda_alloc, cuda_kernel, hip_alloc, hip_kernel and nccl_trace run in a variant")
}

func TestAResultThatCannotBePrintedIsAnError(t *testing.T) {
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	require.NoError(t, err)
	defer full.Close()
	root := &cobra.Command{Use: "ig-gpu", SilenceErrors: true, SilenceUsage: true}
	help.Install(root)
	root.AddCommand(Commands(Config{ProcFS: procfs(t), Machine: fitMachine(t), Engine: &recorder{}, Console: console.New(os.Stdin, full)})...)
	root.SetOut(full)
	for _, args := range [][]string{{"check"}, {"top"}, {"hangs"}, {"report", writeProfile(t, "p.pb.gz", held("load", 10, 6<<30, 32))}} {
		root.SetArgs(args)
		require.ErrorIs(t, root.Execute(), unix.ENOSPC, args)
	}
}

// No right makes its mappings readable.
func TestCheckNamesAKernelThread(t *testing.T) {
	root := procfs(t)
	dir := filepath.Join(root, "2")
	require.NoError(t, os.Mkdir(dir, 0o755))
	for name, text := range map[string]string{"maps": "", "stat": "2 (kthreadd) S 0 0 0 0 -1 2129984 0 0 0 0 0 0 0 0 20 0 1 0 4 0 0\n"} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	out, _, err := execute(t, Config{ProcFS: root, Machine: fitMachine(t)}, "check", "2")
	require.NoError(t, err)
	require.Contains(t, out, "it is a kernel thread, which uses no GPU")
	require.NotContains(t, out, "sudo")
}

// A pipe without a writer blocks like the lock of a process that hangs in the GPU's driver: that is what is to be found out.
func TestCheckNamesAProcessThatHangs(t *testing.T) {
	root := procfs(t)
	pipe := filepath.Join(root, "9", "maps")
	require.NoError(t, os.Mkdir(filepath.Dir(pipe), 0o755))
	require.NoError(t, unix.Mkfifo(pipe, 0o600))
	t.Cleanup(func() { // ends the reads
		f, err := os.OpenFile(pipe, os.O_WRONLY, 0)
		require.NoError(t, err)
		f.Close()
	})
	out, _, err := execute(t, Config{ProcFS: root, Machine: fitMachine(t)}, "check", "9")
	require.NoError(t, err)
	require.Contains(t, out, "it hangs in the kernel")
	require.Contains(t, out, "sudo cat /proc/9/stack")

	processes, err := targets.Find(root)
	require.NoError(t, err)
	require.Len(t, processes, 1, "the others are listed")
}
