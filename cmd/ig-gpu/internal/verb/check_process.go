// SPDX-License-Identifier: Apache-2.0

package verb

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/gpu-gadgets/gpu-gadgets/cmd/ig-gpu/internal/targets"
	"github.com/gpu-gadgets/gpu-gadgets/internal/collective/membership"
	"github.com/gpu-gadgets/gpu-gadgets/internal/process/procmaps"
)

// lookedFor is a library that gadgets probe: what it is for, and what is missing without it.
type lookedFor struct{ label, name, without string }

// looked are those of NVIDIA's GPUs.
var looked = []lookedFor{
	{"CUDA driver", "libcuda", "no memory or launches are seen until it is loaded"},
	{"CUDA runtime", "libcudart", "linked statically, or not used; the driver's calls are enough"},
	{"NCCL", membership.NCCL, "no collectives, unless NCCL is inside of libtorch_cuda"},
	{"PyTorch", membership.Torch, "rows of tensors (kind tensor) need libc10_cuda of PyTorch"},
}

// lookedHIP are those of a process that uses AMD's GPUs.
var lookedHIP = []lookedFor{
	{"HIP", "libamdhip64", "no memory or launches are seen until it is loaded"},
	{"RCCL", membership.RCCL, "no collectives"},
	{"PyTorch", "libtorch_hip", "rows of tensors (kind tensor) need libc10_hip of PyTorch"},
}

// usesHIP reports whether a process uses AMD's GPUs, and not NVIDIA's.
func usesHIP(libraries []string) bool {
	return mapped(libraries, amd.library) != "" && mapped(libraries, nvidia.library) == ""
}

var pythonName = regexp.MustCompile(`^(lib)?python(3\.[0-9]+)[a-z]*(\.so.*)?$`)

func isPython(libraries []string) bool { return pythonOf(libraries) != "" }

func pythonOf(libraries []string) string {
	for _, path := range libraries {
		if pythonName.MatchString(filepath.Base(path)) {
			return path
		}
	}
	return ""
}

// hasLibrary reports whether one of these is mapped.
func hasLibrary(names ...string) func([]string) bool {
	return func(libraries []string) bool {
		for _, name := range names {
			if mapped(libraries, name) != "" {
				return true
			}
		}
		return false
	}
}

// hasCollectives reports whether NCCL or RCCL is mapped.
func hasCollectives(libraries []string) bool {
	return slices.ContainsFunc(libraries, membership.IsLibrary)
}

func mapped(libraries []string, name string) string {
	for _, path := range libraries {
		if procmaps.IsLibrary(path, name) {
			return path
		}
	}
	return ""
}

// noProcess is the detail of a process that is not there.
const noProcess = "there is no such process"

// checkProcess checks the libraries that a process has mapped; nil: they could not be read.
func checkProcess(procfs string, pid uint32) (libraries []string, out []finding) {
	dir := filepath.Join(procfs, strconv.FormatUint(uint64(pid), 10))
	add := func(name, status, detail, fix string) {
		out = append(out, finding{Type: "process", PID: pid, Name: name, Status: status, Detail: detail, Fix: fix})
	}
	if _, err := os.Stat(dir); err != nil {
		add("process", missing, noProcess, "pgrep -af NAME lists processes; in a container, ids differ from the host's")
		return nil, out
	}
	libraries, err := targets.Libraries(procfs, pid)
	switch {
	case errors.Is(err, procmaps.ErrStuck):
		add("process", missing, "its mappings cannot be read: it hangs in the kernel", "sudo cat /proc/"+strconv.FormatUint(uint64(pid), 10)+"/stack shows where; dmesg, what the GPU's driver reports")
		return nil, out
	case isKernelThread(procfs, pid):
		add("process", missing, "it is a kernel thread, which uses no GPU", "")
		return nil, out
	case procmaps.HasEnded(procfs, pid, 0):
		add("process", missing, "it has ended, and its parent has not waited for it yet", "")
		return nil, out
	case len(libraries) == 0:
		add("process", missing, "its mappings cannot be read", "run it with sudo, on the host")
		return nil, out
	}
	add("process", found, targets.Command(procfs, pid), "")
	list := looked
	if usesHIP(libraries) {
		list = lookedHIP
	}
	for _, l := range list {
		path := mapped(libraries, l.name)
		if path == "" {
			add(l.label, reduced, "not mapped: "+l.without, "")
			continue
		}
		add(l.label, found, withVersion(path, versionOf(procfs, pid, path, l.name)), "")
	}
	path := pythonOf(libraries)
	if path == "" {
		add("Python", reduced, "not mapped: stacks are native only", "")
		return libraries, out
	}
	version := pythonName.FindStringSubmatch(filepath.Base(path))[2]
	status, detail := found, withVersion(path, version)
	if minor, _ := strconv.Atoi(strings.TrimPrefix(version, "3.")); minor < 7 || minor > 15 {
		status, detail = reduced, detail+": only CPython 3.7 to 3.15 is known, stacks are native only"
	}
	add("Python", status, detail, "")
	return libraries, out
}

func withVersion(path, version string) string {
	if version == "" {
		return path + ", unknown version"
	}
	return fmt.Sprintf("%s, %s", version, path)
}

var (
	fileVersion  = regexp.MustCompile(`\.so\.([0-9]+\.[0-9.]+)$`)
	torchVersion = regexp.MustCompile(`(?m)^__version__ = ['"]([0-9A-Za-z.+]{1,40})['"]`)
)

// maxVersionFile bounds what is read of torch/version.py.
const maxVersionFile = 4096

// versionOf returns the version in a library's name or in a file beside it; empty where there is none. The
// file is the process's: it is opened inside of its root, and only if it is a regular one that its file system reads in time.
func versionOf(procfs string, pid uint32, path, name string) string {
	if m := fileVersion.FindStringSubmatch(path); m != nil {
		return m[1]
	}
	if name != membership.Torch && name != "libtorch_hip" {
		return ""
	}
	file, err := procmaps.NewCache(procmaps.Config{ProcFS: procfs}).OpenIn(pid, filepath.Join(filepath.Dir(filepath.Dir(path)), "version.py"))
	if err != nil {
		return ""
	}
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, maxVersionFile))
	if err != nil {
		return ""
	}
	if m := torchVersion.FindSubmatch(text); m != nil {
		return string(m[1])
	}
	return ""
}
