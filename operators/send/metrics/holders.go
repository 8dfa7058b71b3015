// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"context"
	"fmt"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/gpu-gadgets/gpu-gadgets/internal/export/label"
	"github.com/gpu-gadgets/gpu-gadgets/internal/ig"
	"github.com/gpu-gadgets/gpu-gadgets/internal/process/holder"
	processlabels "github.com/gpu-gadgets/gpu-gadgets/internal/process/labels"
	"github.com/gpu-gadgets/gpu-gadgets/internal/profile"
)

// idleHolders is the source of the metrics of abandoned processes that hold GPU memory
// (package holder). Each scrape and push reads their state.
type idleHolders struct {
	store *Store
	// driver returns what the driver counts by process, with those from before attach, too;
	// nil: only rows are known.
	driver func() map[uint32]int64

	mu      sync.Mutex
	tracker holder.Tracker
}

// Instrument implements Source.
func (h *idleHolders) Instrument(meter metric.Meter) (func(), error) {
	memory, err := meter.Int64ObservableGauge("gpu.idle_holder.memory", metric.WithUnit("By"),
		metric.WithDescription("GPU memory of an abandoned process, which does nothing, by reason"))
	if err != nil {
		return nil, fmt.Errorf("metric gpu.idle_holder.memory: %w", err)
	}
	idle, err := meter.Float64ObservableGauge("gpu.idle_holder.time", metric.WithUnit("s"),
		metric.WithDescription("How long it has done nothing"))
	if err != nil {
		return nil, fmt.Errorf("metric gpu.idle_holder.time: %w", err)
	}
	registration, err := meter.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		verdicts, processes := h.look()
		for _, v := range verdicts {
			p := processes[v.PID] // with its pod, where rows have it
			p.PID, p.Comm = v.PID, v.Comm
			labels := metric.WithAttributes(append(label.Process(p), attribute.String("reason", string(v.Reason)))...)
			o.ObserveInt64(memory, v.Bytes, labels)
			o.ObserveFloat64(idle, v.Idle.Seconds(), labels)
		}
		return nil
	}, memory, idle)
	if err != nil {
		return nil, fmt.Errorf("metrics of idle holders: %w", err)
	}
	return func() { _ = registration.Unregister() }, nil
}

// holdersOf returns the processes that hold memory now, by what the rows have and the driver counts. Their labels are
// those that all their rows have, so that the series of a process stays one, whatever spans and stacks it has.
func holdersOf(store *Store, driver func() map[uint32]int64) (map[uint32]*holder.Holder, map[uint32]profile.Process) {
	holders, processes := map[uint32]*holder.Holder{}, map[uint32]profile.Process{}
	of := func(pid uint32) *holder.Holder {
		if holders[pid] == nil {
			holders[pid] = &holder.Holder{PID: pid}
		}
		return holders[pid]
	}
	common := map[uint64]*processlabels.Common{}
	withCommon := func(p profile.Process) profile.Process {
		if common[p.ID] == nil {
			common[p.ID] = &processlabels.Common{}
		}
		p.Labels = common[p.ID].Add(p.Labels)
		return p
	}
	now := store.current()
	for _, s := range now.Calls {
		of(s.Process.PID).Calls += s.Sums.Calls
	}
	for _, s := range now.Samples {
		of := of(s.Process.PID)
		processes[s.Process.PID] = withCommon(s.Process)
		of.Calls += s.AllocObjects + s.FreedObjects
		if profile.LayerOf(s.Kind) == profile.Driver && s.Kind != kindHost {
			of.Bytes += s.InuseBytes
		}
	}
	if driver != nil {
		for pid, bytes := range driver() {
			of := of(pid)
			of.Bytes = max(of.Bytes, bytes)
		}
	}
	return holders, processes
}

// look judges the processes that hold memory now.
func (h *idleHolders) look() ([]holder.Verdict, map[uint32]profile.Process) {
	holders, processes := holdersOf(h.store, h.driver)
	all := make([]holder.Holder, 0, len(holders))
	for _, of := range holders {
		all = append(all, *of)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.tracker.Look(time.Now(), ig.SinceBoot(), all), processes
}
