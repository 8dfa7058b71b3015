// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/inspektor-gadget/inspektor-gadget/pkg/datasource"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/gpu-gadgets/gpu-gadgets/internal/export/label"
	"github.com/gpu-gadgets/gpu-gadgets/internal/profile"
	"github.com/gpu-gadgets/gpu-gadgets/operators/judge/ages"
)

// Ages has the memory in use of a series by its age, in the order of ages.Classes (--ages).
type Ages struct {
	Series
	Bytes []int64
}

// Ages sets the ages of what all running processes hold, at every interval.
func (r *Run) Ages(all []Ages) {
	r.store.mu.Lock()
	defer r.store.mu.Unlock()
	for i := range all {
		all[i].Vendor = r.vendor
	}
	r.ages = all
}

// agesOf are the metrics of how old what is in use is, by layer.
type agesOf [2]metric.Int64ObservableGauge

func newAges(meter metric.Meter) (*agesOf, error) {
	a := &agesOf{}
	return a, gauges(meter,
		gauge{&a[profile.Driver], "gpu.memory.age", "By", "Bytes in use by how long ago they were allocated: at most the label's age, and more than the one before"},
		gauge{&a[profile.Torch], "gpu.tensor.age", "By", "The same for tensors inside PyTorch's pools"})
}

func (a *agesOf) observe(o metric.Observer, all []Ages, l labels) {
	for _, s := range all {
		for n, class := range ages.Classes() {
			o.ObserveInt64(a[profile.LayerOf(s.Kind)], s.Bytes[n], metric.WithAttributeSet(l.with(s.Series,
				attribute.String("kind", label.Valid(s.Kind)), attribute.String("age", class))))
		}
	}
}

// subscribeAges passes the sums over the stacks and spans of each reading of allocs to take.
// Without --ages there are none.
func subscribeAges(ds datasource.DataSource, take func([]Ages)) error {
	var fields []datasource.FieldAccessor
	for _, class := range ages.Classes() {
		if ds == nil || ds.GetField(ages.Field(class)) == nil || ds.Type() != datasource.TypeArray {
			return nil
		}
		fields = append(fields, ds.GetField(ages.Field(class)))
	}
	f, err := bindSeries(ds)
	if err != nil {
		return fmt.Errorf("ages: %w", err)
	}
	return ds.SubscribeArray(func(_ datasource.DataSource, array datasource.DataArray) error {
		sums := map[Series][]int64{}
		for n := range array.Len() {
			d := array.Get(n)
			s := f.read(d)
			for c, field := range fields {
				if bytes := number(field, d); bytes != 0 {
					if sums[s] == nil {
						sums[s] = make([]int64, len(fields))
					}
					sums[s][c] += bytes
				}
			}
		}
		all := make([]Ages, 0, len(sums))
		for _, s := range slices.SortedFunc(maps.Keys(sums), func(a, b Series) int {
			return cmp.Or(cmp.Compare(a.Process.ID, b.Process.ID), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Device, b.Device),
				cmp.Compare(a.Process.Labels, b.Process.Labels))
		}) {
			all = append(all, Ages{s, sums[s]})
		}
		take(all)
		return nil
	}, subscription)
}
