// SPDX-License-Identifier: Apache-2.0

package sink

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/inspektor-gadget/inspektor-gadget/pkg/logger"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/operators"

	"github.com/gpu-gadgets/gpu-gadgets/internal/format/file"
	"github.com/gpu-gadgets/gpu-gadgets/internal/stack"
	"github.com/gpu-gadgets/gpu-gadgets/operators/judge/ranks"
)

// dumpLimit bounds how long a dump may take, and with it the end of a run.
const dumpLimit = 20 * time.Second

// markDumps write the stacks of all threads beside the marks at a function. The zero value, and
// nil, write none.
type markDumps struct {
	dump   ranks.Dumper
	image  string // of the gadget that runs
	log    logger.Logger
	mu     sync.Mutex // held while one is taken
	writes sync.WaitGroup
}

// newMarkDumps returns nil where no dumps were requested.
func (i *instance) newMarkDumps(gc operators.GadgetContext) (*markDumps, error) {
	if i.values[paramDump] != "true" {
		return nil, nil
	}
	if i.dump == nil {
		return nil, fmt.Errorf("--%s: this program cannot run py_stack", paramDump)
	}
	return &markDumps{dump: i.dump, image: gc.ImageName(), log: gc.Logger()}, nil
}

// write takes a dump of the processes in the background: it needs a second, and the rows must not
// wait.
func (d *markDumps) write(path string, pids []uint32) {
	if d == nil {
		return
	}
	if !d.mu.TryLock() {
		d.log.Warnf("sink: --%s: the dump before is still being taken, there is none at %s", paramDump, path)
		return
	}
	d.writes.Go(func() {
		defer d.mu.Unlock()
		// Not the run's: its end would leave the last dump out.
		ctx, cancel := context.WithTimeout(context.Background(), dumpLimit)
		defer cancel()
		threads, err := d.dump(ctx, d.image, pids)
		if err == nil {
			err = writeDump(path, threads)
		}
		if err != nil {
			d.log.Errorf("sink: --%s: %v", paramDump, err)
			return
		}
		d.log.Infof("sink: stacks of %d threads: %s", len(threads), path)
	})
}

// wait until what has begun is written.
func (d *markDumps) wait() {
	if d != nil {
		d.writes.Wait()
	}
}

func writeDump(path string, threads map[ranks.Thread]ranks.Trace) error {
	return file.Write(path, func(w io.Writer) error { return formatDump(w, threads) })
}

// formatDump writes each thread with its frames, the innermost first.
func formatDump(w io.Writer, threads map[ranks.Thread]ranks.Trace) error {
	order := slices.SortedFunc(maps.Keys(threads), func(a, b ranks.Thread) int {
		return cmp.Or(cmp.Compare(a.PID, b.PID), cmp.Compare(a.TID, b.TID))
	})
	for n, t := range order {
		if n > 0 {
			if _, err := fmt.Fprintln(w); err != nil {
				return err
			}
		}
		trace := threads[t]
		state := ""
		switch {
		case trace.Syscall != "":
			state = ", waits in " + trace.Syscall
		case trace.WaitsForGIL:
			state = ", waits for the GIL"
		}
		if _, err := fmt.Fprintf(w, "process %d thread %d%s\n", t.PID, t.TID, state); err != nil {
			return err
		}
		for _, frame := range trace.Stack {
			if frame.Kind != stack.KindPython {
				continue
			}
			if _, err := fmt.Fprintln(w, "    "+frame.Label()); err != nil {
				return err
			}
		}
	}
	return nil
}
