// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/gpu-gadgets/gpu-gadgets/examples/simcuda/counts"
	"github.com/gpu-gadgets/gpu-gadgets/internal/ig/attachpoint"
)

// callGadgets are those that probe functions of the driver.
var callGadgets = []string{"cuda_alloc", "cuda_kernel", "nccl_trace"}

// callTable prints the driver calls of a training step, and how many program runs each
// function means for each gadget; with those that are probed on demand, as long as they
// are.
func (t *training) callTable() error {
	before, err := counts.Read(t.counts, t.cmd.Process.Pid)
	if err != nil {
		return err
	}
	n0, _ := t.now()
	time.Sleep(3 * time.Second)
	after, err := counts.Read(t.counts, t.cmd.Process.Pid)
	if err != nil {
		return err
	}
	n1, _ := t.now()
	if n1 <= n0 {
		return fmt.Errorf("PyTorch stands still: %s", t.errors.String())
	}
	each := map[string]float64{}
	for name, n := range after.Since(before) {
		if v := float64(n) / (n1 - n0); v >= 0.5 {
			each[name] = v
		}
	}
	probes := map[string]map[string]attachpoint.Point{}
	for _, gadget := range callGadgets {
		points, err := tableOf(gadget)
		if err != nil {
			return err
		}
		probes[gadget] = map[string]attachpoint.Point{}
		for _, p := range points {
			if p.Library == "libcuda" {
				probes[gadget][p.Symbol] = p
			}
		}
	}
	fmt.Printf("\nDriver calls of a training step, and the program runs that they mean\n  %-32s %10s", "", "calls")
	for _, gadget := range callGadgets {
		fmt.Printf(" %20s", gadget)
	}
	fmt.Println()
	names := slices.SortedFunc(maps.Keys(each), func(a, b string) int { return cmp.Compare(each[b], each[a]) })
	for _, name := range names {
		fmt.Printf("  %-32s %10.1f", name, each[name])
		for _, gadget := range callGadgets {
			fmt.Printf(" %20s", runsOf(probes[gadget], name, each[name]))
		}
		fmt.Println()
	}
	return nil
}

// runsOf are the program runs that a function's calls mean.
func runsOf(probes map[string]attachpoint.Point, name string, calls float64) string {
	p, ok := probes[name]
	if !ok {
		return "-"
	}
	if p.Exit {
		calls *= 2
	}
	if p.OnDemand() {
		return fmt.Sprintf("on demand: 0 (%.0f)", calls)
	}
	return fmt.Sprintf("%.0f", calls)
}
