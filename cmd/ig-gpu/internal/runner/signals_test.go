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

// hangingUp is a runtime whose runs get a signal, and last until their context ends.
type hangingUp struct{ runtime.Runtime }

func (hangingUp) RunGadget(gadget runtime.GadgetContext, _ *params.Params, _ api.ParamValues) error {
	if err := unix.Kill(os.Getpid(), unix.SIGHUP); err != nil {
		return err
	}
	select {
	case <-gadget.Context().Done():
		return nil
	case <-time.After(10 * time.Second):
		return context.DeadlineExceeded
	}
}

func TestATerminalThatClosesEndsTheRun(t *testing.T) {
	signal.Notify(make(chan os.Signal, 1), unix.SIGHUP) // the tests themselves may run under nohup
	r := New(hangingUp{}, images.Set{}, fit)
	for range 2 { // one run after another
		require.NoError(t, r.RunGadget(gadgetcontext.New(t.Context(), "trace_tcp"), nil, nil))
	}
}

// A connection or a file of the run whose reader ends gets the same signal as the output.
func TestOnlyTheEndOfItsOutputsReaderEndsTheRun(t *testing.T) {
	file, err := os.Create(t.TempDir() + "/rows.json")
	require.NoError(t, err)
	defer file.Close()
	pipe := make([]int, 2)
	require.NoError(t, unix.Pipe(pipe))
	socket, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	require.NoError(t, err)
	ends, ended := pipe[:1], []int{pipe[1], socket[0]}
	ends = append(ends, socket[1])

	gadget := gadgetcontext.New(t.Context(), "trace_tcp")
	stop := endBySignal(gadget, append(ended, int(file.Fd()))...)
	require.NoError(t, unix.Kill(os.Getpid(), unix.SIGPIPE))
	time.Sleep(100 * time.Millisecond)
	require.NoError(t, gadget.Context().Err(), "all are read")
	stop()

	for n, end := range ends {
		gadget := gadgetcontext.New(t.Context(), "trace_tcp")
		stop := endBySignal(gadget, int(file.Fd()), ended[n])
		require.NoError(t, unix.Close(end))
		_, err := unix.Write(ended[n], []byte("{}\n"))
		require.ErrorIs(t, err, unix.EPIPE)
		select {
		case <-gadget.Context().Done():
		case <-time.After(10 * time.Second):
			require.Fail(t, "it continues")
		}
		stop()
		require.NoError(t, unix.Close(ended[n]))
	}
}
