// SPDX-License-Identifier: Apache-2.0

package torch

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"

	"github.com/inspektor-gadget/inspektor-gadget/pkg/datasource"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/gadget-service/api"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/operators"

	"github.com/gpu-gadgets/gpu-gadgets/internal/ig"
	"github.com/gpu-gadgets/gpu-gadgets/internal/profile"
)

const (
	requestedConstant = "torch_requested"
	requestsMap       = "requests_by_row"
	// spanRows is how many rows there may be with --spans (operators/attach/spans, which sets that later).
	spanRows = 32768
	// oddBlocks and a hundredth of the requests: more is no coincidence of attaching.
	oddBlocks = 16
)

// gpuLibraries have PyTorch's static probe of requests: bpf/torch/requested.h.
var gpuLibraries = []string{"libc10_cuda", "libc10_hip"}

// skipRequests has nothing attached for --waste.
func skipRequests(gc operators.GadgetContext) {
	for _, name := range gpuLibraries {
		ig.SkipLibrary(gc, name)
	}
}

// isOn reads the value of a switch.
func isOn(name, value string) (bool, error) {
	if value == "" {
		return false, nil
	}
	on, err := strconv.ParseBool(value)
	if err != nil {
		return false, fmt.Errorf("--%s: want true or false, not %q", name, value)
	}
	return on, nil
}

// addWaste adds what is lost in the pools by line: by rounding, which the gadget counts, and in
// segments that a line's blocks keep, which is read from the table of live blocks.
func (i *instance) addWaste(gc operators.GadgetContext, value string) error {
	on, err := isOn(paramWaste, value)
	if err != nil {
		return err
	}
	if !on {
		skipRequests(gc)
		return nil
	}
	if err := ig.SetConstant(gc, requestedConstant, true); err != nil {
		return fmt.Errorf("--%s: configure the gadget: %w", paramWaste, err)
	}
	if err := enlargeRequests(gc); err != nil {
		return fmt.Errorf("--%s: %w", paramWaste, err)
	}
	if err := i.watchWitness(gc); err != nil {
		return err
	}
	ds := gc.GetDataSources()["allocs"]
	if ds == nil {
		return nil
	}
	from, err := fieldsOf(ds, "process", "stack_id", "device", "kind", "span_id")
	if err != nil {
		return err
	}
	field, err := ds.AddField("fragmented_bytes", api.Kind_Uint64, datasource.WithAnnotations(map[string]string{
		"description":    "Unused bytes of segments in which the row's tensors are, in proportion to what they hold there; 0 if some of the process's tensors were sampled (--waste)",
		"columns.hidden": "true",
	}))
	if err != nil {
		return fmt.Errorf("add field fragmented_bytes to %s: %w", ds.Name(), err)
	}
	return ds.Subscribe(func(_ datasource.DataSource, d datasource.Data) error {
		kind, _ := from["kind"].String(d)
		if kind != profile.KindTensor {
			return nil
		}
		process, _ := from["process"].Uint64(d)
		var o owner
		o.stack, _ = from["stack_id"].Uint64(d)
		o.device, _ = from["device"].Int32(d)
		text, _ := from["span_id"].String(d)
		o.span, _ = strconv.ParseUint(text, 16, 64) // 0: none
		found, err := i.cuts.fragmentsOf(process)
		if err != nil {
			i.cuts.logOnce(gc, err)
			return nil // an error would keep the row from other subscribers
		}
		return field.PutUint64(d, found[o])
	}, subscription)
}

// enlargeRequests makes room for the requests of all rows, without a stack and of spans, too: the map takes memory as it
// is used.
func enlargeRequests(gc ig.Context) error {
	requests, err := ig.MapSpec(gc, requestsMap)
	if err != nil {
		return err
	}
	entries := uint32(spanRows)
	for _, name := range []string{"rows_by_stack", "unknown_rows"} {
		rows, err := ig.MapSpec(gc, name)
		if err != nil {
			return err
		}
		entries += rows.MaxEntries
	}
	requests.MaxEntries = max(requests.MaxEntries, entries)
	return nil
}

// isAnySampled reports whether a block stands for others, too: its bytes are then no multiple of
// those of the smallest block, as a rule. The blocks that it stands for are not known.
func isAnySampled(blocks []block) bool {
	return slices.ContainsFunc(blocks, func(b block) bool { return (b.end-b.start)%smallestBlock != 0 })
}

// fragmentsOf are those of the blocks of a process, by owner. nil: blocks are sampled.
func (c *cuts) fragmentsOf(process uint64) (map[owner]uint64, error) {
	return c.fragments.get(c, process, func(p *lay) map[owner]uint64 {
		if isAnySampled(p.blocks) {
			return nil
		}
		return fragments(p.areas, p.blocks)
	})
}

// witness compares PyTorch's two accounts of its blocks.
type witness struct {
	mu       sync.Mutex
	reported map[uint64]bool // processes
}

// see returns what to report of a pool's requests, once for each process.
func (w *witness) see(process, pid, requests, odd uint64) string {
	if odd < oddBlocks || odd < (requests+odd)/100 {
		return ""
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.reported[process] || len(w.reported) >= maxQuiet {
		return ""
	}
	if w.reported == nil {
		w.reported = map[uint64]bool{}
	}
	w.reported[process] = true
	return fmt.Sprintf("torch: PyTorch's two accounts of process %d disagree: of %d requests (pytorch:malloc), %d are not for the block that was reported just before, or are larger (odd_blocks); its rounding_bytes are too low", pid, requests+odd, odd)
}

// watchWitness adds to the pools which share of the blocks rounding makes, and reports where the
// two witnesses disagree.
func (i *instance) watchWitness(gc operators.GadgetContext) error {
	ds := gc.GetDataSources()[poolsSource]
	if ds == nil {
		return nil
	}
	from, err := fieldsOf(ds, "process", "proc.pid", "requested_blocks", "requested_bytes", "rounding_bytes", "odd_blocks")
	if err != nil {
		return err
	}
	rounded, err := ds.AddField("rounded", api.Kind_String, datasource.WithAnnotations(map[string]string{
		"description":   "Fraction of the allocated bytes that rounding added, since attach; empty: no request was seen",
		"columns.width": "7", "columns.alignment": "right", "columns.fixed": "true",
	}))
	if err != nil {
		return fmt.Errorf("add field rounded to %s: %w", ds.Name(), err)
	}
	var w witness
	return ds.Subscribe(func(_ datasource.DataSource, d datasource.Data) error {
		number := func(name string) uint64 {
			n, _ := from[name].Uint64(d)
			return n
		}
		pid, _ := from["proc.pid"].Uint32(d)
		if text := w.see(number("process"), uint64(pid), number("requested_blocks"), number("odd_blocks")); text != "" {
			gc.Logger().Warn(text)
		}
		if number("requested_blocks") == 0 {
			return nil
		}
		extra := number("rounding_bytes")
		return errors.Join(rounded.PutString(d, profile.FormatShare(extra, number("requested_bytes")+extra)))
	}, subscription)
}
