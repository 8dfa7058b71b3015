// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"fmt"

	"github.com/inspektor-gadget/inspektor-gadget/pkg/datasource"
	"go.opentelemetry.io/otel/metric"
)

// Pool has PyTorch's own counts of its pool on one device. Kind and Call of the series
// are empty.
type Pool struct {
	Series
	AllocatedBytes, ReservedBytes int64
	OOMs                          int64
	// Of blocks whose request is known, since attach: with --waste.
	Requests, RequestedBytes, RoundingBytes, OddRequests int64
}

// Pools sets the pools of all running processes, at every interval.
func (r *Run) Pools(all []Pool) {
	r.store.mu.Lock()
	defer r.store.mu.Unlock()
	for i := range all {
		all[i].Vendor = r.vendor
	}
	r.pools = all
}

// pools are the metrics of PyTorch's pools.
type pools struct {
	allocated, reserved metric.Int64ObservableGauge
	ooms                metric.Int64ObservableCounter

	requested, rounding, odd metric.Int64ObservableCounter
}

func newPools(meter metric.Meter) (*pools, error) {
	p := &pools{}
	if err := counters(meter, counter{&p.ooms, "gpu.pool.ooms", "{oom}", "How often PyTorch's pool was out of memory since attach"},
		counter{&p.requested, "gpu.pool.requested", "By", "Bytes that were requested of PyTorch's pool since attach, where the request is known"},
		counter{&p.rounding, "gpu.pool.rounding", "By", "Bytes that PyTorch's pool added to these requests"},
		counter{&p.odd, "gpu.pool.odd_requests", "{request}", "Requests that disagree with the pool's reports of blocks"}); err != nil {
		return nil, err
	}
	return p, gauges(meter,
		gauge{&p.allocated, "gpu.pool.allocated", "By", "Bytes allocated from PyTorch's pool (memory_allocated)"},
		gauge{&p.reserved, "gpu.pool.reserved", "By", "Bytes that PyTorch's pool has from the driver (memory_reserved)"})
}

func (p *pools) instruments() []metric.Observable {
	return []metric.Observable{p.allocated, p.reserved, p.ooms, p.requested, p.rounding, p.odd}
}

func (p *pools) observe(o metric.Observer, all []Pool, l labels) {
	for _, pool := range all {
		with := metric.WithAttributeSet(l.with(pool.Series))
		o.ObserveInt64(p.allocated, pool.AllocatedBytes, with)
		o.ObserveInt64(p.reserved, pool.ReservedBytes, with)
		o.ObserveInt64(p.ooms, pool.OOMs, with)
		if pool.Requests != 0 || pool.OddRequests != 0 {
			o.ObserveInt64(p.requested, pool.RequestedBytes, with)
			o.ObserveInt64(p.rounding, pool.RoundingBytes, with)
			o.ObserveInt64(p.odd, pool.OddRequests, with)
		}
	}
}

// subscribePools passes each reading of the data source pools to take. Versions of
// PyTorch that do not report totals have no pools here.
func subscribePools(ds datasource.DataSource, take func([]Pool)) error {
	if ds == nil {
		return nil
	}
	f, err := bindSeries(ds)
	if err != nil {
		return err
	}
	allocated, reserved := ds.GetField("allocated_bytes"), ds.GetField("reserved_bytes")
	has, ooms := ds.GetField("has_totals"), ds.GetField("ooms")
	requests, requested := ds.GetField("requested_blocks"), ds.GetField("requested_bytes")
	rounding, odd := ds.GetField("rounding_bytes"), ds.GetField("odd_blocks")
	if allocated == nil || reserved == nil {
		return fmt.Errorf("data source %s has no allocated_bytes or reserved_bytes", ds.Name())
	}
	return ds.SubscribeArray(func(_ datasource.DataSource, array datasource.DataArray) error {
		all := make([]Pool, 0, array.Len())
		for n := range array.Len() {
			d := array.Get(n)
			if number(has, d) == 0 {
				continue
			}
			all = append(all, Pool{
				Series: f.read(d), AllocatedBytes: number(allocated, d), ReservedBytes: number(reserved, d), OOMs: number(ooms, d),
				Requests: number(requests, d), RequestedBytes: number(requested, d), RoundingBytes: number(rounding, d), OddRequests: number(odd, d),
			})
		}
		take(all)
		return nil
	}, subscription)
}
