// SPDX-License-Identifier: Apache-2.0

package verb

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"path"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/gpu-gadgets/gpu-gadgets/cmd/ig-gpu/internal/targets"
	"github.com/gpu-gadgets/gpu-gadgets/internal/profile"
	"github.com/gpu-gadgets/gpu-gadgets/operators/send/nvml"
)

// errNoTarget: there is no process that a verb could trace.
var errNoTarget = errors.New("no process on this machine has CUDA (libcuda.so) or HIP (libamdhip64.so) mapped: start one, or name a process by its id")

// pids are the processes that a command line names. Without any, those that have CUDA
// mapped are listed: at a terminal the user chooses one; elsewhere the list is the error.
func pids(cfg Config, cmd *cobra.Command, args []string) ([]uint32, error) {
	if len(args) > 0 {
		return targets.Parse(args)
	}
	found, unreadable, err := targets.FindReadable(cfg.ProcFS)
	if err != nil {
		return nil, err
	}
	if cfg.Machine.IsRoot {
		unreadable = 0 // others are in the way, such as a process that hangs
	}
	switch {
	case len(found) == 0 && unreadable > 0:
		return nil, fmt.Errorf("%w. %s", errNoTarget, needsRoot(unreadable))
	case len(found) == 0:
		return nil, errNoTarget
	}
	found = holdersOf(cfg, found)
	if cfg.Terminal == nil || !cfg.Terminal.IsInteractive() {
		return nil, &unnamed{cmd.CommandPath(), found, unreadable}
	}
	if unreadable > 0 {
		fmt.Fprintln(cmd.ErrOrStderr(), needsRoot(unreadable))
	}
	return choose(found, cmd.InOrStdin(), cmd.ErrOrStderr())
}

// holdersOf are the targets with the memory that the vendor's driver counts for them, without forked workers that have none.
func holdersOf(cfg Config, found []targets.Process) []targets.Process {
	used := memoryOf(cfg)
	for n := range found {
		found[n].Memory = used[found[n].PID]
	}
	return withoutForks(found)
}

// withoutForks leaves out forked workers, as of a data loader: they have the mappings and the command line of their
// parent, but no memory of the GPU where it has some. Where that is not known, they come last.
func withoutForks(found []targets.Process) []targets.Process {
	byPID := map[uint32]targets.Process{}
	for _, p := range found {
		byPID[p.PID] = p
	}
	var first, forks []targets.Process
	for _, p := range found {
		parent, isListed := byPID[p.Parent]
		if !isListed || p.Memory > 0 || parent.Library != p.Library || parent.Command != p.Command {
			first = append(first, p)
			continue
		}
		if !isOfHolder(byPID, p) {
			p.Command = fmt.Sprintf("(forked by %d) %s", p.Parent, p.Command)
			forks = append(forks, p)
		}
	}
	return append(first, forks...)
}

// maxForks bounds how far up a process is searched for one that has memory of a GPU.
const maxForks = 8

// isOfHolder reports whether an ancestor of the same command line, with all between, is listed and has memory.
func isOfHolder(byPID map[uint32]targets.Process, p targets.Process) bool {
	command := p.Command
	for range maxForks {
		parent, isListed := byPID[p.Parent]
		if !isListed || parent.Command != command {
			return false
		}
		if parent.Memory > 0 {
			return true
		}
		p = parent
	}
	return false
}

// needsRoot says that there may be more.
func needsRoot(unreadable int) string {
	if unreadable == 1 {
		return "1 process could not be read: run it with sudo to see all"
	}
	return fmt.Sprintf("%d processes could not be read: run it with sudo to see all", unreadable)
}

// unnamed is the error of a command line without a process.
type unnamed struct {
	command    string
	found      []targets.Process
	unreadable int
}

func (u *unnamed) Error() string {
	var text strings.Builder
	fmt.Fprintf(&text, "%s: name a process. These have CUDA or HIP mapped:\n", u.command)
	list(&text, u.found, false)
	if u.unreadable > 0 {
		text.WriteString("  " + needsRoot(u.unreadable))
	}
	return strings.TrimRight(text.String(), "\n")
}

// Lines: the text is a list, which is not to be put on one line.
func (u *unnamed) Lines() string { return u.Error() }

// list prints processes as a table.
func list(w io.Writer, found []targets.Process, numbered bool) {
	out := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	head := "  PID\tUSER\tPOD\tGPU MEMORY\tCOMMAND"
	if numbered {
		head = "  #\t" + strings.TrimSpace(head)
	}
	fmt.Fprintln(out, head)
	for n, p := range found {
		pod, memory := p.Pod, "unknown"
		if pod == "" {
			pod = "-"
		}
		if p.Memory > 0 {
			memory = profile.FormatBytes(int64(p.Memory))
		}
		fmt.Fprint(out, "  ")
		if numbered {
			fmt.Fprintf(out, "%d\t", n+1)
		}
		fmt.Fprintf(out, "%d\t%s\t%s\t%s\t%s\n", p.PID, p.User, pod, memory, brief(p.Command, 60))
	}
	_ = out.Flush() // of a buffer, or of a terminal that is gone
}

// brief is a command line in so many characters. The directory of the program is left out: the rest identifies the process.
func brief(command string, width int) string {
	program, arguments, _ := strings.Cut(command, " ")
	if strings.HasPrefix(program, "/") {
		command = strings.TrimRight(path.Base(program)+" "+arguments, " ")
	}
	return shorten(command, width)
}

func shorten(text string, width int) string {
	runes := []rune(text)
	if len(runes) <= width {
		return text
	}
	return string(runes[:width-1]) + "…"
}

// choose asks which process is meant. One alone is taken.
func choose(found []targets.Process, in io.Reader, out io.Writer) ([]uint32, error) {
	if len(found) == 1 {
		fmt.Fprintf(out, "Process %d: %s\n", found[0].PID, found[0].Command)
		return []uint32{found[0].PID}, nil
	}
	list(out, found, true)
	lines := bufio.NewScanner(in)
	for range 3 {
		fmt.Fprintf(out, "Which one (1 to %d, or a process id)? ", len(found))
		if !lines.Scan() {
			break
		}
		number, err := strconv.ParseUint(strings.TrimSpace(lines.Text()), 10, 31)
		if err == nil && number >= 1 && number <= uint64(len(found)) {
			return []uint32{found[number-1].PID}, nil
		}
		for _, p := range found {
			if err == nil && uint64(p.PID) == number {
				return []uint32{p.PID}, nil
			}
		}
	}
	return nil, errors.New("no process was chosen")
}

// memoryOf is the memory that the driver counts for each process, on all devices; nil where NVML or KFD
// is not there.
func memoryOf(cfg Config) map[uint32]uint64 { return summed(memoryByGPU(cfg)) }

// memoryByGPU is that memory by process and UUID of the GPU.
func memoryByGPU(cfg Config) map[uint32]map[string]uint64 {
	library, err := openGPUs(cfg)
	if err != nil || library == nil {
		return nil
	}
	defer library.Close()
	out := map[uint32]map[string]uint64{}
	for _, p := range library.Processes() {
		if out[p.PID] == nil {
			out[p.PID] = map[string]uint64{}
		}
		out[p.PID][p.Device.UUID] += uint64(max(p.Bytes, 0))
	}
	return out
}

// summed adds up each process's GPUs; nil stays nil.
func summed(used map[uint32]map[string]uint64) map[uint32]uint64 {
	if used == nil {
		return nil
	}
	out := map[uint32]uint64{}
	for pid, gpus := range used {
		for _, bytes := range gpus {
			out[pid] += bytes
		}
	}
	return out
}

// openGPUs opens the vendors' libraries; nil: this program has none.
func openGPUs(cfg Config) (nvml.Library, error) {
	open := cfg.Machine.OpenGPUs
	if open == nil {
		open = cfg.Machine.OpenNVML
	}
	if open == nil {
		return nil, nil
	}
	return open()
}
