// SPDX-License-Identifier: Apache-2.0

package verb

import (
	"fmt"
	"slices"

	"github.com/gpu-gadgets/gpu-gadgets/cmd/ig-gpu/internal/targets"
	"github.com/gpu-gadgets/gpu-gadgets/internal/process/procmaps"
	"github.com/gpu-gadgets/gpu-gadgets/internal/process/selection"
)

// vendor is whose GPUs a process uses: the library that it is known by, and the gadgets that
// follow it.
type vendor struct {
	library          string
	memory, launches string
	driver           string // who counts the memory of processes
	source           string // where the count is read
}

var (
	nvidia = vendor{"libcuda", "cuda_alloc", "cuda_kernel", "NVIDIA's driver", "NVML"}
	amd    = vendor{"libamdhip64", "hip_alloc", "hip_kernel", "AMD's driver", "KFD"}
)

// gadget is the vendor's one for NVIDIA's.
func (v vendor) gadget(name string) string {
	switch name {
	case nvidia.memory:
		return v.memory
	case nvidia.launches:
		return v.launches
	}
	return name
}

// family are processes and their descendants, which the gadgets trace with them; the processes
// alone, where descendants cannot be listed.
func family(procfs string, pids ...uint32) []uint32 {
	descendants, _ := selection.Descendants(procfs, pids)
	return slices.Concat(pids, descendants)
}

// vendorOf returns the vendor of processes and their descendants, or without any, of those on the machine: NVIDIA where
// they have neither's library mapped. The gadgets of one run are of one vendor.
func vendorOf(procfs string, pids []uint32) (vendor, error) {
	if len(pids) == 0 {
		found, err := targets.Find(procfs)
		isHIP := func(p targets.Process) bool { return procmaps.IsLibrary(p.Library, amd.library) }
		if err == nil && len(found) > 0 && !slices.ContainsFunc(found, func(p targets.Process) bool { return !isHIP(p) }) {
			return amd, nil
		}
		return nvidia, nil
	}
	var hip, other []uint32
	for _, pid := range pids {
		if slices.ContainsFunc(family(procfs, pid), func(pid uint32) bool {
			libraries, _ := targets.Libraries(procfs, pid) // none of one that has ended
			return usesHIP(libraries)
		}) {
			hip = append(hip, pid)
		} else {
			other = append(other, pid)
		}
	}
	switch {
	case len(hip) == 0:
		return nvidia, nil
	case len(other) == 0:
		return amd, nil
	}
	return nvidia, fmt.Errorf("process %s uses AMD's HIP and %s does not: name those of one vendor", joined(hip), joined(other))
}
