// SPDX-License-Identifier: Apache-2.0

// Package targets finds the processes that use a GPU, and reads which of them a user means.
package targets

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/gpu-gadgets/gpu-gadgets/internal/process/memory"
	"github.com/gpu-gadgets/gpu-gadgets/internal/process/procmaps"
	"github.com/gpu-gadgets/gpu-gadgets/internal/process/selection"
)

const (
	// maxCommand bounds a command line, in bytes.
	maxCommand = 4096
)

// Process is one that has CUDA or HIP mapped.
type Process struct {
	PID     uint32 `json:"pid"`
	User    string `json:"user"`             // its name or number
	Pod     string `json:"pod,omitempty"`    // the cgroup's pod UID or container id, shortened; empty on the host
	Command string `json:"command"`          // printable, on one line
	Library string `json:"library"`          // path of libcuda or libamdhip64, as the process sees it
	Memory  uint64 `json:"memory,omitempty"` // bytes on the GPUs, as the driver counts; 0: not known
	Python  bool   `json:"python,omitempty"` // a Python interpreter is mapped
	Parent  uint32 `json:"-"`                // 0: not known
}

// drivers are the libraries by which a process is a target: NVIDIA's and AMD's.
var drivers = []string{"libcuda", "libamdhip64"}

func isDriver(path string) bool {
	return slices.ContainsFunc(drivers, func(name string) bool { return procmaps.IsLibrary(path, name) })
}

// Find lists the processes in procfs that have CUDA or HIP mapped, by id. A process that ends
// meanwhile, or cannot be read, is left out. The program's own process is no target.
func Find(procfs string) ([]Process, error) {
	out, _, err := FindReadable(procfs)
	return out, err
}

// FindReadable is Find, and how many processes could not be read, as those of other users without root.
func FindReadable(procfs string) (out []Process, unreadable int, err error) {
	entries, err := os.ReadDir(procfs)
	if err != nil {
		return nil, 0, fmt.Errorf("list processes: %w", err)
	}
	for _, entry := range entries {
		pid, err := strconv.ParseUint(entry.Name(), 10, 31)
		if err != nil || int(pid) == os.Getpid() {
			continue
		}
		dir := filepath.Join(procfs, entry.Name())
		libraries, err := Libraries(procfs, uint32(pid))
		if err != nil {
			if _, gone := os.Stat(dir); gone == nil {
				unreadable++
			}
			continue
		}
		at := slices.IndexFunc(libraries, isDriver)
		if at < 0 {
			continue
		}
		out = append(out, Process{
			PID: uint32(pid), User: userOf(dir), Pod: podOf(dir), Command: Command(procfs, uint32(pid)), Library: libraries[at],
			Python: slices.ContainsFunc(libraries, isPython), Parent: procmaps.Parent(procfs, uint32(pid)),
		})
	}
	slices.SortFunc(out, func(a, b Process) int { return int(a.PID) - int(b.PID) })
	return out, unreadable, nil
}

// Libraries are the files that a process has mapped, each once, in the order of their addresses. The error is
// procmaps.ErrStuck for one that hangs in the kernel.
func Libraries(procfs string, pid uint32) (paths []string, err error) {
	files, err := procmaps.NewCache(procmaps.Config{ProcFS: procfs}).Read(pid, procmaps.Mapping.IsFile)
	if err != nil {
		return nil, fmt.Errorf("read the mappings of a process: %w", err)
	}
	seen := map[string]bool{}
	for _, m := range files {
		if !seen[m.Path] {
			seen[m.Path] = true
			paths = append(paths, m.Path)
		}
	}
	return paths, nil
}

func isPython(path string) bool {
	base := filepath.Base(path)
	return strings.HasPrefix(base, "python3") || strings.HasPrefix(base, "libpython3")
}

// Command is the command line of a process, or its name in brackets. The process decides
// what it is: what could drive a terminal is replaced.
func Command(procfs string, pid uint32) string {
	if text := memory.CommandLine(procfs, pid, maxCommand); text != "" {
		return printable(text)
	}
	comm, _ := os.ReadFile(filepath.Join(procfs, strconv.FormatUint(uint64(pid), 10), "comm"))
	return "[" + printable(strings.TrimSpace(string(comm))) + "]"
}

func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return unicode.ReplacementChar
		}
		return r
	}, text)
}

// Parse reads ids as a user gives them, in one argument or several, between them commas,
// spaces or newlines. None is an error: "$(pgrep NAME)" that finds nothing must not mean
// the whole machine.
func Parse(args []string) ([]uint32, error) {
	text := strings.TrimSpace(strings.Join(args, " "))
	if text == "" {
		return nil, fmt.Errorf("the process id is empty: no process was found to look at. Name one, or give none to see which processes use CUDA")
	}
	return selection.Parse(text)
}
