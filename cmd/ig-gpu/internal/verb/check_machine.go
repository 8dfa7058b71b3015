// SPDX-License-Identifier: Apache-2.0

package verb

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/gpu-gadgets/gpu-gadgets/cmd/internal/machine"
	"github.com/gpu-gadgets/gpu-gadgets/internal/process/selection"
	"github.com/gpu-gadgets/gpu-gadgets/operators/send/nvml"
)

// Machine has the facts that check tests. The zero value is of no machine.
type Machine struct {
	Release       string
	IsRoot        bool
	BTF           string       // path of the kernel's BTF
	Sys           string       // sysfs
	Capabilities  uint64       // the effective ones
	LoadSleepable func() error // as machine.Machine has it
	HasMulti      func() bool  // links of many uprobes
	HasContainers func() bool
	OpenNVML      func() (nvml.Library, error)
	OpenGPUs      func() (nvml.Library, error) // of all vendors; nil: OpenNVML
}

// capabilities that eBPF programs and other processes' memory take, where a program is
// not given all of root's.
var capabilities = []struct {
	bit  uint
	name string
}{{unix.CAP_BPF, "CAP_BPF"}, {unix.CAP_PERFMON, "CAP_PERFMON"}, {unix.CAP_SYS_PTRACE, "CAP_SYS_PTRACE"}, {unix.CAP_SYS_ADMIN, "CAP_SYS_ADMIN"}}

// EffectiveCapabilities reads those of a process from its status; 0 where it cannot.
func EffectiveCapabilities(dir string) uint64 {
	text, err := os.ReadFile(filepath.Join(dir, "status"))
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(line, "CapEff:"); ok {
			bits, _ := strconv.ParseUint(strings.TrimSpace(value), 16, 64)
			return bits
		}
	}
	return 0
}

func checkMachine(m Machine) []finding {
	kernel := checkKernel(m)
	all := []finding{checkRights(m), kernel}
	btf := finding{Name: "BTF", Status: found, Detail: m.BTF}
	if _, err := os.Stat(m.BTF); err != nil {
		btf.Status, btf.Detail, btf.Fix = missing, err.Error(), "use a kernel built with CONFIG_DEBUG_INFO_BTF=y"
	}
	all = append(all, btf)
	if kernel.Status != missing { // else the next question would not be answered, either
		all = append(all, checkUprobes(m))
	}
	all = append(all, checkLockdown(m), checkTracefs(m), checkContainers(m), checkGPU(m))
	for n := range all {
		all[n].Type = "machine"
	}
	return all
}

func checkRights(m Machine) finding {
	f := finding{Name: "rights", Status: found, Detail: "root"}
	if !m.IsRoot {
		f.Status, f.Detail, f.Fix = missing, "not root: eBPF programs may only be loaded by root", "run it with sudo"
		return f
	}
	has := m.Capabilities
	if has&(1<<unix.CAP_SYS_ADMIN) != 0 {
		has |= 1<<unix.CAP_BPF | 1<<unix.CAP_PERFMON // bpf_capable() and perfmon_capable() of include/linux/capability.h
	}
	var lacks []string
	for _, c := range capabilities {
		if has&(1<<c.bit) == 0 {
			lacks = append(lacks, c.name)
		}
	}
	if len(lacks) > 0 {
		f.Status, f.Detail = missing, "root without "+strings.Join(lacks, ", ")
		f.Fix = "add these capabilities (docker run --privileged --pid=host, or securityContext.capabilities of the pod)"
	}
	return f
}

func checkKernel(m Machine) finding {
	f := finding{Name: "kernel", Status: found, Detail: "Linux " + m.Release}
	if !m.IsRoot {
		f.Detail += "; what it can is only known to root"
		return f
	}
	switch err := m.LoadSleepable(); {
	case errors.Is(err, machine.ErrLockedUp):
		f.Status, f.Detail, f.Fix = missing, fmt.Sprintf("%s: %v", f.Detail, err), "restart the machine"
	case errors.Is(err, unix.EINVAL):
		f.Status, f.Detail = reduced, f.Detail+": probes cannot wait for a page that is not in memory (Linux 6.1 can)"
		f.Fix = "use Linux 6.1 or newer; until then cuda_alloc, cuda_kernel, hip_alloc, hip_kernel and nccl_trace run in a variant"
	case err != nil:
		f.Status, f.Detail = unknown, fmt.Sprintf("%s: a program did not load: %v", f.Detail, err)
	}
	return f
}

func checkUprobes(m Machine) finding {
	f := finding{Name: "uprobes", Status: found, Detail: "perf events"}
	if _, err := os.Stat(filepath.Join(m.Sys, "bus/event_source/devices/uprobe")); err != nil {
		f.Status, f.Detail, f.Fix = missing, "the kernel has none", "use a kernel built with CONFIG_UPROBE_EVENTS=y"
		return f
	}
	if m.IsRoot && m.HasMulti() {
		f.Detail = "uprobe_multi (Linux 6.6): attached and removed at once"
	} else if m.IsRoot {
		f.Detail += ": removed one by one, which takes seconds (at once from Linux 6.6 on)"
	}
	return f
}

func checkLockdown(m Machine) finding {
	f := finding{Name: "lockdown", Status: found, Detail: "off"}
	text, err := os.ReadFile(filepath.Join(m.Sys, "kernel/security/lockdown"))
	if err != nil {
		f.Detail = "not in this kernel"
		return f
	}
	if strings.Contains(string(text), "[confidentiality]") {
		f.Status, f.Detail = missing, "confidentiality: eBPF may not read memory"
		f.Fix = "boot with lockdown=integrity, or none"
	} else if strings.Contains(string(text), "[integrity]") {
		f.Detail = "integrity, which lets eBPF read"
	}
	return f
}

func checkTracefs(m Machine) finding {
	f := finding{Name: "tracefs", Status: found, Detail: "mounted"}
	for _, dir := range []string{"kernel/tracing", "kernel/debug/tracing"} {
		if _, err := os.Stat(filepath.Join(m.Sys, dir, "events")); err == nil {
			return f
		}
	}
	f.Detail = "not mounted: a run mounts it by itself (--auto-mount-filesystems)"
	return f
}

func checkContainers(m Machine) finding {
	f := finding{Name: "containers", Status: found, Detail: "a container runtime is here: rows name pods and containers"}
	switch _, err := os.Stat(filepath.Join(m.Sys, "bus/event_source/devices/kprobe")); {
	case !m.HasContainers():
		f.Status, f.Detail = reduced, "no container runtime was found (docker, containerd, cri-o, podman): rows name processes only"
		f.Fix = "name processes by id, or all with --host; on a node, mount the runtime's socket"
	case err != nil:
		f.Status, f.Detail, f.Fix = reduced, "a container runtime is here, but the kernel has no kprobes: containers that start later may be missed", "name processes by id"
	}
	return f
}

func checkGPU(m Machine) finding {
	f := finding{Name: "GPU", Status: found}
	devices, _ := filepath.Glob("/dev/nvidia[0-9]*")
	library, err := m.OpenNVML()
	if amd, amdErr := nvml.OpenAMD(m.Sys, ""); err != nil && amdErr == nil {
		f.Detail = fmt.Sprintf("AMD's, with KFD; processes that use them: %d", len(amd.Processes()))
		return f
	}
	if err != nil {
		f.Status, f.Detail = reduced, fmt.Sprintf("%d devices in /dev; NVML: %v", len(devices), err)
		f.Fix = "gadgets do not need NVML; without it there are no metrics of the GPUs themselves"
		return f
	}
	defer library.Close()
	f.Detail = fmt.Sprintf("%d devices in /dev; NVML names %d processes on them", len(devices), len(library.Processes()))
	return f
}

// checkPIDs has a finding only where process ids are a container's: rows come all the same, but no process can be named.
func checkPIDs(procfs string) []finding {
	if selection.CheckNamespace(procfs) == nil {
		return nil
	}
	return []finding{{
		Type: "machine", Name: "process ids", Status: reduced,
		Detail: "they are those of a container, which the kernel's programs do not know: no process can be named",
		Fix:    "start the container with --pid=host, a pod with hostPID: true",
	}}
}
