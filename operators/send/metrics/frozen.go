// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/gpu-gadgets/gpu-gadgets/internal/export/label"
	"github.com/gpu-gadgets/gpu-gadgets/internal/process/frozen"
	"github.com/gpu-gadgets/gpu-gadgets/internal/profile"
)

// frozenProcesses is the source of the metric of processes that hold GPU memory and do not move
// any more. Each scrape and push reads their state, one at a time.
type frozenProcesses struct {
	store  *Store
	driver func() map[uint32]int64 // as in idleHolders

	looking    sync.Mutex
	standstill frozen.Standstill

	mu   sync.Mutex
	last []frozen.Still
}

// Instrument implements Source.
func (f *frozenProcesses) Instrument(meter metric.Meter) (func(), error) {
	still, err := meter.Float64ObservableGauge("gpu.frozen_process.time", metric.WithUnit("s"),
		metric.WithDescription("How long the main thread of a process that holds GPU memory has not run, by what it waits for"))
	if err != nil {
		return nil, fmt.Errorf("metric gpu.frozen_process.time: %w", err)
	}
	registration, err := meter.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		all, processes := f.look()
		for _, s := range all {
			p := processes[s.PID] // with its pod, where rows have it
			p.PID, p.Comm = s.PID, s.Comm
			o.ObserveFloat64(still, s.For.Seconds(), metric.WithAttributes(append(label.Process(p),
				attribute.String("waits_for", s.WaitsFor), attribute.String("circle", strconv.FormatBool(s.Circle != nil)))...))
		}
		return nil
	}, still)
	if err != nil {
		return nil, fmt.Errorf("metric of frozen processes: %w", err)
	}
	return func() { _ = registration.Unregister() }, nil
}

// look returns the processes that do not run; what the last look has found while another one is in progress.
func (f *frozenProcesses) look() ([]frozen.Still, map[uint32]profile.Process) {
	holders, processes := holdersOf(f.store, f.driver)
	var pids []uint32
	for pid, h := range holders {
		if h.Bytes > 0 {
			pids = append(pids, pid)
		}
	}
	if f.looking.TryLock() {
		defer f.looking.Unlock()
		all := f.standstill.Look(time.Now(), pids)
		f.mu.Lock()
		defer f.mu.Unlock()
		f.last = all
		return all, processes
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(f.last), func(s frozen.Still) bool { return !slices.Contains(pids, s.PID) }), processes
}
