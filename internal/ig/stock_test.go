// SPDX-License-Identifier: Apache-2.0

package ig

import (
	"maps"
	"slices"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/spf13/viper"
	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/internal/ig/attachpoint"
)

func TestRemoveStockLeavesWhatIsAttachedOrInAMap(t *testing.T) {
	instance := &struct{ collectionSpec *ebpf.CollectionSpec }{&ebpf.CollectionSpec{
		Programs: map[string]*ebpf.ProgramSpec{
			"enter_a": {}, "exit_a": {}, "enter_b": {}, "exit_b": {}, "enter_multi": {}, "dump_rows": {},
		},
		Maps: map[string]*ebpf.MapSpec{"programs": {Contents: []ebpf.MapKV{
			{Key: uint32(0), Value: "enter_multi"}, {Key: uint32(1), Value: "enter_b"},
		}}},
	}}
	config := viper.New()
	gc := vars{"config": config, VarInstance: instance}
	require.NoError(t, RemoveStock(gc, []attachpoint.Point{{Symbol: "a"}, {Symbol: "b"}, {Symbol: "absent"}}))
	require.Equal(t, []string{"dump_rows", "enter_b", "enter_multi"},
		slices.Sorted(maps.Keys(instance.collectionSpec.Programs)))
	require.Equal(t, "gadget_program_disabled", config.GetString("programs.enter_b.attach_to"))

	require.ErrorIs(t, RemoveStock(vars{}, nil), ErrAbsent)
	require.ErrorIs(t, RemoveStock(vars{"config": config}, nil), ErrAbsent)
	require.ErrorContains(t, RemoveStock(vars{"config": config, VarInstance: 1}, nil), "unexpected type int")
}
