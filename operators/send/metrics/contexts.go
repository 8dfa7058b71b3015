// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"context"
	"fmt"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/gpu-gadgets/gpu-gadgets/internal/export/label"
	"github.com/gpu-gadgets/gpu-gadgets/internal/profile"
)

// idleContexts is the source of the metric of CUDA contexts on devices on which their process
// does nothing else (profile.Contexts).
type idleContexts struct {
	store  *Store
	labels labels
}

// Instrument implements Source.
func (c *idleContexts) Instrument(meter metric.Meter) (func(), error) {
	idle, err := meter.Int64ObservableGauge("gpu.context.idle", metric.WithUnit("{context}"),
		metric.WithDescription("CUDA contexts that were made since attach on a device on which their process does nothing else"))
	if err != nil {
		return nil, fmt.Errorf("metric gpu.context.idle: %w", err)
	}
	registration, err := meter.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		for _, one := range c.look() {
			o.ObserveInt64(idle, one.Objects, metric.WithAttributeSet(c.labels.on(one.Process.Node,
				append(label.Process(one.Process), attribute.Int64("device", int64(one.Device)))...)))
		}
		return nil
	}, idle)
	if err != nil {
		return nil, fmt.Errorf("metrics of contexts: %w", err)
	}
	return func() { _ = registration.Unregister() }, nil
}

func (c *idleContexts) look() []profile.Context {
	var contexts profile.Contexts
	now := c.store.current()
	for _, s := range now.Samples {
		contexts.Memory(s.Process, s.Kind, s.Device, s.Values)
	}
	for _, s := range now.Calls {
		contexts.Calls(s.Process, s.Call.Operation, s.Device, s.Sums.Calls)
	}
	return contexts.Idle()
}
