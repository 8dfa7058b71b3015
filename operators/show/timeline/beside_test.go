// SPDX-License-Identifier: Apache-2.0

package timeline

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"

	gadgetcontext "github.com/inspektor-gadget/inspektor-gadget/pkg/gadget-context"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/operators"
	"github.com/stretchr/testify/require"
)

// TestGuestsBeginAndEnd: the run waits for all of them to begin, and for their ends; one
// that cannot begin ends the others, and is the error.
func TestGuestsBeginAndEnd(t *testing.T) {
	gc := gadgetcontext.New(t.Context(), "cuda_kernel")
	_, err := startGuests(gc, &session{}, []string{"nccl_trace"})
	require.ErrorContains(t, err, "only ig-gpu run")

	var running atomic.Int32
	refused := errors.New("no room")
	gc.SetVar(VarRunner, Runner(func(ctx context.Context, gadget string, vars map[string]any) error {
		if gadget == "cuda_alloc" {
			return refused
		}
		running.Add(1)
		defer running.Add(-1)
		vars[varHost].(*guest).isReady()
		<-ctx.Done()
		return nil
	}))
	all, err := startGuests(gc, &session{}, []string{"nccl_trace"})
	require.NoError(t, err)
	require.EqualValues(t, 1, running.Load())
	all.stop()
	require.Zero(t, running.Load())
	all.stop()

	_, err = startGuests(gc, &session{}, []string{"cuda_alloc", "nccl_trace"})
	require.ErrorIs(t, err, refused)
	require.ErrorContains(t, err, "--beside cuda_alloc")
	require.Zero(t, running.Load())

	// A run that is over before they have begun does not wait for them.
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	over := gadgetcontext.New(ctx, "cuda_kernel")
	over.SetVar(VarRunner, Runner(func(ctx context.Context, _ string, _ map[string]any) error {
		<-ctx.Done()
		return ctx.Err()
	}))
	_, err = startGuests(over, &session{}, []string{"nccl_trace"})
	require.ErrorIs(t, err, context.Canceled)

	none, err := startGuests(gc, &session{}, nil)
	require.NoError(t, err)
	none.stop()
}

// Inspektor Gadget would wait for ever for an error of Start.
func TestAFailedStartEndsTheRun(t *testing.T) {
	gc := gadgetcontext.New(t.Context(), "none")
	gc.SetVar(operators.MapPrefix+ringMaps[0], "no map")
	g := &guest{ready: make(chan struct{})}
	i := &instance{guest: g, session: &session{}}
	require.NoError(t, i.Start(gc))
	require.ErrorIs(t, gc.Context().Err(), context.Canceled)
	require.NoError(t, i.Stop(gc))
	select {
	case <-g.ready:
		t.Fatal("a guest that sends no events is not ready: the run that it is beside gets its error")
	default:
	}
	require.ErrorContains(t, i.PostStop(gc), "read the gadget's events")
	require.NoError(t, i.PostStop(gc), "reported once")
	require.NoError(t, i.Close(gc))
}
