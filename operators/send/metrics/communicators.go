// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"fmt"

	"github.com/inspektor-gadget/inspektor-gadget/pkg/datasource"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/gpu-gadgets/gpu-gadgets/internal/export/label"
)

// Buffers has the memory that NCCL holds for a communicator, of one phase and kind (--communicators).
type Buffers struct {
	Series
	Communicator, Name, Phase string
	Rank                      int64
	InuseBytes                int64
}

// Buffers sets the memory of communicators of all running processes, at every interval.
func (r *Run) Buffers(all []Buffers) {
	r.store.mu.Lock()
	defer r.store.mu.Unlock()
	for i := range all {
		all[i].Vendor = r.vendor
	}
	r.buffers = all
}

// communicators is the metric of what NCCL holds.
type communicators struct{ inuse metric.Int64ObservableGauge }

func newCommunicators(meter metric.Meter) (*communicators, error) {
	c := &communicators{}
	return c, gauges(meter, gauge{&c.inuse, "gpu.communicator.inuse", "By", "Bytes that NCCL holds for a communicator"})
}

func (c *communicators) observe(o metric.Observer, all []Buffers, l labels) {
	for _, b := range all {
		o.ObserveInt64(c.inuse, b.InuseBytes, metric.WithAttributeSet(l.with(b.Series, attribute.String("kind", label.Valid(b.Kind)),
			attribute.String("communicator", b.Communicator), attribute.String("communicator_name", label.Valid(b.Name)),
			attribute.Int64("rank", b.Rank), attribute.String("phase", b.Phase))))
	}
}

// subscribeBuffers passes each reading of the data source buffers to take: those that hold
// something. Without --communicators there are none.
func subscribeBuffers(ds datasource.DataSource, take func([]Buffers)) error {
	if ds == nil || ds.GetField("communicator") == nil {
		return nil
	}
	f, err := bindSeries(ds)
	if err != nil {
		return err
	}
	inuse, communicator, name, phase := ds.GetField("inuse_bytes"), ds.GetField("communicator"), ds.GetField("name"), ds.GetField("phase")
	rank := ds.GetField("rank")
	if inuse == nil || name == nil || phase == nil || rank == nil {
		return fmt.Errorf("data source %s has no inuse_bytes, name, phase or rank", ds.Name())
	}
	return ds.SubscribeArray(func(_ datasource.DataSource, array datasource.DataArray) error {
		all := make([]Buffers, 0, array.Len())
		for n := range array.Len() {
			d := array.Get(n)
			if number(inuse, d) == 0 {
				continue
			}
			b := Buffers{Series: f.read(d), InuseBytes: number(inuse, d)}
			b.Communicator, _ = communicator.String(d)
			b.Name, _ = name.String(d)
			b.Phase, _ = phase.String(d)
			r, _ := rank.Int32(d)
			b.Rank = int64(r)
			all = append(all, b)
		}
		take(all)
		return nil
	}, subscription)
}
