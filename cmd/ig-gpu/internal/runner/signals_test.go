// SPDX-License-Identifier: Apache-2.0

package runner

import (
	"context"
	"os"
	"os/signal"
	"testing"
	"time"

	gadgetcontext "github.com/inspektor-gadget/inspektor-gadget/pkg/gadget-context"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/gadget-service/api"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/params"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/runtime"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/gpu-gadgets/gpu-gadgets/cmd/ig-gpu/internal/images"
)

// signalled is a runtime whose runs get a signal, and last until their context ends.
type signalled struct {
	runtime.Runtime
	by unix.Signal
}

func (s signalled) RunGadget(gadget runtime.GadgetContext, _ *params.Params, _ api.ParamValues) error {
	if err := unix.Kill(os.Getpid(), s.by); err != nil {
		return err
	}
	select {
	case <-gadget.Context().Done():
		return nil
	case <-time.After(10 * time.Second):
		return context.DeadlineExceeded
	}
}

func TestASignalThatWouldKillEndsTheRun(t *testing.T) {
	signal.Notify(make(chan os.Signal, 1), unix.SIGHUP) // the tests themselves may run under nohup
	for _, by := range []unix.Signal{unix.SIGPIPE, unix.SIGHUP} {
		r := New(signalled{by: by}, images.Set{}, fit)
		for range 2 { // one run after another
			require.NoError(t, r.RunGadget(gadgetcontext.New(t.Context(), "trace_tcp"), nil, nil), by)
		}
	}
}
