// SPDX-License-Identifier: Apache-2.0

package table

import (
	"testing"

	"github.com/inspektor-gadget/inspektor-gadget/pkg/datasource"
	gadgetcontext "github.com/inspektor-gadget/inspektor-gadget/pkg/gadget-context"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/gadget-service/api"
	"github.com/stretchr/testify/require"
)

// TestWhatInspektorGadgetWouldSkipIsAnError: it would print nothing, and go on.
func TestWhatInspektorGadgetWouldSkipIsAnError(t *testing.T) {
	gc := gadgetcontext.New(t.Context(), "cuda_alloc")
	for name, fields := range map[string][]string{"allocs": {"kind", "inuse", "labels"}, "ooms": {"api", "inuse"}} {
		source, err := gc.RegisterDataSource(datasource.TypeArray, name)
		require.NoError(t, err)
		for _, field := range fields {
			_, err = source.AddField(field, api.Kind_String)
			require.NoError(t, err)
		}
	}
	for r, want := range map[Requested]string{
		{}:                                     "",
		{Fields: "kind,inuse"}:                 "", // of allocs
		{Fields: "KIND"}:                       "",
		{Fields: "+labels,-none"}:              "",
		{Fields: "*"}:                          "",
		{Fields: "allocs:kind;ooms:api,inuse"}: "",
		{Output: "json"}:                       "",
		{Output: "allocs:json,pools:none"}:     "",
		{Output: "pools:json,allocs:json"}:     "", // for several gadgets
		{Output: "allocs:json,ooms:none"}:      "",
		{Fields: "foo"}:                        "--fields foo: allocs has no field foo, but inuse, kind, labels",
		{Fields: "api,foo"}:                    "--fields api,foo: ooms has no field foo, but api, inuse",
		{Fields: "allocs:kind;ooms:kind"}:      "--fields ooms:kind: ooms has no field kind, but api, inuse",
		{Fields: "pools:kind"}:                 "--fields pools:kind: this gadget has no data source pools, but allocs, ooms",
		{Output: "foo"}:                        "-o foo: want columns, json, jsonpretty, none, yaml",
		{Output: "allocs:json,ooms:foo"}:       "-o ooms:foo: want columns, json, jsonpretty, none, yaml",
		{Output: "ooms"}:                       "-o ooms: want columns, json, jsonpretty, none, yaml; ooms is a data source: ooms:columns",
		{Output: "pools:json"}:                 "-o pools:json: this gadget has no data source pools, but allocs, ooms",
	} {
		gc.SetVar(VarRequested, r)
		i, err := New(Config{HasContainers: func() bool { return false }}).InstantiateDataOperator(gc, nil)
		require.NoError(t, err)
		err = i.(instance).PreStart(gc)
		if want == "" {
			require.NoError(t, err, r)
			continue
		}
		require.EqualError(t, err, want)
	}
}
