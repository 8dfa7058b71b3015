// SPDX-License-Identifier: Apache-2.0

package budget

import (
	"context"
	"errors"
	"io"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	gadgetcontext "github.com/inspektor-gadget/inspektor-gadget/pkg/gadget-context"
	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/internal/tracer/traps"
	"github.com/gpu-gadgets/gpu-gadgets/test/support/bpftest"
)

// brokenProber cannot attach for windows.
type brokenProber struct {
	intermittent []uint32
	detached     map[string]bool
}

var errBroken = errors.New("no file could be probed")

func (p *brokenProber) SetIntermittent(cookies []uint32) error {
	p.intermittent = cookies
	return nil
}
func (*brokenProber) Resume([]uint32) (io.Closer, error) { return nil, errBroken }
func (p *brokenProber) SetAttached(library string, attached bool) {
	p.detached[library] = !attached
}

// newController returns one with the maps of cuda_kernel, which has left something out.
func newController(t *testing.T) (*Controller, *brokenProber) {
	t.Helper()
	bpftest.RequireRoot(t)
	spec := bpftest.Spec(t, "../../../gadgets/cuda_kernel/program.bpf.c", "-mcpu=v3")
	create := func(name string) *ebpf.Map {
		m, err := ebpf.NewMap(spec.Maps[name])
		require.NoError(t, err)
		t.Cleanup(func() { m.Close() })
		return m
	}
	p := &brokenProber{intermittent: []uint32{launch, copies}, detached: map[string]bool{torchLibrary: true}}
	c := NewController(Settings{
		Maps: Maps{Traps: create("budget_traps"), ByAPI: create("budget_by_api"), ByThread: create("budget_by_thread"),
			Gates: create("window_gates"), Since: create("window_apis"), Inflight: create("window_inflight")},
		Prober: p, Traps: traps.Cost{Entry: time.Microsecond}, Percent: 1, InWindows: map[uint32]bool{launch: true, copies: true},
		HasTensors: true, DropTensors: func() error { return nil }, Info: t.Logf, Warn: t.Logf,
	})
	for api := range c.cfg.InWindows {
		require.NoError(t, c.cfg.Maps.Since.Put(api, uint64(1)))
	}
	require.NoError(t, c.cfg.Maps.setTraps(c.cfg.Traps, 0.5, true))
	c.windows.plan = plan{slots: 2, apis: []uint32{launch}} // copies: of a plan that could not be followed
	c.tensors.isOff = true
	c.state.Slots = 2
	return c, p
}

// No windows are opened after an error: what is probed in windows only would not be seen any more.
func TestAnErrorLeavesEverythingFollowed(t *testing.T) {
	c, p := newController(t)
	require.ErrorIs(t, c.Run(t.Context()), errBroken)
	require.Empty(t, p.intermittent)
	for api := range c.cfg.InWindows {
		var since uint64
		require.NoError(t, c.cfg.Maps.Since.Lookup(api, &since))
		require.Zero(t, since, "function %d", api)
	}
	var cost trapsValue
	require.NoError(t, c.cfg.Maps.Traps.Lookup(uint32(0), &cost))
	require.Equal(t, trapsValue{EntryNS: 1000, Doubt1024: 512}, cost, "blocks are followed, not only counted; sums so far are as uncertain as they were")
	require.False(t, p.detached[torchLibrary])
	require.EqualValues(t, 1, c.State().Slots)
}

// Inspektor Gadget would wait for ever for an error of Start.
func TestAFailedStartEndsTheRun(t *testing.T) {
	gc := gadgetcontext.New(t.Context(), "none")
	i := &instance{percent: 1}
	require.NoError(t, i.Start(gc))
	require.ErrorIs(t, gc.Context().Err(), context.Canceled)
	require.NoError(t, i.Stop(gc))
	require.ErrorContains(t, i.PostStop(gc), "keep a budget: map")
	require.NoError(t, i.PostStop(gc), "reported once")
	require.NoError(t, i.Close(gc))
}
