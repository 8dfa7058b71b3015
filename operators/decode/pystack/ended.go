// SPDX-License-Identifier: Apache-2.0

package pystack

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cilium/ebpf"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/operators"

	"github.com/gpu-gadgets/gpu-gadgets/internal/ig"
	"github.com/gpu-gadgets/gpu-gadgets/internal/process/procmaps"
)

// endInterval is how often a profile checks whether a process of --pid is left.
const endInterval = time.Second

// watchEnd ends a profile when all processes that it is restricted to have ended.
func watchEnd(ctx context.Context, gc operators.GadgetContext, selected *ebpf.Map, procfs string) {
	tick := time.NewTicker(endInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		isLeft, err := isAnyLeft(selected, procfs)
		if err != nil {
			gc.Logger().Warnf("the run does not end with the processes of --%s: %v", paramPID, err)
			return
		}
		if !isLeft {
			ig.EndWithProcesses(gc, paramPID)
			return
		}
	}
}

// isAnyLeft reports whether a process that is selected has not ended: the gadget adds children, and removes what has
// exited. The map alone is not enough: a descendant that exits while descendants are listed is selected after its exit.
func isAnyLeft(selected *ebpf.Map, procfs string) (bool, error) {
	var pid, value uint32
	all := selected.Iterate()
	for all.Next(&pid, &value) {
		if !procmaps.HasEnded(procfs, pid, 0) {
			return true, nil
		}
	}
	switch err := all.Err(); {
	case errors.Is(err, ebpf.ErrIterationAborted): // it changes all the time
		return true, nil
	case err != nil:
		return false, fmt.Errorf("read the selected processes: %w", err)
	}
	return false, nil
}
