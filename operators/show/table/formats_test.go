// SPDX-License-Identifier: Apache-2.0

package table

import (
	"maps"
	"slices"
	"testing"

	"github.com/inspektor-gadget/inspektor-gadget/pkg/datasource"
	gadgetcontext "github.com/inspektor-gadget/inspektor-gadget/pkg/gadget-context"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/gadget-service/api"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/operators"
	"github.com/stretchr/testify/require"
)

// formatter notes for which data sources it is instantiated.
type formatter struct {
	operators.DataOperator
	sources []string
}

func (f *formatter) InstantiateDataOperator(gc operators.GadgetContext, _ api.ParamValues) (operators.DataOperatorInstance, error) {
	f.sources = slices.Sorted(maps.Keys(gc.GetDataSources()))
	return nil, nil
}

// TestTablesThatAreNotPrintedAreNotFormatted: events are, whose times are converted in place.
func TestTablesThatAreNotPrintedAreNotFormatted(t *testing.T) {
	gc := gadgetcontext.New(t.Context(), "cuda_alloc")
	for name, kind := range map[string]datasource.Type{"allocs": datasource.TypeArray, "drops": datasource.TypeArray, "ooms": datasource.TypeSingle} {
		_, err := gc.RegisterDataSource(kind, name)
		require.NoError(t, err)
	}
	f := &formatter{}
	_, err := Formats{f}.InstantiateDataOperator(gc, nil)
	require.NoError(t, err)
	require.Equal(t, []string{"allocs", "drops", "ooms"}, f.sources)

	gc.SetVar(VarUnread, func(source string) bool { return source != "drops" })
	_, err = Formats{f}.InstantiateDataOperator(gc, nil)
	require.NoError(t, err)
	require.Equal(t, []string{"drops", "ooms"}, f.sources)
	require.Len(t, gc.GetDataSources(), 3)
}
