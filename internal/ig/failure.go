// SPDX-License-Identifier: Apache-2.0

package ig

import (
	"sync"

	"github.com/inspektor-gadget/inspektor-gadget/pkg/operators"
)

// Failure is why an instance of an operator could not start, for instances to embed. Their Start
// must not return errors: Inspektor Gadget v0.55.0 then waits for ever, because it stops the operator
// ebpf without its PreStop, which alone ends the iterators that its Stop waits for
// (pkg/gadget-context/run.go, start; pkg/operators/ebpf/ebpf.go, Stop). The run ends at once instead, and PostStop
// returns the error. Until then, rows may come to an instance that has not started.
type Failure struct {
	mu  sync.Mutex
	err error // until PostStop has returned it
}

// Started takes the error of starting, which ends the run; nil: there is none. It returns nil, as Start has to.
func (f *Failure) Started(gc interface{ Cancel() }, err error) error {
	if err != nil {
		f.mu.Lock()
		f.err = err
		f.mu.Unlock()
		gc.Cancel()
	}
	return nil
}

// PostStop implements operators.PostStop: it returns the error, once.
func (f *Failure) PostStop(operators.GadgetContext) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	err := f.err
	f.err = nil
	return err
}
