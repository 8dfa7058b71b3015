// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/gpu-gadgets/gpu-gadgets/internal/export/label"
)

// compat are the counters of the published dashboard AdvancedGPUObservability,
// which Inspektor Gadget's top_cuda_memory makes through otel-metrics. The
// dashboard subtracts them from each other, so all three have the same labels,
// zeros included. They have no unit, because a unit would become part of the name
// (mem_alloc_bytes_bytes_total).
type compat struct {
	alloc, free, implicit metric.Int64ObservableCounter
	cluster               string
}

func newCompat(meter metric.Meter, cluster string) (*compat, error) {
	c := &compat{cluster: cluster}
	return c, counters(meter,
		counter{&c.alloc, "mem_alloc_bytes", "", "Bytes of GPU memory allocated"},
		counter{&c.free, "mem_free_bytes", "", "Bytes of GPU memory freed by a call"},
		counter{&c.implicit, "mem_implicit_free_bytes", "", "Bytes of GPU memory freed with a context or a process"})
}

func (c *compat) instruments() []metric.Observable {
	return []metric.Observable{c.alloc, c.free, c.implicit}
}

func (c *compat) observe(o metric.Observer, samples []Sample) {
	all := make([]Sample, 0, len(samples))
	for _, s := range samples {
		all = append(all, s)
		if s.Kind == kindHost {
			// The dashboard only uses host_raw="0", which must exist.
			all = append(all, Sample{Series: Series{Process: s.Process}, Ended: s.Ended})
		}
	}
	for _, g := range groups(all, c.labels) {
		labels := metric.WithAttributeSet(g.labels)
		o.ObserveInt64(c.alloc, g.sums.AllocBytes, labels)
		o.ObserveInt64(c.free, g.sums.FreedBytes, labels)
		o.ObserveInt64(c.implicit, g.sums.ImplicitBytes, labels)
	}
}

func (c *compat) labels(s Sample) attribute.Set {
	host := "0"
	if s.Kind == kindHost {
		host = "1"
	}
	return attribute.NewSet(
		attribute.String("cluster", label.Valid(c.cluster)),
		attribute.String("k8s_namespace", label.Valid(s.Process.Namespace)),
		attribute.String("k8s_podname", label.Valid(s.Process.Pod)),
		attribute.Int64("pid", int64(s.Process.PID)),
		attribute.String("host_raw", host))
}
