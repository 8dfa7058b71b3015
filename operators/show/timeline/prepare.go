// SPDX-License-Identifier: Apache-2.0

package timeline

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/inspektor-gadget/inspektor-gadget/pkg/datasource"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/operators"

	"github.com/gpu-gadgets/gpu-gadgets/internal/ig"
)

// hostPrograms are the values of --with: the constant that switches them on, and the
// programs (bpf/host/programs.h) with what they are attached to.
var hostPrograms = []struct {
	word, constant string
	programs       [][2]string
}{
	{"cpu", "host_cpu", [][2]string{{"host_switch", "sched_switch"}}},
	{"syscalls", "host_syscalls", [][2]string{{"host_sys_enter", "sys_enter"}, {"host_sys_exit", "sys_exit"}}},
	{"memory", "host_memory", [][2]string{{"host_rss_stat", "rss_stat"}}},
	{"python", "host_python", [][2]string{{"host_sampler", "host_sampler"}}},
}

// pageShiftConstant of bpf/host/memory.h: resident memory is counted in pages.
const pageShiftConstant = "host_page_shift"

// Sizes of maps while they are used, by name. A ring has to hold what comes while we
// are not running: at 20,000 calls a second and 300 bytes each, 16 MiB are 2.7 s. What of it
// was read counts as memory of ig-gpu.
var sizes = map[string]uint32{
	"calls_ring": 16 << 20,
}

var operationSizes = map[string]uint32{"operation_ring": 16 << 20}

// ringMaps are those whose readers wait to be woken (bpf/program/ring_wake.h).
var ringMaps = []string{"calls_ring", "host_ring", "operation_ring", "device_ring"}

const (
	// wakeInterval is for how long events wait in a ring.
	wakeInterval = 50 * time.Millisecond
	// drainLimit is for how long the end of a run waits for its last events.
	drainLimit = 30 * time.Second
)

var hostSizes = map[string]uint32{
	"host_ring":                16 << 20,
	"host_thread_by_tid":       32768,
	"host_resident_by_process": 4096,
}

// parseWith reads the list of --with.
func parseWith(s string) ([]string, error) {
	var known, out []string
	for _, p := range hostPrograms {
		known = append(known, p.word)
	}
	if s == "" {
		return nil, nil
	}
	for word := range strings.SplitSeq(s, ",") {
		switch word = strings.TrimSpace(word); {
		case word == "all":
			out = append(out, known...)
		case slices.Contains(known, word):
			out = append(out, word)
		default:
			return nil, fmt.Errorf("--%s: %q is none of %s, all", paramWith, word, strings.Join(known, ", "))
		}
	}
	slices.Sort(out)
	return slices.Compact(out), nil
}

// eventsOf is the data source with a gadget's calls, and the rings that they come by; nil
// where it has none.
func eventsOf(gc operators.GadgetContext) (datasource.DataSource, map[string]uint32) {
	if ds := gc.GetDataSources()[callEvents]; ds != nil {
		return ds, sizes
	}
	return gc.GetDataSources()[operationEvents], operationSizes
}

// prepare has a gadget send its events, if it has any.
func prepare(gc operators.GadgetContext) error {
	calls, rings := eventsOf(gc)
	if calls == nil {
		return nil
	}
	if err := ig.SetConstant(gc, "timeline_events", true); err != nil {
		return fmt.Errorf("have the gadget send events: %w", err)
	}
	return enlarge(gc, rings)
}

// startHost has the gadget's host programs attached.
func startHost(gc operators.GadgetContext, with []string) error {
	if len(with) == 0 {
		return nil
	}
	if err := enlarge(gc, hostSizes); err != nil {
		return fmt.Errorf("this gadget does not support host activity, or the kernel is older than 6.0: %w", err)
	}
	if err := ig.SetConstant(gc, pageShiftConstant, ig.PageShift()); err != nil {
		return fmt.Errorf("configure the gadget: %w", err)
	}
	for _, p := range hostPrograms {
		if !slices.Contains(with, p.word) {
			continue
		}
		if err := ig.SetConstant(gc, p.constant, true); err != nil {
			return fmt.Errorf("configure the gadget: %w", err)
		}
		for _, program := range p.programs {
			if err := ig.Configure(gc, "programs."+program[0]+".attach_to", program[1]); err != nil {
				return fmt.Errorf("have %s attached: %w", program[0], err)
			}
		}
	}
	return nil
}

func enlarge(gc operators.GadgetContext, sizes map[string]uint32) error {
	for name, size := range sizes {
		spec, err := ig.MapSpec(gc, name)
		if err != nil {
			return err
		}
		spec.MaxEntries = max(spec.MaxEntries, size)
	}
	return nil
}
