// SPDX-License-Identifier: Apache-2.0

package verb

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/gpu-gadgets/gpu-gadgets/cmd/ig-gpu/internal/targets"
	"github.com/gpu-gadgets/gpu-gadgets/internal/format/screen"
)

// Findings of a check.
const (
	found   = "ok"
	reduced = "reduced" // it works, with less
	missing = "missing" // a gadget does not work without it
	unknown = "unknown" // it could not be found out
)

// finding is the result of one check.
type finding struct {
	Type   string `json:"type"` // machine, process or gadget
	PID    uint32 `json:"pid,omitempty"`
	Name   string `json:"name"`
	Status string `json:"status"`
	Detail string `json:"detail"`
	// Fix describes the remedy where the result is not ok.
	Fix string `json:"fix,omitempty"`
}

func newCheck(cfg Config) *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:   "check [PID...]",
		Short: "Say which gadgets work here, and how to fix what is missing",
		Long: "Look at what gadgets need: the kernel, BTF, uprobes, rights, container runtimes and the GPU; and, of each\n" +
			"process that is named, the libraries that are probed, with their versions. It changes nothing and traces\n" +
			"nothing. The exit code is 1 if a gadget will not work, or a process is not there.",
		Example: "  ig-gpu check                     this machine\n" +
			"  ig-gpu check 4711                and a process\n" +
			"  ig-gpu check 4711 -o json        one JSON object per finding",
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := textOrJSON(output); err != nil {
				return err
			}
			var pids []uint32
			if len(args) > 0 {
				var err error
				if pids, err = targets.Parse(args); err != nil {
					return err
				}
			}
			return conclude(cmd.OutOrStdout(), checkAll(cfg, pids), output == "json", len(pids) == 0)
		},
	}
	cmd.Flags().StringVarP(&output, "output", "o", "text", "text or json")
	return cmd
}

// checkAll checks the machine and processes, and derives which gadgets work.
func checkAll(cfg Config, pids []uint32) []finding {
	all := append(checkMachine(cfg.Machine), checkPIDs(cfg.ProcFS)...)
	var libraries [][]string
	for _, pid := range pids {
		of, findings := checkProcess(cfg.ProcFS, pid)
		if of != nil {
			libraries = append(libraries, of)
		}
		all = append(all, findings...)
	}
	return append(all, gadgetsOf(all, libraries)...)
}

// conclude prints the findings; it is an error if a gadget does not work, or a process is not there.
func conclude(w io.Writer, all []finding, asJSON, noneNamed bool) error {
	if asJSON {
		if err := writeLines(w, "print the check", all); err != nil {
			return err
		}
	} else {
		printFindings(w, all)
		if noneNamed {
			fmt.Fprintln(w, "\nNo process was named: ig-gpu check PID looks at its libraries, too.")
		}
	}
	var broken []string
	var absent []uint32
	for _, f := range all {
		if f.Type == "process" && f.Detail == noProcess {
			absent = append(absent, f.PID)
		}
		if f.Type == "gadget" && f.Status == missing {
			broken = append(broken, f.Name)
		}
	}
	if len(broken) > 0 {
		return fmt.Errorf("check: %s will not work here: the findings above say why", strings.Join(broken, ", "))
	}
	if len(absent) > 0 {
		return fmt.Errorf("check: process %s: %s", joined(absent), noProcess)
	}
	return nil
}

func printFindings(w io.Writer, all []finding) {
	last := ""
	out := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, f := range all {
		title := map[string]string{"machine": "Machine", "process": fmt.Sprintf("Process %d", f.PID), "gadget": "Gadgets"}[f.Type]
		if title != last {
			_ = out.Flush()
			if last != "" {
				fmt.Fprintln(w)
			}
			fmt.Fprintln(w, title)
			last = title
		}
		fmt.Fprintf(out, "  %s\t%s\t%s\n", f.Status, screen.Clean(f.Name), screen.Clean(f.Detail))
		if f.Fix != "" {
			fmt.Fprintf(out, "  \t\t→ %s\n", f.Fix)
		}
	}
	_ = out.Flush()
}

// gadgetsOf returns which gadgets work, given what was found. Without processes only the
// machine decides: libraries that are loaded later are attached to.
func gadgetsOf(all []finding, processes [][]string) (out []finding) {
	status := map[string]string{}
	for _, f := range all {
		if f.Type == "machine" {
			status[f.Name] = f.Status
		}
	}
	var blocked []string
	for _, name := range []string{"rights", "kernel", "BTF", "uprobes", "lockdown"} {
		if status[name] == missing {
			blocked = append(blocked, name)
		}
	}
	hip := 0
	for _, libraries := range processes {
		if usesHIP(libraries) {
			hip++
		}
	}
	for _, g := range []struct {
		name, libraries string
		has             func([]string) bool
		what            string
		sleeps          bool // it has no variant for kernels before 6.1
	}{
		{"cuda_alloc", "libcuda", hasLibrary("libcuda"), "who holds, takes and frees GPU memory", false},
		{"cuda_kernel", "libcuda", hasLibrary("libcuda"), "launches, copies and waits", false},
		{"hip_alloc", "libamdhip64", hasLibrary("libamdhip64"), "the same for AMD's GPUs", false},
		{"hip_kernel", "libamdhip64", hasLibrary("libamdhip64"), "the same for AMD's GPUs", false},
		{"nccl_trace", "libnccl, librccl, or libtorch_cuda with NCCL inside", hasCollectives, "collectives, and who is missing", false},
		{"py_stack", "Python", isPython, "what Python threads do", true},
	} {
		if isHIP := strings.HasPrefix(g.name, "hip_"); len(processes) > 0 && (isHIP && hip == 0 || strings.HasPrefix(g.name, "cuda_") && hip == len(processes)) {
			continue // of the other vendor
		}
		f := finding{Type: "gadget", Name: g.name, Status: found, Detail: g.what}
		if status["kernel"] == reduced {
			f.Status, f.Detail = reduced, g.what+"; the variant for Linux 5.10: stacks may lack frames that are not in memory"
			if g.sleeps {
				f.Status, f.Detail, f.Fix = missing, "needs Linux 6.1", "use a newer kernel"
			}
		}
		without := 0
		for _, libraries := range processes {
			if !g.has(libraries) {
				without++
			}
		}
		if without > 0 && f.Status != missing {
			f.Status, f.Detail = reduced, fmt.Sprintf("%d of %d processes have no %s mapped yet; it is attached to when it is loaded", without, len(processes), g.libraries)
		}
		if len(blocked) > 0 {
			f.Status, f.Detail, f.Fix = missing, "needs "+strings.Join(blocked, ", ")+": see above", ""
		}
		out = append(out, f)
	}
	return out
}
