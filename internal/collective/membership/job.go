// SPDX-License-Identifier: Apache-2.0

package membership

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/gpu-gadgets/gpu-gadgets/internal/process/memory"
	"github.com/gpu-gadgets/gpu-gadgets/internal/process/procmaps"
)

// jobs are the variables that together identify a job, as launchers set them for all its ranks: PyTorch's (also
// torchrun's, which makes each rank a session of its own), PMIx's and Slurm's.
var jobs = [][]string{{"MASTER_ADDR", "MASTER_PORT"}, {"PMIX_NAMESPACE"}, {"SLURM_JOB_ID", "SLURM_STEP_ID"}}

// Job identifies the job of a process among those of its tenant: by what its launcher has set, else by its process group;
// "": it has ended, or hangs.
func Job(procfs string, pid uint32) string {
	environment, err := memory.ReadEnvironment(procfs, pid, memory.MaxBytes)
	if err != nil {
		return ""
	}
	for _, names := range jobs {
		var values []string
		for _, name := range names {
			if v := environment.Last(name); v != "" {
				values = append(values, v)
			}
		}
		if len(values) == len(names) {
			return names[0] + " " + strings.Join(values, " ")
		}
	}
	if _, group, ok := family(procfs, pid); ok {
		return "group " + strconv.Itoa(group)
	}
	return ""
}

// family is the parent of a process and its process group: the fourth and fifth field of stat, proc(5).
func family(procfs string, pid uint32) (parent uint32, group int, ok bool) {
	b, err := os.ReadFile(filepath.Join(procfs, strconv.FormatUint(uint64(pid), 10), "stat"))
	if err != nil {
		return 0, 0, false
	}
	fields := procmaps.StatFields(b)
	if len(fields) < 3 {
		return 0, 0, false
	}
	p, err1 := strconv.ParseUint(string(fields[1]), 10, 32)
	group, err2 := strconv.Atoi(string(fields[2]))
	return uint32(p), group, err1 == nil && err2 == nil
}

// maxAncestors bounds how far up a process is searched for one that is a rank: a program starts workers, and those
// compilers.
const maxAncestors = 8

// WithoutFamily returns those of some processes that can be ranks of their own. A rank's workers, such as a data
// loader's, have its environment and, if forked, its libraries, but no thread of NCCL. The launcher has the libraries; its
// environment is another one, or, where it starts several ranks in one task, that of all of them.
func WithoutFamily(procfs string, pids []uint32) []uint32 {
	named := map[uint32]string{} // what names the rank in the environment of each
	for _, pid := range pids {
		environment, _ := memory.ReadEnvironment(procfs, pid, memory.MaxBytes) // it has ended: none
		named[pid] = rankText(environment)
	}
	others := map[uint32]bool{}
	for _, pid := range pids {
		if named[pid] == "" {
			continue
		}
		for at, n := pid, 0; n < maxAncestors; n++ {
			parent, _, ok := family(procfs, at)
			if !ok || parent == 0 {
				break
			}
			if at = parent; at == pid {
				break
			}
			switch its, known := named[at]; {
			case !known:
				continue
			case its == named[pid] && !hasNCCLThread(procfs, pid):
				others[pid] = true
			case its == named[pid] && hasNCCLThread(procfs, at): // both have communicators
			default:
				others[at] = true
			}
			break
		}
	}
	return slices.DeleteFunc(slices.Clone(pids), func(pid uint32) bool { return others[pid] })
}

// rankText is all that names the rank in an environment; "": nothing does.
func rankText(environment memory.Environment) string {
	var values []string
	for _, name := range ranks {
		for _, v := range environment.Values(name) {
			values = append(values, name+"="+v)
		}
	}
	return strings.Join(values, " ")
}
