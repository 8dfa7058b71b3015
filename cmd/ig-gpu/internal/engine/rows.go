// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"fmt"

	"github.com/inspektor-gadget/inspektor-gadget/pkg/datasource"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/operators"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/operators/simple"
)

// subscription is behind all that change rows: names, judgements, the filter (9000), the
// table's order (9400); and before what prints (10000).
const subscription = 9900

// Rows is an operator that calls on with every packet of a data source: the rows of an
// interval, or the one row of an event. The rows are only valid during the call, which is
// made by the goroutine that emits. A gadget without that data source is no error.
func Rows(source string, on func(datasource.DataSource, []datasource.Data)) operators.DataOperator {
	return simple.New("rows of "+source, simple.WithPriority(subscription), simple.OnPreStart(func(gc operators.GadgetContext) error {
		ds := gc.GetDataSources()[source]
		if ds == nil {
			return nil
		}
		var err error
		if ds.Type() == datasource.TypeArray {
			err = ds.SubscribeArray(func(ds datasource.DataSource, all datasource.DataArray) error {
				rows := make([]datasource.Data, all.Len())
				for n := range rows {
					rows[n] = all.Get(n)
				}
				on(ds, rows)
				return nil
			}, subscription)
		} else {
			err = ds.Subscribe(func(ds datasource.DataSource, row datasource.Data) error {
				on(ds, []datasource.Data{row})
				return nil
			}, subscription)
		}
		if err != nil {
			return fmt.Errorf("subscribe to %s: %w", source, err)
		}
		return nil
	}))
}

// Started is an operator that calls on when all others have started: the probes are attached.
func Started(on func(operators.GadgetContext) error) operators.DataOperator {
	return simple.New("start of the gadget", simple.WithPriority(subscription), simple.OnStart(on))
}
