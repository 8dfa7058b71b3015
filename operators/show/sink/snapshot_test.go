// SPDX-License-Identifier: Apache-2.0

package sink

import (
	"context"
	"testing"

	gadgetcontext "github.com/inspektor-gadget/inspektor-gadget/pkg/gadget-context"
	"github.com/stretchr/testify/require"
)

// Inspektor Gadget would wait for ever for an error of Start.
func TestAFailedStartEndsTheRun(t *testing.T) {
	gc := gadgetcontext.New(t.Context(), "none")
	i := &instance{snapshots: &snapshots{}}
	require.NoError(t, i.Start(gc))
	require.ErrorIs(t, gc.Context().Err(), context.Canceled)
	require.NoError(t, i.Stop(gc))
	require.ErrorContains(t, i.PostStop(gc), "--snapshot-out: map")
	require.NoError(t, i.PostStop(gc), "reported once")
	require.NoError(t, i.Close(gc))
}
