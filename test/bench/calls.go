// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/gpu-gadgets/gpu-gadgets/operators/ig"
)

// countsName is the length of a name in a row of the file that SIMCUDA_COUNTS asks for;
// the number of calls follows (examples/simcuda/counts.h).
const countsName = 56

// calls is how often each function of the simulated driver was called so far.
func (t *training) calls() (map[string]uint64, error) {
	b, err := os.ReadFile(filepath.Join(t.counts, strconv.Itoa(t.cmd.Process.Pid)+".counts"))
	if err != nil {
		return nil, fmt.Errorf("read the driver's calls: %w", err)
	}
	calls := map[string]uint64{}
	for row := range slices.Chunk(b, countsName+8) {
		if len(row) == countsName+8 {
			name, _, _ := bytes.Cut(row[:countsName], []byte{0})
			calls[string(name)] = binary.NativeEndian.Uint64(row[countsName:])
		}
	}
	return calls, nil
}

// callGadgets are those that probe functions of the driver.
var callGadgets = []string{"cuda_alloc", "cuda_kernel", "nccl_trace"}

// callTable prints the driver calls of a training step, and how many program runs each
// function means for each gadget; with those that are probed on demand, as long as they
// are.
func (t *training) callTable() error {
	before, err := t.calls()
	if err != nil {
		return err
	}
	n0, _ := t.now()
	time.Sleep(3 * time.Second)
	after, err := t.calls()
	if err != nil {
		return err
	}
	n1, _ := t.now()
	if n1 <= n0 {
		return fmt.Errorf("PyTorch stands still: %s", t.errors.String())
	}
	each := map[string]float64{}
	for name, n := range after {
		if v := float64(n-before[name]) / (n1 - n0); v >= 0.5 {
			each[name] = v
		}
	}
	probes := map[string]map[string]ig.AttachPoint{}
	for _, gadget := range callGadgets {
		points, err := tableOf(gadget)
		if err != nil {
			return err
		}
		probes[gadget] = map[string]ig.AttachPoint{}
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
func runsOf(probes map[string]ig.AttachPoint, name string, calls float64) string {
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
