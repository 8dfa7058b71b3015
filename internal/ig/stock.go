// SPDX-License-Identifier: Apache-2.0

package ig

import (
	"fmt"

	"github.com/gpu-gadgets/gpu-gadgets/internal/ig/attachpoint"
)

// RemoveStock removes the enter_SYMBOL and exit_SYMBOL programs of the points from the
// programs that ig will load, and keeps it from attaching them: an operator that attaches
// to the points itself does not need them. Call it in Instantiate, before
// containers.Follow. Programs that a map of the gadget refers to stay.
//
// They are hundreds, and the kernel frees each program by a work item of its own. Linux 6.9
// and later can lock up for good when more than a thousand of these wait on one processor
// (WQ_DFL_ACTIVE): each waits for the lock of the JIT's memory, whose owner may wait for a
// work item behind them (bpf_prog_pack_alloc, set_memory_rox, vm_unmap_aliases,
// __purge_vmap_area_lazy). Seen with 6.18, when several gadgets with all their programs
// ended at once.
func RemoveStock(gc Context, points []attachpoint.Point) error {
	if err := DisableStock(gc, points); err != nil {
		return err
	}
	spec, err := specOf(gc)
	if err != nil {
		return fmt.Errorf("remove programs that are not attached: %w", err)
	}
	inMap := map[string]bool{}
	for _, m := range spec.Maps {
		for _, entry := range m.Contents {
			if name, ok := entry.Value.(string); ok {
				inMap[name] = true
			}
		}
	}
	for _, p := range points {
		for _, name := range []string{stockEnter + p.Symbol, stockExit + p.Symbol} {
			if !inMap[name] {
				delete(spec.Programs, name)
			}
		}
	}
	return nil
}
