// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"context"
	"fmt"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/gpu-gadgets/gpu-gadgets/internal/export/exporters"
	"github.com/gpu-gadgets/gpu-gadgets/internal/export/label"
	"github.com/gpu-gadgets/gpu-gadgets/internal/profile"
)

// scope is the name of the meter.
const scope = "github.com/gpu-gadgets/gpu-gadgets/operators/send/metrics"

// Source adds its own instruments to every meter. The returned function removes them.
type Source interface {
	Instrument(metric.Meter) (func(), error)
}

// content is the published data, for one reader or several.
type content struct {
	store   *Store
	queues  *exporters.Registry
	sources []Source
	// compat publishes the reference dashboard's counters, too, with cluster.
	compat  bool
	cluster string
	labels  labels
}

// instruments are all asynchronous: the SDK then reports only what the callback observes,
// so that the series of an ended process end. One callback observes all of them from one
// snapshot, so that in-use is always allocated − freed − implicitly freed.
type instruments struct {
	layers []*memory

	drops, dropBytes, forgotten metric.Int64ObservableCounter
	attached, rows              metric.Int64ObservableGauge

	queueItems, queueBytes, queueCapacity metric.Int64ObservableGauge
	sent, retries, lost, lostBytes        metric.Int64ObservableCounter
}

type counter struct {
	to                      *metric.Int64ObservableCounter
	name, unit, description string
}

func counters(meter metric.Meter, all ...counter) error {
	for _, c := range all {
		var err error
		if *c.to, err = meter.Int64ObservableCounter(c.name, metric.WithUnit(c.unit), metric.WithDescription(c.description)); err != nil {
			return fmt.Errorf("metric %s: %w", c.name, err)
		}
	}
	return nil
}

type gauge struct {
	to                      *metric.Int64ObservableGauge
	name, unit, description string
}

func gauges(meter metric.Meter, all ...gauge) error {
	for _, g := range all {
		var err error
		if *g.to, err = meter.Int64ObservableGauge(g.name, metric.WithUnit(g.unit), metric.WithDescription(g.description)); err != nil {
			return fmt.Errorf("metric %s: %w", g.name, err)
		}
	}
	return nil
}

func newInstruments(meter metric.Meter) (*instruments, error) {
	i := &instruments{}
	if err := counters(meter,
		counter{&i.drops, "gpu_gadgets.drops", "{drop}", "What a gadget could not record in full, by reason"},
		counter{&i.dropBytes, "gpu_gadgets.dropped", "By", "Bytes of allocations that are in no series, by reason"},
		counter{&i.forgotten, "gpu_gadgets.forgotten_processes", "{process}", "Processes that ended and were dropped before anybody had read their last values"},
		counter{&i.sent, "gpu_gadgets.export.sent", "{item}", "Profiles or batches that the receiver accepted"},
		counter{&i.retries, "gpu_gadgets.export.retries", "{attempt}", "Attempts after the first"},
		counter{&i.lost, "gpu_gadgets.export.lost", "{item}", "Profiles or batches that will never arrive"},
		counter{&i.lostBytes, "gpu_gadgets.export.lost_size", "By", "Size of what will never arrive"},
	); err != nil {
		return nil, err
	}
	if err := gauges(meter,
		gauge{&i.attached, "gpu_gadgets.attached_processes", "{process}", "Processes with probes"},
		gauge{&i.rows, "gpu_gadgets.rows", "{row}", "Rows (process, stack, kind, device) in the kernel"},
		gauge{&i.queueItems, "gpu_gadgets.export.queue", "{item}", "Profiles or batches that wait to be sent"},
		gauge{&i.queueBytes, "gpu_gadgets.export.queue_size", "By", "Size of what waits to be sent"},
		gauge{&i.queueCapacity, "gpu_gadgets.export.queue_capacity", "By", "Size at which the queue drops its oldest"},
	); err != nil {
		return nil, err
	}
	for _, layer := range []profile.Layer{profile.Driver, profile.Torch} {
		m, err := newMemory(meter, layer)
		if err != nil {
			return nil, err
		}
		i.layers = append(i.layers, m)
	}
	return i, nil
}

func (i *instruments) all() []metric.Observable {
	all := []metric.Observable{i.drops, i.dropBytes, i.forgotten,
		i.attached, i.rows, i.queueItems, i.queueBytes, i.queueCapacity, i.sent, i.retries, i.lost, i.lostBytes}
	for _, m := range i.layers {
		all = append(all, m.all()...)
	}
	return all
}

// publish registers everything with a meter and returns a function that ends it. Ended processes
// are kept for some time.
func (c *content) publish(meter metric.Meter, keep time.Duration) (func(), error) {
	own, err := newInstruments(meter)
	if err != nil {
		return nil, err
	}
	callsOf, err := newCalls(meter)
	if err != nil {
		return nil, err
	}
	poolsOf, err := newPools(meter)
	if err != nil {
		return nil, err
	}
	communicatorsOf, err := newCommunicators(meter)
	if err != nil {
		return nil, err
	}
	ageOf, err := newAges(meter)
	if err != nil {
		return nil, err
	}
	observables := append(append(own.all(), callsOf.instruments()...), poolsOf.instruments()...)
	observables = append(observables, communicatorsOf.inuse, ageOf[0], ageOf[1])
	var reference *compat
	if c.compat {
		if reference, err = newCompat(meter, c.cluster); err != nil {
			return nil, err
		}
		observables = append(observables, reference.instruments()...)
	}
	reader := c.store.newReader(keep)
	stops := []func(){reader.Close}
	stop := func() {
		for _, f := range stops {
			f()
		}
	}
	registration, err := meter.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		snapshot := reader.Read()
		own.observe(o, snapshot, c.labels)
		callsOf.observe(o, snapshot.Calls, c.labels)
		poolsOf.observe(o, snapshot.Pools, c.labels)
		communicatorsOf.observe(o, snapshot.Buffers, c.labels)
		ageOf.observe(o, snapshot.Ages, c.labels)
		own.observeQueues(o, c.queues.Read())
		if reference != nil {
			reference.observe(o, samplesOf(snapshot.Samples, profile.Driver))
		}
		return nil
	}, observables...)
	if err != nil {
		stop()
		return nil, err
	}
	stops = append(stops, func() { _ = registration.Unregister() })
	for _, source := range c.sources {
		end, err := source.Instrument(meter)
		if err != nil {
			stop()
			return nil, err
		}
		stops = append(stops, end)
	}
	return stop, nil
}

func (i *instruments) observe(o metric.Observer, s Snapshot, l labels) {
	for _, m := range i.layers {
		m.observe(o, s.Samples, l)
	}
	for _, d := range s.Drops {
		labels := metric.WithAttributeSet(l.on(d.Node, attribute.String("gadget", label.Valid(d.Gadget)), attribute.String("reason", label.Valid(d.Reason))))
		o.ObserveInt64(i.drops, d.Count, labels)
		o.ObserveInt64(i.dropBytes, d.Bytes, labels)
	}
	for _, g := range s.Gadgets {
		labels := metric.WithAttributeSet(l.on(g.Node, attribute.String("gadget", label.Valid(g.Gadget))))
		o.ObserveInt64(i.rows, int64(g.Rows), labels)
		if g.Attached >= 0 {
			o.ObserveInt64(i.attached, int64(g.Attached), labels)
		}
	}
	o.ObserveInt64(i.forgotten, s.Forgotten)
}

func (i *instruments) observeQueues(o metric.Observer, all []exporters.Named) {
	for _, q := range all {
		labels := metric.WithAttributes(attribute.String("exporter", label.Valid(q.Name)))
		o.ObserveInt64(i.queueItems, q.Items, labels)
		o.ObserveInt64(i.queueBytes, q.Bytes, labels)
		if q.CapacityBytes > 0 {
			o.ObserveInt64(i.queueCapacity, q.CapacityBytes, labels)
		}
		o.ObserveInt64(i.sent, q.Sent, labels)
		o.ObserveInt64(i.retries, q.Retries, labels)
		o.ObserveInt64(i.lost, q.Lost, labels)
		o.ObserveInt64(i.lostBytes, q.LostBytes, labels)
	}
}
