// SPDX-License-Identifier: Apache-2.0

package runner

import (
	"errors"
	"fmt"
	"testing"
	"testing/fstest"

	gadgetcontext "github.com/inspektor-gadget/inspektor-gadget/pkg/gadget-context"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/gadget-service/api"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/params"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/runtime"
	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/cmd/ig-gpu/internal/images"
	"github.com/gpu-gadgets/gpu-gadgets/cmd/internal/machine"
	"github.com/gpu-gadgets/gpu-gadgets/operators/show/objects"
)

// inner is a runtime that fails as configured and keeps what it was given.
type inner struct {
	runtime.Runtime
	err         error
	info        *api.GadgetInfo
	initialized bool
	gadget      runtime.GadgetContext
}

func (i *inner) Init(*params.Params) error {
	i.initialized = true
	return i.err
}

func (i *inner) GetGadgetInfo(gadget runtime.GadgetContext, _ *params.Params, _ api.ParamValues) (*api.GadgetInfo, error) {
	i.gadget = gadget
	return i.info, i.err
}

func (i *inner) RunGadget(gadget runtime.GadgetContext, _ *params.Params, _ api.ParamValues) error {
	i.gadget = gadget
	return i.err
}

// unfit is a machine as package machine describes it.
type unfit struct {
	err         error
	cannotSleep bool
}

func (u unfit) Check() error      { return u.err }
func (u unfit) CannotSleep() bool { return u.cannotSleep }
func (u unfit) NeedsSleep(gadget string) *machine.Requirement {
	return &machine.Requirement{Need: gadget + " needs sleep"}
}

var fit = unfit{}

// The images need not be complete: they are opened here and read elsewhere.
func oneImage(t *testing.T, names ...string) images.Set {
	t.Helper()
	files := fstest.MapFS{}
	for _, name := range names {
		files[name+"/oci-layout"] = &fstest.MapFile{Data: []byte(`{"imageLayoutVersion":"1.0.0"}`)}
		files[name+"/index.json"] = &fstest.MapFile{Data: []byte(`{"schemaVersion":2,"manifests":[]}`)}
	}
	return images.New(files)
}

func TestOldKernelsGetTheVariantOrALine(t *testing.T) {
	old := unfit{cannotSleep: true}
	set := oneImage(t, "cuda_alloc", "cuda_alloc_linux_5_10", "py_stack")
	in := &inner{}
	require.NoError(t, New(in, set, old).RunGadget(gadgetcontext.New(t.Context(), "cuda_alloc"), nil, nil))
	require.NotNil(t, in.gadget.OrasTarget())

	in = &inner{}
	err := New(in, set, old).RunGadget(gadgetcontext.New(t.Context(), "py_stack"), nil, nil)
	var requirement *machine.Requirement
	require.ErrorAs(t, err, &requirement)
	require.Nil(t, in.gadget)
	// Others' gadgets know best what they need.
	require.NoError(t, New(in, set, old).RunGadget(gadgetcontext.New(t.Context(), "trace_tcp"), nil, nil))
}

func TestMachineIsCheckedFirst(t *testing.T) {
	wrong := errors.New("unfit")
	in := &inner{}
	err := New(in, images.Set{}, unfit{err: wrong}).Init(nil)
	require.Equal(t, wrong, err)
	require.False(t, in.initialized)

	require.NoError(t, New(in, images.Set{}, fit).Init(nil))
	require.True(t, in.initialized)
}

func TestOurGadgetsComeFromTheBinaryAndOthersDoNot(t *testing.T) {
	set := oneImage(t, "cuda_alloc")
	for image, isEmbedded := range map[string]bool{
		"cuda_alloc":                     true,
		"trace_tcp":                      false,
		"cuda_alloc:latest":              false,
		"ghcr.io/gpu-gadgets/cuda_alloc": false,
	} {
		in := &inner{}
		r := New(in, set, fit)

		_, err := r.GetGadgetInfo(gadgetcontext.New(t.Context(), image), nil, nil)
		require.NoError(t, err, image)
		require.Equal(t, isEmbedded, in.gadget.OrasTarget() != nil, "info of %s", image)

		require.NoError(t, r.RunGadget(gadgetcontext.New(t.Context(), image), nil, nil), image)
		require.Equal(t, isEmbedded, in.gadget.OrasTarget() != nil, "run of %s", image)
	}
}

func TestErrorsSayWhatToDo(t *testing.T) {
	offline := errors.New("dial tcp: no route to host")
	for _, c := range []struct {
		name, image string
		err         error
		is          error
		text        string
	}{
		{
			"containers cannot be watched", "cuda_alloc",
			fmt.Errorf("pre-starting: %w", errors.New("container-collection isn't available")),
			ErrNoContainers, "--host",
		},
		{
			"containers may not be watched", "cuda_alloc",
			fmt.Errorf("pre-starting: %w", errors.New("container-collection isn't available")),
			ErrNoContainers, "a security module, such as SELinux",
		},
		{"unknown gadget", "cuda_aloc", fmt.Errorf("pulling: %w", offline), ErrUnknownGadget, "cuda_alloc"},
		{"full reference", "ghcr.io/gpu-gadgets/nosuch:v1", fmt.Errorf("pulling: %w", offline), offline, "pulling"},
		{"our own gadget", "cuda_alloc", fmt.Errorf("loading: %w", offline), offline, "loading"},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := New(&inner{err: c.err}, oneImage(t, "cuda_alloc"), fit).
				RunGadget(gadgetcontext.New(t.Context(), c.image), nil, nil)
			require.ErrorIs(t, err, c.is)
			require.ErrorContains(t, err, c.text)
		})
	}
}

func TestBinaryWithoutImagesSaysSo(t *testing.T) {
	err := New(&inner{err: errors.New("offline")}, images.Set{}, fit).
		RunGadget(gadgetcontext.New(t.Context(), "cuda_alloc"), nil, nil)
	require.ErrorIs(t, err, ErrUnknownGadget)
	require.ErrorContains(t, err, "make build")
}

// Columns that come with a parameter are not in the default that was made before it was
// read: that is left to the run, unless the user chose.
func TestColumnsAreTheRunsUnlessTheyAreChosen(t *testing.T) {
	const fields = "allocs:frame,inuse;pools:device"
	in := &inner{info: &api.GadgetInfo{Params: api.Params{{Prefix: "operator.cli.", Key: "fields", DefaultValue: fields}}}}
	r := New(in, images.Set{}, fit)
	_, err := r.GetGadgetInfo(gadgetcontext.New(t.Context(), "trace_tcp"), nil, nil)
	require.NoError(t, err)
	for value, want := range map[string]api.ParamValues{
		fields:                            {},
		"pools:device;allocs:frame,inuse": {}, // in another order of the data sources
		"pools:+fits":                     {columnsParam: "pools:+fits"},
		"allocs:frame":                    {columnsParam: "allocs:frame"},
	} {
		values := api.ParamValues{columnsParam: value}
		require.NoError(t, r.RunGadget(gadgetcontext.New(t.Context(), "trace_tcp"), nil, values))
		require.Equal(t, want, values, value)
	}
}

// TestSourcesThatAreNotPrintedAreUnread.
func TestSourcesThatAreNotPrintedAreUnread(t *testing.T) {
	for _, c := range []struct {
		output, asJSON string
		unread, read   []string
	}{
		{"none", "", []string{"allocs", "ooms"}, nil},
		{"none", objects.Every, nil, []string{"allocs", "ooms"}},
		{"allocs:none,ooms:columns", "", []string{"allocs"}, []string{"ooms"}},
		{"allocs:none,ooms:none", "ooms", []string{"allocs"}, []string{"ooms"}},
		{"ooms:none", "", []string{"ooms"}, []string{"allocs"}}, // by default it is printed
		{"columns", "", nil, []string{"allocs"}},
	} {
		isUnread := unread(c.output, c.asJSON)
		for _, source := range c.unread {
			require.True(t, isUnread(source), "%v: %s", c, source)
		}
		for _, source := range c.read {
			require.False(t, isUnread(source), "%v: %s", c, source)
		}
	}
}
