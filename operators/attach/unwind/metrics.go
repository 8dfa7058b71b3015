// SPDX-License-Identifier: Apache-2.0

package unwind

import (
	"context"
	"fmt"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/gpu-gadgets/gpu-gadgets/internal/tracer/unwinder"
)

// Instrument implements metrics.Source: the memory of the rules, and what is read and removed, by
// gadget. Runs without --unwind-memory have no series.
func (o *Operator) Instrument(meter metric.Meter) (func(), error) {
	gauge := func(name, description string) (metric.Int64ObservableGauge, error) {
		return meter.Int64ObservableGauge(name, metric.WithUnit("By"), metric.WithDescription(description))
	}
	counter := func(name, description string) (metric.Int64ObservableCounter, error) {
		return meter.Int64ObservableCounter(name, metric.WithUnit("{page}"), metric.WithDescription(description))
	}
	size, err := gauge("gpu_gadgets.unwind.memory", "Kernel memory of the unwind information that was read")
	if err != nil {
		return nil, fmt.Errorf("metrics of unwind information: %w", err)
	}
	limit, err := gauge("gpu_gadgets.unwind.memory_limit", "Kernel memory that unwind information may take (--unwind-memory)")
	if err != nil {
		return nil, fmt.Errorf("metrics of unwind information: %w", err)
	}
	missed, err := counter("gpu_gadgets.unwind.missed", "Pages of code that a stack met without unwind information in memory")
	if err != nil {
		return nil, fmt.Errorf("metrics of unwind information: %w", err)
	}
	evicted, err := counter("gpu_gadgets.unwind.evicted", "Pages of unwind information that made room for others")
	if err != nil {
		return nil, fmt.Errorf("metrics of unwind information: %w", err)
	}
	failed, err := counter("gpu_gadgets.unwind.failed", "Pages whose unwind information could not be read")
	if err != nil {
		return nil, fmt.Errorf("metrics of unwind information: %w", err)
	}
	registration, err := meter.RegisterCallback(func(_ context.Context, observer metric.Observer) error {
		for gadget, s := range o.stats() {
			labels := metric.WithAttributes(attribute.String("gadget", gadget))
			observer.ObserveInt64(size, int64(s.Pages)*unwinder.PageMemory, labels)
			observer.ObserveInt64(limit, int64(s.Limit)*unwinder.PageMemory, labels)
			observer.ObserveInt64(missed, int64(s.Misses), labels)
			observer.ObserveInt64(evicted, int64(s.Evicted), labels)
			observer.ObserveInt64(failed, int64(s.Failed), labels)
		}
		return nil
	}, size, limit, missed, evicted, failed)
	if err != nil {
		return nil, fmt.Errorf("metrics of unwind information: %w", err)
	}
	return func() { _ = registration.Unregister() }, nil
}

// stats are those of the present runs, by gadget: two runs of one are added up.
func (o *Operator) stats() map[string]unwinder.Stats {
	o.mu.Lock()
	defer o.mu.Unlock()
	all := map[string]unwinder.Stats{}
	for u, gadget := range o.running {
		s, sum := u.Stats(), all[gadget]
		sum.Pages += s.Pages
		sum.Limit += s.Limit
		sum.Misses += s.Misses
		sum.Evicted += s.Evicted
		sum.Failed += s.Failed
		all[gadget] = sum
	}
	return all
}
