// SPDX-License-Identifier: Apache-2.0

package pystack

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
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

// titled has the roles of processes by their command lines; what the first group matches is in the role.
var titled = []struct {
	title *regexp.Regexp
	role  string
}{
	// torch/_inductor/compile_worker: the process and the pool that it forks.
	{regexp.MustCompile(`/torch/_inductor/compile_worker/__main__\.py .*--parent=(\d+)`), "compiles for torch.compile in process %s"},
	// setproctitle in python/ray/_private/worker.py: IDLE, or a class, a method or a function.
	{regexp.MustCompile(`^ray::(IDLE)$`), "a worker of Ray's without work"},
	{regexp.MustCompile(`^ray::([\w.]+)`), "runs Ray's %s"},
}

// maxRead bounds how much is read of a file: a command line may have megabytes.
const maxRead = 4096

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
		if parent := r.parent(t.PID); parent != 0 {
			return fmt.Sprintf("%s of process %d", role, parent)
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
		role = byTitle(r.read(pid, "cmdline"))
		r.processes[pid] = role
	}
	return role
}

// byTitle is the role of a process with this command line, whose arguments end with zeros.
func byTitle(line []byte) string {
	line = bytes.TrimRight(line, "\x00 ")
	title := string(bytes.ReplaceAll(line, []byte{0}, []byte{' '}))
	for _, known := range titled {
		if m := known.title.FindStringSubmatch(title); m != nil {
			if strings.Contains(known.role, "%s") {
				return fmt.Sprintf(known.role, m[1])
			}
			return known.role
		}
	}
	return ""
}

// parent is the pid of a process's parent; 0: unknown.
func (r *roles) parent(pid uint32) uint32 {
	stat := r.read(pid, "stat")
	// Behind the name, which may have spaces and parentheses: the state, and the parent.
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	if len(fields) < 2 {
		return 0
	}
	parent, err := strconv.ParseUint(string(fields[1]), 10, 32)
	if err != nil {
		return 0
	}
	return uint32(parent)
}

// read returns a file of a process, empty if there is none any more: then nothing is known.
func (r *roles) read(pid uint32, file string) []byte {
	f, err := os.Open(filepath.Join(r.procfs, strconv.FormatUint(uint64(pid), 10), file))
	if err != nil {
		return nil
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxRead))
	if err != nil {
		return nil
	}
	return b
}
