// SPDX-License-Identifier: Apache-2.0

package verb

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/inspektor-gadget/inspektor-gadget/pkg/datasource"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/operators"

	"github.com/gpu-gadgets/gpu-gadgets/cmd/ig-gpu/internal/engine"
	"github.com/gpu-gadgets/gpu-gadgets/cmd/ig-gpu/internal/targets"
)

// recorded has the state of a recording and its processes.
type recorded struct {
	procfs string
	of     recording
	vendor vendor
	pids   []uint32

	mu       sync.Mutex
	attached time.Time
	isAny    bool
}

// operators notice when the recording begins, and its first row.
func (r *recorded) operators() []operators.DataOperator {
	out := []operators.DataOperator{engine.Started(func(operators.GadgetContext) error {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.attached = time.Now()
		return nil
	})}
	for _, source := range r.of.rows {
		out = append(out, engine.Rows(source, func(_ datasource.DataSource, rows []datasource.Data) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.isAny = r.isAny || len(rows) > 0
		}))
	}
	return out
}

// maxNamed bounds the processes that are named one by one.
const maxNamed = 5

// notLoaded names the processes that have not loaded what is traced, nor has a descendant of theirs.
func (r *recorded) notLoaded() (texts []string) {
	has, library := hasLibrary(r.vendor.library), r.vendor.library+".so"
	switch r.of.name {
	case "cpu":
		return nil // py_stack fails without Python
	case "collectives":
		has, library = hasCollectives, "NCCL"
	default:
		if r.vendor == nvidia {
			library += ".1" // as loaders and NVIDIA's manual call it
		}
	}
	for _, pid := range r.pids {
		mayHave := func(pid uint32) bool { // a process that cannot be read may
			libraries, err := targets.Libraries(r.procfs, pid)
			return err != nil || has(libraries)
		}
		name := fmt.Sprintf("process %d (%s)", pid, brief(targets.Command(r.procfs, pid), 60))
		switch {
		case isKernelThread(r.procfs, pid):
			texts = append(texts, name+" is a kernel thread, which uses no GPU")
		case !slices.ContainsFunc(family(r.procfs, pid), mayHave):
			texts = append(texts, name+" has not loaded "+library)
		}
	}
	return texts
}

// warn says before the recording what it does not record yet.
func (r *recorded) warn(w io.Writer) {
	texts := r.notLoaded()
	for _, text := range texts[:min(len(texts), maxNamed)] {
		if strings.Contains(text, " has not ") {
			text += ": nothing is recorded until it does"
		}
		fmt.Fprintf(w, "Warning: %s\n", text)
	}
	if more := len(texts) - maxNamed; more > 0 {
		fmt.Fprintf(w, "Warning: the same applies to %d more\n", more)
	}
}

// conclude names the processes that ended meanwhile, and reports a recording of nothing.
func (r *recorded) conclude(w io.Writer, ended map[uint32]time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, pid := range r.pids {
		if at, ok := ended[pid]; ok && !r.attached.IsZero() {
			fmt.Fprintf(w, "Process %d ended %s into the recording\n", pid, tenths(max(at.Sub(r.attached), 0)))
		}
	}
	if r.isAny {
		return
	}
	why := r.notLoaded()
	if len(why) < len(r.pids) || len(ended) > 0 {
		why = []string{"no process " + r.of.none}
	}
	if more := len(why) - maxNamed; more > 0 {
		why = append(why[:maxNamed], fmt.Sprintf("the same applies to %d more", more))
	}
	fmt.Fprintf(w, "Warning: nothing was recorded: %s\n", strings.Join(why, "; "))
}
