// SPDX-License-Identifier: Apache-2.0

// Package selection implements `--pid` for gadgets with the maps of
// bpf/process/selection.h: only the named processes and their descendants are traced. The
// gadget's own programs add children that are created from then on.
package selection

import (
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/cilium/ebpf"

	"github.com/gpu-gadgets/gpu-gadgets/internal/process/procmaps"
)

const (
	// InForceMap and SelectedMap are the maps of bpf/process/selection.h: [0] is 1
	// while a selection is in force, and tgid → 1.
	InForceMap  = "selection_in_force"
	SelectedMap = "selected_by_tgid"

	// maxPIDs bounds a user's list.
	maxPIDs = 1024
)

// Parse reads a list of process ids with commas, spaces or newlines between them, as
// pgrep prints it; an empty one is nil.
func Parse(s string) ([]uint32, error) {
	if s == "" {
		return nil, nil
	}
	var out []uint32
	for part := range strings.SplitSeq(strings.TrimSpace(s), ",") {
		pids := strings.Fields(part)
		if len(pids) == 0 {
			return nil, fmt.Errorf("%q in %q is not a process id", part, s)
		}
		for _, text := range pids {
			pid, err := strconv.ParseUint(text, 10, 31)
			if err != nil || pid == 0 {
				return nil, fmt.Errorf("%q is not a process id", text)
			}
			if out = append(out, uint32(pid)); len(out) > maxPIDs {
				return nil, fmt.Errorf("more than %d process ids: name their parent, children are traced with it", maxPIDs)
			}
		}
	}
	return out, nil
}

// Restrict puts a selection into force. The programs must be attached already: they add
// children that are created while descendants are listed. The error is procmaps.ErrGone
// for a process that does not exist.
func Restrict(inForce, selected *ebpf.Map, procfs string, pids []uint32) error {
	for _, pid := range pids {
		if _, err := procmaps.StartTime(procfs, pid); err != nil {
			return err
		}
		if err := selected.Put(pid, uint32(1)); err != nil {
			return fmt.Errorf("select process %d: %w", pid, err)
		}
	}
	if err := inForce.Put(uint32(0), uint32(1)); err != nil {
		return fmt.Errorf("put the selection into force: %w", err)
	}
	descendants, err := Descendants(procfs, pids)
	if err != nil {
		return err
	}
	for _, pid := range descendants {
		if err := selected.Put(pid, uint32(1)); err != nil {
			return fmt.Errorf("select process %d: %w", pid, err)
		}
	}
	return nil
}

// Descendants lists the children of the processes, their children and so on, in
// no order. A process that ends meanwhile may be missing.
func Descendants(procfs string, pids []uint32) ([]uint32, error) {
	entries, err := os.ReadDir(procfs)
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	children := map[uint32][]uint32{}
	for _, e := range entries {
		pid, err := strconv.ParseUint(e.Name(), 10, 31)
		if err != nil {
			continue
		}
		if p := procmaps.Parent(procfs, uint32(pid)); p != 0 {
			children[p] = append(children[p], uint32(pid))
		}
	}
	seen := map[uint32]bool{}
	for _, pid := range pids {
		seen[pid] = true
	}
	var out []uint32
	queue := pids
	for len(queue) > 0 {
		var next []uint32
		for _, pid := range queue {
			for _, child := range children[pid] {
				if !seen[child] {
					seen[child] = true
					next = append(next, child)
				}
			}
		}
		out = append(out, next...)
		queue = next
	}
	return out, nil
}
