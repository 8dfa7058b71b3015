// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"slices"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/gpu-gadgets/gpu-gadgets/internal/profile"
)

// memory has the instruments of one layer: allocations of the driver, or of PyTorch's
// pool. Their names differ, because the same bytes are in both and a query over one name
// must not add them up.
type memory struct {
	layer                                 profile.Layer
	allocBytes, allocs, freedBytes, frees metric.Int64ObservableCounter
	implicitBytes, implicits              metric.Int64ObservableCounter
	failedBytes, failures                 metric.Int64ObservableCounter
	inuseBytes, inuse                     metric.Int64ObservableUpDownCounter
	peakBytes                             metric.Int64ObservableGauge
	// Of tensors only, and only with --waste.
	rounding, fragmented metric.Int64ObservableGauge
}

// prefixes of the names of a layer's metrics.
var prefixes = map[profile.Layer]string{profile.Driver: "gpu.memory.", profile.Torch: "gpu.tensor."}

func newMemory(meter metric.Meter, layer profile.Layer) (*memory, error) {
	m := &memory{layer: layer}
	prefix, of, refused := prefixes[layer], "", "that the driver refused"
	if layer == profile.Torch {
		of, refused = " of blocks of PyTorch's pool", "that PyTorch's pool refused"
	}
	if err := counters(meter,
		counter{&m.allocBytes, prefix + "allocated", "By", "Bytes" + of + " allocated since attach"},
		counter{&m.allocs, prefix + "allocations", "{allocation}", "Allocations" + of + " since attach"},
		counter{&m.freedBytes, prefix + "freed", "By", "Bytes" + of + " freed by a call that named the pointer"},
		counter{&m.frees, prefix + "frees", "{free}", "Allocations" + of + " freed by a call that named the pointer"},
		counter{&m.implicitBytes, prefix + "implicitly_freed", "By", "Bytes" + of + " freed with their context or their process"},
		counter{&m.implicits, prefix + "implicit_frees", "{free}", "Allocations" + of + " freed with their context or their process"},
		counter{&m.failedBytes, prefix + "failed", "By", "Bytes asked for by allocations " + refused},
		counter{&m.failures, prefix + "failures", "{allocation}", "Allocations " + refused},
	); err != nil {
		return nil, err
	}
	if err := gauges(meter, gauge{&m.peakBytes, prefix + "peak", "By", "Most bytes" + of + " in use that a read saw since attach"}); err != nil {
		return nil, err
	}
	if layer == profile.Torch {
		if err := gauges(meter,
			gauge{&m.rounding, prefix + "rounding", "By", "Bytes in use that PyTorch's pool added to requests by rounding"},
			gauge{&m.fragmented, prefix + "fragmented", "By", "Unused bytes of segments in which a tensor is"}); err != nil {
			return nil, err
		}
	}
	var err error
	if m.inuseBytes, err = meter.Int64ObservableUpDownCounter(prefix+"inuse", metric.WithUnit("By"),
		metric.WithDescription("Bytes"+of+" allocated and not freed")); err != nil {
		return nil, err
	}
	m.inuse, err = meter.Int64ObservableUpDownCounter(prefix+"inuse_objects", metric.WithUnit("{allocation}"),
		metric.WithDescription("Allocations"+of+" that are not freed"))
	return m, err
}

func (m *memory) all() []metric.Observable {
	all := []metric.Observable{m.allocBytes, m.allocs, m.freedBytes, m.frees, m.implicitBytes, m.implicits,
		m.failedBytes, m.failures, m.inuseBytes, m.inuse, m.peakBytes}
	if m.layer == profile.Torch {
		all = append(all, m.rounding, m.fragmented)
	}
	return all
}

// observe observes the samples of its layer.
func (m *memory) observe(o metric.Observer, samples []Sample, l labels) {
	for _, g := range groups(samplesOf(samples, m.layer), func(s Sample) attribute.Set { return l.of(s.Series) }) {
		labels := metric.WithAttributeSet(g.labels)
		o.ObserveInt64(m.allocBytes, g.sums.AllocBytes, labels)
		o.ObserveInt64(m.allocs, g.sums.AllocObjects, labels)
		o.ObserveInt64(m.freedBytes, g.sums.FreedBytes, labels)
		o.ObserveInt64(m.frees, g.sums.FreedObjects, labels)
		o.ObserveInt64(m.implicitBytes, g.sums.ImplicitBytes, labels)
		o.ObserveInt64(m.implicits, g.sums.ImplicitObjects, labels)
		o.ObserveInt64(m.failedBytes, g.sums.FailedBytes, labels)
		o.ObserveInt64(m.failures, g.sums.Failed, labels)
		o.ObserveInt64(m.inuseBytes, g.sums.InuseBytes, labels)
		o.ObserveInt64(m.inuse, g.sums.InuseObjects, labels)
		o.ObserveInt64(m.peakBytes, g.sums.PeakBytes, labels)
		if m.layer == profile.Torch && (g.sums.RoundingBytes != 0 || g.sums.FragmentedBytes != 0) {
			o.ObserveInt64(m.rounding, g.sums.RoundingBytes, labels)
			o.ObserveInt64(m.fragmented, g.sums.FragmentedBytes, labels)
		}
	}
}

func samplesOf(samples []Sample, layer profile.Layer) []Sample {
	return slices.DeleteFunc(slices.Clone(samples), func(s Sample) bool { return profile.LayerOf(s.Kind) != layer })
}
