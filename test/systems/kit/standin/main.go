// SPDX-License-Identifier: Apache-2.0

// Command standin answers like ig-gpu, with the counts of the simulated driver's journal
// instead of those of eBPF programs. It tests the kit's comparisons without any tracing:
// STANDIN_WRONG=1 adds one to every figure, and every verdict of the kit that depends on
// it must change.
package main

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/gpu-gadgets/gpu-gadgets/examples/simcuda/journal"
)

func main() {
	if err := run(os.Args); err != nil {
		fmt.Fprintln(os.Stderr, "Error:", err)
		os.Exit(1)
	}
}

type row map[string]any

// wrong is added to every figure.
func wrong() uint64 {
	n, _ := strconv.ParseUint(os.Getenv("STANDIN_WRONG"), 10, 64)
	return n
}

// run is `ig-gpu run GADGET --host --pid PID -o …`: attached at once, rows at SIGINT.
func run(args []string) error {
	if len(args) < 6 {
		return fmt.Errorf("unexpected arguments %q", args)
	}
	gadget := args[2]
	pid, err := strconv.Atoi(args[5])
	if err != nil {
		return err
	}
	ends := make(chan os.Signal, 1)
	signal.Notify(ends, syscall.SIGINT)
	dir := os.Getenv("SIMCUDA_JOURNAL")
	if gadget == "nccl_trace" {
		dir = os.Getenv("SIMNCCL_JOURNAL")
	}
	before, err := records(dir, pid)
	if err != nil {
		return err
	}
	since := len(before.Records)
	printed := json.NewEncoder(os.Stdout)
	for _, library := range []string{"/libcuda.so.1", "/libnccl.so.2"} {
		if err := printed.Encode(row{"pid": pid, "status": "attached", "path": library}); err != nil {
			return err
		}
	}
	<-ends
	after, err := records(dir, pid)
	if err != nil {
		return err
	}
	switch gadget {
	case "cuda_alloc":
		return memory(printed, after, since)
	case "cuda_kernel":
		return launches(printed, after, since)
	case "nccl_trace":
		return collectives(printed, after, since)
	}
	return nil
}

// records of the process image that runs now; a process that made no call has none.
func records(dir string, pid int) (*journal.Journal, error) {
	paths, err := filepath.Glob(filepath.Join(dir, fmt.Sprintf("%d-*.journal", pid)))
	if err != nil || len(paths) == 0 {
		return &journal.Journal{}, err
	}
	return journal.ReadFile(paths[len(paths)-1])
}

// reading prints a reading of a data source, as ig-gpu does.
func reading(out *json.Encoder, source string, table ...row) error {
	for _, r := range table {
		r["type"], r["time"] = source, "now"
		if err := out.Encode(r); err != nil {
			return err
		}
	}
	return nil
}

func memory(out *json.Encoder, j *journal.Journal, since int) error {
	type key struct {
		kind   journal.Kind
		device int32
	}
	type sums struct{ allocBytes, allocObjects, freedBytes, freedObjects uint64 }
	live, rows, late, held := map[uint64]journal.Record{}, map[key]*sums{}, uint64(0), uint64(0)
	of := func(r journal.Record) *sums {
		k := key{r.Kind, r.Device}
		if rows[k] == nil {
			rows[k] = &sums{}
		}
		return rows[k]
	}
	for i, r := range j.Records {
		switch {
		case r.Type == journal.Alloc && i >= since:
			live[r.Seq] = r
			of(r).allocBytes += r.Size
			of(r).allocObjects++
			held += r.Size
		case r.Type == journal.Free && i >= since:
			a, ok := live[r.AllocSeq]
			if !ok {
				late++
				continue
			}
			of(a).freedBytes += a.Size
			of(a).freedObjects++
			held -= a.Size
		case r.Type == journal.Call && r.Result == journal.OutOfMemory && i >= since:
			if err := out.Encode(row{"api": j.APIName(r.API), "error": "CUDA_ERROR_OUT_OF_MEMORY",
				"requested_bytes": r.Size + wrong(), "inuse_bytes": held}); err != nil {
				return err
			}
		}
	}
	var table []row
	for k, s := range rows {
		table = append(table, row{"kind": k.kind.String(), "device": k.device,
			"alloc_bytes": s.allocBytes + wrong(), "alloc_objects": s.allocObjects + wrong(),
			"freed_bytes": s.freedBytes, "freed_objects": s.freedObjects,
			"inuse_bytes": s.allocBytes - s.freedBytes + wrong()})
	}
	if err := reading(out, "allocs", table...); err != nil {
		return err
	}
	return drops(out, row{"reason": "freed_before_attach", "count": late})
}

func drops(out *json.Encoder, all ...row) error {
	return reading(out, "drops", append(all, row{"reason": "rows_full", "count": wrong()})...)
}

func launches(out *json.Encoder, j *journal.Journal, since int) error {
	names := map[uint64]string{}
	text, _ := os.ReadFile(filepath.Join(os.Getenv("SIMCUDA_JOURNAL"), "kernels"))
	for _, name := range strings.Fields(string(text)) {
		h := fnv.New64a()
		h.Write([]byte(name))
		names[h.Sum64()] = name
	}
	var table []row
	for i, r := range j.Records {
		api := j.APIName(r.API)
		if i < since || r.Type != journal.Work || !strings.Contains(api, "Launch") {
			continue
		}
		operation := "launch"
		switch {
		case r.Captured:
			operation = "captured"
		case strings.HasPrefix(api, "cuGraph"):
			operation = "graph"
		}
		table = append(table, row{"api": api, "operation": operation, "kernel": names[r.Cause], "calls": 1 + wrong(),
			"nodes": r.AllocSeq, "calls_error": 0})
	}
	if err := reading(out, "calls", table...); err != nil {
		return err
	}
	return drops(out)
}

func collectives(out *json.Encoder, j *journal.Journal, since int) error {
	var table []row
	for i, r := range j.Records {
		name := strings.TrimPrefix(j.APIName(r.API), "nccl")
		if i >= since && r.Type == journal.Collective && !strings.HasPrefix(name, "Comm") {
			table = append(table, row{"op": name, "calls": 1 + wrong(), "class_text": ""})
		}
	}
	if err := reading(out, "operations", table...); err != nil {
		return err
	}
	return drops(out)
}
