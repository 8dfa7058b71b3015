// SPDX-License-Identifier: Apache-2.0

package runner

import (
	"os"
	"os/signal"

	"github.com/inspektor-gadget/inspektor-gadget/pkg/runtime"
	"golang.org/x/sys/unix"

	"github.com/gpu-gadgets/gpu-gadgets/cmd/internal/console"
)

// endBySignal has a run end as by Ctrl-C, with its files written, where the signal's default action would kill
// the program in the midst of it: SIGPIPE, when what reads the output has ended, as head does, or tee by the
// same Ctrl-C, and SIGHUP, when the terminal closes. Further writes then fail with EPIPE, or EIO. The function that
// it returns puts the default actions back. Ctrl-C and SIGTERM are those of the context.
func endBySignal(gadget runtime.GadgetContext) (stop func()) {
	signals, ended := make(chan os.Signal, 1), make(chan struct{})
	signal.Notify(signals, append(console.HangUp(), unix.SIGPIPE)...)
	go func() {
		select {
		case s := <-signals:
			gadget.Logger().Debugf("%v: ending the run", s)
			gadget.Cancel()
		case <-ended:
		}
	}()
	return func() {
		signal.Stop(signals)
		close(ended)
	}
}
