// SPDX-License-Identifier: Apache-2.0

package objects

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"time"

	"github.com/inspektor-gadget/inspektor-gadget/pkg/datasource"
	gadgetcontext "github.com/inspektor-gadget/inspektor-gadget/pkg/gadget-context"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/gadget-service/api"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/operators"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/operators/simple"
	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/internal/ig"
)

// TestAContainerLeavesTheLogToOthers: a program that retries what is refused has hundreds of rows a second.
func TestAContainerLeavesTheLogToOthers(t *testing.T) {
	l, err := newLimit("10")
	require.NoError(t, err)
	now := time.Now()
	passed := func(tenant uint64, times int) (n int) {
		for range times {
			if _, ok := l.pass(tenant, now); ok {
				n++
			}
		}
		return n
	}
	require.Equal(t, 10, passed(1, 500))
	require.Equal(t, 5, passed(2, 5))
	for range 100 {
		now = now.Add(time.Second)
		require.Equal(t, 1, passed(1, 500))
		require.Equal(t, 1, passed(2, 1))
	}
	require.Zero(t, passed(1, 7))
	now = now.Add(time.Hour)
	leftOut, ok := l.pass(2, now)
	require.True(t, ok)
	require.Equal(t, 7, leftOut)
	require.Zero(t, l.rest())

	// A process that makes itself a new mount namespace for each row has what a few containers have.
	now = now.Add(time.Hour)
	n := 0
	for tenant := range uint64(5000) {
		n += passed(100+tenant, 1)
	}
	require.Equal(t, together*10, n)
	require.LessOrEqual(t, l.of.Len(), maxTenants)

	_, err = newLimit("many")
	require.ErrorContains(t, err, "--json-burst: want a number of rows")
}

// TestRowsThatAreLeftOutAreCounted in the next row, or at the end; by default all are printed.
func TestRowsThatAreLeftOutAreCounted(t *testing.T) {
	run := func(burst string) string {
		var ds datasource.DataSource
		var mntns datasource.FieldAccessor
		gadget := simple.New("gadget", simple.WithPriority(-100), simple.OnInit(func(gc operators.GadgetContext) (err error) {
			ds, err = gc.RegisterDataSource(datasource.TypeSingle, "ooms")
			require.NoError(t, err)
			mntns, err = ds.AddField("mntns_id", api.Kind_Uint64, datasource.WithTags(ig.TagMountNS))
			require.NoError(t, err)
			return nil
		}), simple.OnStart(func(gc operators.GadgetContext) error {
			go func() {
				defer gc.Cancel()
				for _, of := range []uint64{1, 1, 1, 1, 2, 1} {
					row, err := ds.NewPacketSingle()
					if err != nil {
						t.Error(err)
						return
					}
					_ = mntns.PutUint64(row, of)
					_ = ds.EmitAndRelease(row)
				}
			}()
			return nil
		}))
		var out bytes.Buffer
		gc := gadgetcontext.New(context.Background(), "", gadgetcontext.WithDataOperators(gadget, New(&out)))
		gc.SetVar(Var, "ooms")
		require.NoError(t, gc.Run(api.ParamValues{"operator.objects.json-burst": burst}))
		return out.String()
	}
	gc := gadgetcontext.New(context.Background(), "")
	o, err := New(nil).InstantiateDataOperator(gc, nil)
	require.NoError(t, err)
	require.NotNil(t, o, "the flag is known before what to print is")
	require.Equal(t, strings.Join([]string{`{"mntns_id":1}`, `{"mntns_id":1}`, `{"left_out":2,"mntns_id":2}`, `{"left_out":1}`, ""}, "\n"), run("2"))
	require.Equal(t, 6, strings.Count(run(""), "\n"))
}
