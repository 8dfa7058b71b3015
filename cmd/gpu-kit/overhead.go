// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"math"

	"github.com/gpu-gadgets/gpu-gadgets/cmd/gpu-kit/internal/lockstep"
	"github.com/gpu-gadgets/gpu-gadgets/cmd/gpu-kit/internal/report"
	"github.com/gpu-gadgets/gpu-gadgets/internal/tracer/overhead"
)

const (
	// timedCalls is for one of the repeats of a time, of which the workload takes the
	// median. A real cuMemAlloc_v2 takes microseconds, so all of them are below a second.
	timedCalls = 500
	// boundCall is the time that a gadget may add to a call compared with empty programs, in
	// ns: the targets of docs/performance.md, 2 µs for a pair of calls and 1 µs for a stack
	// that was seen before.
	boundCall = 3000.0
	// boundLoss is the part of a busy GPU's throughput that a gadget may take, in percent.
	boundLoss = 0.5
	// spins are the kernels of one measurement, of a millisecond each; pairs how often it
	// is done alone and traced, in turns.
	spins, pairs = 300, 5
)

// overhead measures calls on the clock.
func (k *kit) overhead(ctx context.Context, s *report.Step) error {
	for _, c := range []struct{ gadget, calls string }{{"cuda_alloc", "alloc"}, {"cuda_kernel", "launch"}} {
		if err := k.overheadOf(ctx, s, c.gadget, c.calls); err != nil {
			return fmt.Errorf("%s: %w", c.gadget, err)
		}
	}
	return nil
}

func (k *kit) overheadOf(ctx context.Context, s *report.Step, gadget, calls string) error {
	w, err := k.workload(ctx)
	if err != nil {
		return err
	}
	defer w.Stop()
	name := map[string]string{"alloc": "a pair of cuMemAlloc_v2 and cuMemFree_v2", "launch": "a launch"}[calls]
	measure := func() (float64, error) {
		a, err := w.Must(commandLimit, "time %s %d", calls, timedCalls)
		return a.Real("ns"), err
	}
	before, err := measure()
	if err != nil {
		return err
	}
	remove, err := overhead.AttachEmpty(w.PID, k.points[gadget])
	if err != nil {
		return err
	}
	empty, err := measure()
	remove()
	if err != nil {
		return err
	}
	run, stop, err := k.trace(ctx, w.PID, gadget, driverLibrary)
	if err != nil {
		return err
	}
	defer stop()
	traced, err := measure()
	if err != nil {
		return err
	}
	stop()
	after, err := measure()
	if err != nil {
		return err
	}
	alone := (before + after) / 2
	s.Record(name+": alone, ns", int(alone), true)
	s.Record(name+": added by empty programs, ns", int(empty-alone), true)
	s.AtMost(name+": added by "+gadget+" beside these", "%.0f ns", boundCall, traced-empty)
	source := map[string]string{"alloc": "allocs", "launch": "calls"}[calls]
	field := map[string]string{"alloc": "alloc_objects", "launch": "calls"}[calls]
	counted := uint64(0)
	for _, r := range run.Table(source) {
		if calls == "alloc" || r.Text("operation") == "launch" {
			counted += r.Number(field)
		}
	}
	const repeats = 21 // of the workload
	s.Equal(name+": calls that were counted meanwhile", repeats*timedCalls, counted)
	return nil
}

// throughput measures the work done by a GPU that is always busy.
func (k *kit) throughput(ctx context.Context, s *report.Step) error {
	w, err := k.workload(ctx)
	if err != nil {
		return err
	}
	defer w.Stop()
	n, work := spins, uint64(1)
	if !k.isSimulated {
		a, err := w.Must(commandLimit, "calibrate")
		if err != nil {
			return err
		}
		if work = a.Number("work"); work == 0 {
			return errNotHere("no kernel takes a millisecond here")
		}
	}
	for _, gadget := range []string{"cuda_alloc", "cuda_kernel", "nccl_trace", "py_stack"} {
		loss, err := k.lossOf(ctx, w, gadget, work, n)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			s.Equal(gadget+": measured", "yes", err)
			continue
		}
		if k.isSimulated { // the loop was run, but no GPU was busy
			s.Impossible(gadget+": throughput lost", simulated)
			continue
		}
		s.AtMost(gadget+": throughput lost", "%.2f %%", boundLoss, loss)
	}
	return nil
}

// lossOf is the throughput lost to a gadget, in percent: the median of several pairs of
// runs, untraced and traced in turns, so that changes of the clock rate affect both.
func (k *kit) lossOf(ctx context.Context, w *lockstep.Workload, gadget string, work uint64, n int) (float64, error) {
	var losses []float64
	rounds, library := pairs, driverLibrary
	if gadget == "py_stack" {
		library = "" // it samples, and attaches to none
	}
	if k.isSimulated {
		rounds = 1
	}
	for range rounds {
		alone, err := w.Must(commandLimit, "spin %d %d", work, n)
		if err != nil {
			return math.NaN(), err
		}
		_, stop, err := k.trace(ctx, w.PID, gadget, library)
		if err != nil {
			return math.NaN(), err
		}
		traced, err := w.Must(commandLimit, "spin %d %d", work, n)
		stop()
		if err != nil {
			return math.NaN(), err
		}
		losses = append(losses, 100*(1-traced.Real("per_second")/alone.Real("per_second")))
	}
	return overhead.Median(losses), nil
}
