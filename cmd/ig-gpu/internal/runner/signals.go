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
// same Ctrl-C, and SIGHUP, when the terminal closes. Further writes then fail with EPIPE, or EIO. outputs are the
// descriptors of the output. The function that it returns puts the default actions back. Ctrl-C and SIGTERM are those
// of the context.
func endBySignal(gadget runtime.GadgetContext, outputs ...int) (stop func()) {
	signals, ended := make(chan os.Signal, 1), make(chan struct{})
	signal.Notify(signals, append(console.HangUp(), unix.SIGPIPE)...)
	go func() {
		for {
			select {
			case s := <-signals:
				// Of a connection or another pipe it has no meaning: what writes there gets the error.
				if s == unix.SIGPIPE && !hasEndedReader(outputs) {
					continue
				}
				gadget.Logger().Debugf("%v: ending the run", s)
				gadget.Cancel()
				return
			case <-ended:
				return
			}
		}
	}()
	return func() {
		signal.Stop(signals)
		close(ended)
	}
}

// hasEndedReader reports whether nothing reads one of the files any more, which is a pipe or a socket then.
func hasEndedReader(files []int) bool {
	for _, fd := range files {
		fds := []unix.PollFd{{Fd: int32(fd)}}
		n, err := unix.Poll(fds, 0)
		if err == nil && n > 0 && fds[0].Revents&(unix.POLLERR|unix.POLLHUP) != 0 {
			return true
		}
	}
	return false
}
