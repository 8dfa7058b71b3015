// SPDX-License-Identifier: Apache-2.0

package pystack

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/gpu-gadgets/gpu-gadgets/internal/process/holder"
	"github.com/gpu-gadgets/gpu-gadgets/internal/process/memory"
)

// named has the work of PyTorch's threads, and for whom they do it, by the names that it gives them. All
// are those of PyTorch 2.6: test/gadgets/pytorch (TestThreadsHaveTheirRole) starts those of
// one node. The kernel keeps 15 bytes of a name.
var named = map[string]string{
	"pt_data_pin":     "pins batches for the thread that iterates over a DataLoader",
	"pt_data_worker":  "a DataLoader's worker process",
	"pt_dist_engine":  "backward work of torch.distributed.autograd, for other processes",
	"pt_elastic":      "torchrun, which starts and watches the node's ranks",
	"pt_nccl_gil_chk": "finds out for NCCL's watchdog whether the GIL is stuck",
	"pt_nccl_heartbt": "watches the watchdog of NCCL's collectives",
	"pt_nccl_runhook": "calls the hook of a process group after its collectives",
	"pt_nccl_watchdg": "watches a process group's collectives of NCCL",
	"pt_tcpstore":     "serves the key-value store of torch.distributed",
	"pt_tcpstore_uv":  "serves the key-value store of torch.distributed",
	"pt_thread_pool":  "tasks between operations (torch.jit.fork)",
	"PTThreadPool":    "tasks between operations (torch.jit.fork)",
}

// autograd, with the number of a device, is a thread of each.
const autograd = "pt_autograd_"

// titled has the roles of processes by their command lines; what the first group matches is in the role, except a
// parent: the id by which that knows itself, which in a container is not ours.
var titled = []struct {
	title    *regexp.Regexp
	role     string
	isParent bool
}{
	// torch/_inductor/compile_worker: the process and the pool that it forks.
	{regexp.MustCompile(`/torch/_inductor/compile_worker/__main__\.py .*--parent=(\d+)`), "compiles for torch.compile", true},
	// setproctitle in python/ray/_private/worker.py: IDLE, or a class, a method or a function.
	{regexp.MustCompile(`^ray::(IDLE) *$`), "a worker of Ray's without work", false},
	// A replica of Ray Serve: ServeReplica, the application, the deployment and its method.
	{regexp.MustCompile(`^ray::([\w.:-]+)`), "runs Ray's %s", false},
}

// maxTitle bounds how much is read of a command line: it may have megabytes.
const maxTitle = 4096

// roles says what threads do, of processes below procfs.
type roles struct {
	procfs    string
	processes map[uint32]string // by title, as it was at the first look
}

func newRoles(procfs string) *roles {
	return &roles{procfs: procfs, processes: map[uint32]string{}}
}

// of says what a thread does; empty: unknown. A role that the whole process has is its main thread's.
func (r *roles) of(t *thread) string {
	role := byName(t.comm)
	if role == "" && t.TID == t.PID {
		return r.process(t.PID)
	}
	if t.comm == "pt_data_worker" {
		if state, err := holder.Read(r.procfs, t.PID); err == nil { // else it has ended
			return fmt.Sprintf("%s of process %d", role, state.Parent)
		}
	}
	return role
}

// byName is the role of a thread with this name.
func byName(comm string) string {
	if device, ok := strings.CutPrefix(comm, autograd); ok && isNumber(device) {
		return "backward work on device " + device
	}
	return named[comm]
}

func isNumber(text string) bool {
	return text != "" && strings.Trim(text, "0123456789") == ""
}

// process is the role of a whole process.
func (r *roles) process(pid uint32) string {
	role, ok := r.processes[pid]
	if !ok {
		var inner string
		role, inner = byTitle(memory.CommandLine(r.procfs, pid, maxTitle))
		if parent, ok := r.parent(pid, inner); ok {
			role = fmt.Sprintf("%s in process %d", role, parent)
		}
		r.processes[pid] = role
	}
	return role
}

// byTitle is the role of a process with this command line, and the id by which the parent that it works for knows itself,
// empty if it is not in it.
func byTitle(title string) (role, parent string) {
	for _, known := range titled {
		m := known.title.FindStringSubmatch(title)
		switch {
		case m == nil:
			continue
		case known.isParent:
			return known.role, m[1]
		case strings.Contains(known.role, "%s"):
			return fmt.Sprintf(known.role, m[1]), ""
		}
		return known.role, ""
	}
	return "", ""
}

// maxParents bounds the search: torch.compile starts a process, which forks others; one more is for a wrapper.
const maxParents = 3

// parent is the nearest parent of a process that knows itself by the id inner, if there is one.
func (r *roles) parent(pid uint32, inner string) (parent uint32, ok bool) {
	if inner == "" {
		return 0, false
	}
	for range maxParents {
		state, err := holder.Read(r.procfs, pid)
		if err != nil || state.Parent <= 0 {
			return 0, false
		}
		pid = uint32(state.Parent)
		if strconv.Itoa(holder.InnerPID(r.procfs, pid)) == inner {
			return pid, true
		}
	}
	return 0, false
}
