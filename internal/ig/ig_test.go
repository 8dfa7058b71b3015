// SPDX-License-Identifier: Apache-2.0

package ig

import (
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/gadgets"
	"github.com/spf13/viper"
	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/internal/ig/attachpoint"
)

// vars is a gadget context without a gadget. The actual values of Inspektor Gadget are
// tested in package attach, which runs a gadget.
type vars map[string]any

func (v vars) GetVar(name string) (any, bool) { x, ok := v[name]; return x, ok }
func (v vars) SetVar(name string, value any)  { v[name] = value }

// table is a gadget's table with a function f of each library.
func table(libraries ...string) *ebpf.MapSpec {
	char := &btf.Int{Name: "char", Size: 1}
	u32 := &btf.Int{Name: "unsigned int", Size: 4}
	point := &btf.Struct{Name: "attach_point", Size: 168, Members: []btf.Member{
		{Name: "library", Type: &btf.Array{Type: char, Nelems: 32}, Offset: 0},
		{Name: "symbol", Type: &btf.Array{Type: char, Nelems: 128}, Offset: 32 * 8},
		{Name: "cookie", Type: u32, Offset: 160 * 8},
		{Name: "flags", Type: u32, Offset: 164 * 8},
	}}
	b := make([]byte, int(point.Size)*len(libraries))
	for n, library := range libraries {
		copy(b[n*int(point.Size):], library)
		copy(b[n*int(point.Size)+32:], "f")
	}
	array := &btf.Array{Type: point, Nelems: uint32(len(libraries))}
	return &ebpf.MapSpec{
		Contents: []ebpf.MapKV{{Key: uint32(0), Value: b}},
		Value:    &btf.Datasec{Vars: []btf.VarSecinfo{{Type: &btf.Var{Name: "points", Type: array}, Size: uint32(len(b))}}},
	}
}

func TestPointsOfASkippedLibraryAreLeftOut(t *testing.T) {
	gc := vars{"mapspec/.rodata.attach": table("libcuda", "libc10")}
	SkipLibrary(gc, "libc10")
	points, err := AttachPoints(gc)
	require.NoError(t, err)
	require.Equal(t, []attachpoint.Point{{Library: "libcuda", Symbol: "f"}}, points)
}

func TestAGadgetWithoutATableIsSkipped(t *testing.T) {
	points, err := AttachPoints(vars{})
	require.NoError(t, err)
	require.Empty(t, points)
}

func TestDisableStock(t *testing.T) {
	config := viper.New()
	require.NoError(t, DisableStock(vars{"config": config}, []attachpoint.Point{{Symbol: "cuMemAlloc_v2"}}))
	// As the eBPF operator reads it.
	for _, p := range []string{"enter_cuMemAlloc_v2", "exit_cuMemAlloc_v2"} {
		require.Equal(t, "gadget_program_disabled", config.GetString("programs."+p+".attach_to"))
	}
	require.ErrorIs(t, DisableStock(vars{}, nil), ErrAbsent)
	require.ErrorContains(t, DisableStock(vars{"config": 1}, nil), "unexpected type int")
}

func TestConfigureAndConstants(t *testing.T) {
	config := viper.New()
	gc := vars{"config": config, "py_mode": uint32(0)}
	require.NoError(t, Configure(gc, "programs.sampler.sampler.frequency", "49"))
	require.NoError(t, Skip(gc, "sampler"))
	// As the eBPF operator reads them.
	require.Equal(t, "49", config.GetString("programs.sampler.sampler.frequency"))
	require.Equal(t, "gadget_program_disabled", config.GetString("programs.sampler.attach_to"))
	require.ErrorIs(t, Configure(vars{}, "a", 1), ErrAbsent)
	require.ErrorContains(t, Skip(vars{"config": 1}, "a"), "unexpected type int")

	require.NoError(t, SetConstant(gc, "py_mode", uint32(2)))
	require.Equal(t, uint32(2), gc["py_mode"])
	require.ErrorContains(t, SetConstant(gc, "py_mode", 2), "is a uint32, not a int")
	require.ErrorIs(t, SetConstant(gc, "other", true), ErrAbsent)
}

func TestWhatWasReadAgainIsNoDrop(t *testing.T) {
	gc := vars{}
	require.EqualValues(t, 3, Dropped(gc, "a", 3))
	Retried(gc, "a", 1)
	Retried(gc, "a", 1)
	require.EqualValues(t, 1, Dropped(gc, "a", 3))
	require.EqualValues(t, 0, Dropped(gc, "a", 1))
	require.EqualValues(t, 3, Dropped(gc, "b", 3))
}

func TestVariables(t *testing.T) {
	gc := vars{"map/a": 1, "mapspec/b": "x"}
	_, err := Map(gc, "a")
	require.ErrorContains(t, err, "unexpected type int")
	_, err = MapSpec(gc, "b")
	require.ErrorContains(t, err, "unexpected type string")
	_, err = Program(gc, "none")
	require.ErrorIs(t, err, ErrAbsent)
	require.False(t, FiltersContainers(gc))
	gc[gadgets.FilterByMntNsName] = true
	require.True(t, FiltersContainers(gc))
}
