// SPDX-License-Identifier: Apache-2.0

package table

import (
	"maps"

	"github.com/inspektor-gadget/inspektor-gadget/pkg/datasource"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/gadget-service/api"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/operators"
)

// Formats is Inspektor Gadget's operator that adds human-readable fields, for tables that are printed.
type Formats struct{ operators.DataOperator }

// InstantiateDataOperator hides the tables from it that VarUnread says are printed nowhere. Sources of events
// stay: it converts their times in place.
func (f Formats) InstantiateDataOperator(gc operators.GadgetContext, values api.ParamValues) (operators.DataOperatorInstance, error) {
	return f.DataOperator.InstantiateDataOperator(readContext{gc}, values)
}

// readContext is a gadget context without the tables that are unread.
type readContext struct{ operators.GadgetContext }

func (c readContext) GetDataSources() map[string]datasource.DataSource {
	sources := maps.Clone(c.GadgetContext.GetDataSources())
	maps.DeleteFunc(sources, func(name string, source datasource.DataSource) bool {
		return source.Type() == datasource.TypeArray && isUnread(c.GadgetContext, name)
	})
	return sources
}
