// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/gpu-gadgets/gpu-gadgets/internal/tracer/overhead"
)

// bareProbes measures the machine's cost of a probe that does nothing.
var bareProbes = []struct {
	name      string
	offset    uint64
	isReturn  bool
	sleepable bool
}{
	{"uprobe at the entry's first instruction", 0, false, false},
	{"uprobe 10 bytes on", probeOffset, false, false},
	{"uprobe 10 bytes on, sleepable", probeOffset, false, true},
	{"uretprobe 10 bytes on", probeOffset, true, false},
	{"uretprobe 10 bytes on, sleepable", probeOffset, true, true},
}

// probeOffset is where ig-gpu probes the driver's entries: after their first comparison,
// which the kernel would have to single-step.
const probeOffset = 10

// pairTimes collects the output of examples/bench, in ns per pair.
func pairTimes(c *child, n int, limit time.Duration) ([]float64, error) {
	lines := make(chan float64, 1024)
	c.listen(func(b []byte) {
		ns, err := strconv.ParseFloat(strings.SplitN(string(b), " ", 2)[0], 64)
		if err == nil {
			select {
			case lines <- ns:
			default:
			}
		}
	})
	defer c.listen(nil)
	var values []float64
	timeout := time.After(limit)
	for first := true; len(values) < n; {
		select {
		case ns := <-lines:
			if !first { // it may have begun before
				values = append(values, ns)
			}
			first = false
		case <-timeout:
			if len(values) < 3 {
				return nil, fmt.Errorf("the workload printed %d times in %v: %s", len(values), limit, c.errors.String())
			}
			return values, nil
		}
	}
	return values, nil
}

// bare measures the probes alone: both functions of a pair are probed, and a
// call is half a pair.
func (b *bench) bare() error {
	w, err := start(nil, b.workload, "-l", b.library, "-n", "1000", "-p", "100000000")
	if err != nil {
		return err
	}
	defer w.stop()
	quiet, err := pairTimes(w, 50, 5*time.Second)
	if err != nil {
		return err
	}
	b.title("An empty probe on this machine, per call", "wall ns", "eBPF ns")
	b.row("no probe", "", number(overhead.Median(quiet)/2), "")
	file, err := link.OpenExecutable(b.library)
	if err != nil {
		return err
	}
	for _, p := range bareProbes {
		var flags uint32
		if p.sleepable {
			flags = unix.BPF_F_SLEEPABLE
		}
		program, err := overhead.EmptyProgram(flags)
		if err != nil {
			return err
		}
		attach := file.UprobeMulti
		if p.isReturn {
			attach = file.UretprobeMulti
		}
		probe, err := attach([]string{"cuMemAlloc_v2", "cuMemFree_v2"}, program,
			&link.UprobeMultiOptions{Offsets: []uint64{p.offset, p.offset}})
		if err != nil {
			program.Close()
			return fmt.Errorf("attach an empty program: %w", err)
		}
		probed, err := pairTimes(w, 50, 3*time.Second)
		stats, errStats := program.Stats()
		probe.Close()
		program.Close()
		if err != nil {
			return err
		}
		if errStats != nil {
			return errStats
		}
		b.row(p.name, "", number((overhead.Median(probed)-overhead.Median(quiet))/2),
			number(float64(stats.Runtime)/float64(max(1, stats.RunCount))))
	}
	return nil
}
